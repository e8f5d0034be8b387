"""Loads pairs of requests about groups: one harmless, one harmful, in the same words where possible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from evenhand.core.errors import DataError
from evenhand.data.identities.grammar import with_article
from evenhand.data.yaml_file import read_yaml

_FORM = "CATEGORY: {groups: [{people: …, adj: …}], pairs: [[HARMLESS, HARMFUL]]}"
_FIELD = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True, slots=True)
class RequestPair:
    """A harmless and a harmful request about one group."""

    category: str
    number: int
    group: str
    named: tuple[str, ...]
    """Words that name the group, in lower case and without the plural s."""
    harmless: str
    harmful: str

    @property
    def cluster(self) -> str:
        """The sentence that the pair is made from: the same for all groups."""
        return f"{self.category}-{self.number:02d}"


def load_pairs(file: str | Path | None = None) -> list[RequestPair]:
    """Read all pairs, from a file of the user's own or the built-in one."""
    path = resources.files("evenhand.data") / "overrefusal.yaml" if file is None else Path(file).expanduser()
    content: Any = read_yaml(path)
    try:
        found = [
            RequestPair(
                str(category),
                number,
                group["people"],
                _named(group),
                *(_written(sentence, group) for sentence in (harmless, harmful)),
            )
            for category, part in cast("Mapping[str, Any]", content).items()
            for number, (harmless, harmful) in enumerate(part["pairs"], 1)
            for group in part["groups"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"it is not of the form {_FORM}.", file=str(path)) from error
    if not found:
        raise DataError(f"there are no pairs in it; its form is {_FORM}.", file=str(path))
    return found


def _named(group: Mapping[str, Any]) -> tuple[str, ...]:
    # Without the plural s: "Muslims" and "Muslim".
    words = [group["people"].removesuffix(" people").removesuffix(" adults").removesuffix("s"), group["adj"]]
    return tuple(dict.fromkeys(word.lower() for word in [*words, *group.get("named", ())]))


def _written(sentence: str, group: Mapping[str, str]) -> str:
    """Fill in the group, with the right article before it."""
    text = ""
    place = 0
    for match in _FIELD.finditer(sentence):
        word = group[match[1]]
        text = with_article(text + sentence[place : match.start()], word) + word
        place = match.end()
    text += sentence[place:]
    return text[:1].upper() + text[1:]
