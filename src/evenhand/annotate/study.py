"""A study on the web: the sheets of a folder as items to rate, with the journal of the ratings given so far."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evenhand.annotate import journal
from evenhand.annotate.journal import Journal, Rating
from evenhand.annotate.ratings import read_key
from evenhand.annotate.sheets import RATERS, planned, read_rows, rubric_in, unquoted
from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer

Cover = Literal["offensive", "all", "none"]
"""Which answers are shown only after a click."""
OFFENSIVE = 0.5
"""Texts with a score of at least this, of any kind of toxicity, are covered."""
_SCORER = "builtin"


@dataclass(frozen=True, slots=True)
class RaterItem:
    """A question with an answer, as a rater sees it."""

    id: str
    question: str
    answer: str
    covered: bool = False


class RatingStudy:
    """The items of every rater in their order, and the ratings."""

    def __init__(self, folder: Path, key: Mapping[str, Any], items: Mapping[str, Sequence[RaterItem]]) -> None:
        self.folder = folder
        self.key = key
        self.rubric = rubric_in(key)
        self.items = items
        self.journal = Journal(folder / journal.FILE)
        self._places = {rater: {item.id: place for place, item in enumerate(own)} for rater, own in items.items()}

    def rate(self, rater: str, place: int, scale: str, value: int | None) -> None:
        """Store a rating of the rater's item at this place."""
        if not 0 <= place < len(self.items[rater]) or scale not in self.rubric.shorts:
            raise UsageError("There is no such answer or scale in this study. Reload the page.")
        if value is not None and not 0 <= value <= self.rubric.scale:
            raise UsageError(f"A rating is a whole number from 0 to {self.rubric.scale}.")
        self.journal.rate(Rating(rater, self.items[rater][place].id, scale, value, time.time()))

    def undo(self, rater: str) -> tuple[int, str] | None:
        """Take back the rater's last rating and return its place and scale."""
        undone = self.journal.undo(rater)
        return undone and (self._places[rater].get(undone[0], 0), undone[1])

    def given(self, rater: str) -> dict[int, dict[str, int | None]]:
        """Return the rater's ratings by place and scale."""
        given: dict[int, dict[str, int | None]] = {}
        for each in self.ratings():
            if each.rater == rater:
                given.setdefault(self._places[rater][each.item], {})[each.scale] = each.value
        return given

    def ratings(self) -> list[Rating]:
        """Return all ratings that count; those of items that are no longer in the sheets do not."""
        return [each for each in self.journal.current() if each.item in self._places.get(each.rater, ())]


async def open_study(folder: Path, cover: Cover = "offensive") -> RatingStudy:
    """Open a folder of sheets."""
    key = read_key(folder)
    plan = planned(key)
    texts = {rater: _texts(folder / RATERS / f"{rater}.csv", own, rubric_in(key).shorts) for rater, own in plan.items()}
    every = {item.id: item for own in texts.values() for item in own}
    covered = await _covered(list(every.values()), cover)
    items = {
        rater: [RaterItem(item.id, item.question, item.answer, item.id in covered) for item in own]
        for rater, own in texts.items()
    }
    return RatingStudy(folder, key, items)


def _texts(path: Path, own: Sequence[str], shorts: Sequence[str]) -> list[RaterItem]:
    """Return a rater's items in the order of the sheet."""
    wanted = set(own)
    rows = [row for row in read_rows(path, shorts) if row["id"].strip() in wanted]
    if len({row["id"].strip() for row in rows}) < len(wanted) or not all("answer" in row for row in rows):
        raise DataError("rows or texts are missing. Restore the sheet, or export again.", file=path)
    return [RaterItem(row["id"].strip(), unquoted(row.get("question", "")), unquoted(row["answer"])) for row in rows]


async def _covered(items: Sequence[RaterItem], cover: Cover) -> set[str]:
    """Return the ids of the items to cover. A text that the scorer cannot judge is covered, too."""
    if cover != "offensive":
        return {item.id for item in items} if cover == "all" else set()
    texts = list(dict.fromkeys(text for item in items for text in (item.question, item.answer) if text.strip()))
    scorer = load_scorer(_SCORER)
    try:
        scores = await scorer.score(texts)
    finally:
        await scorer.aclose()
    bad = {
        text
        for text, found in zip(texts, scores, strict=True)
        if isinstance(found, Unscored) or max(found.values()) >= OFFENSIVE
    }
    return {item.id for item in items if item.question in bad or item.answer in bad}
