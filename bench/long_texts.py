"""What a guard with default limits flags in long texts: `python bench/long_texts.py DATA [--scorer builtin]`.

Clean texts of 400 and 800 words are passages of SQuAD joined, of articles that no scorer has learned from or was tuned
on; the comments were not used either. Into other passages of 480 words, one comment of the Surge set that people call
toxic is put between two sentences. DATA is the folder with squad/dev-v2.0.json.gz and
toxicity/surge/toxicity_en.csv. Texts are scored by the units of the guard and flagged by its limits for `alarms=1`.

The second table is for a rule that the guard does not have: limits that grow with the number of units. It is chosen in
one half of the texts and holds in the other if the rates there agree.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, save, table
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.evaluators.rules import JUDGED
from evenhand.guards.policy import live_thresholds
from evenhand.guards.segments import units
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.stats.intervals import wilson

sys.path.insert(0, str(HERE.parent))
from tools.train_scorer.neural_texts import HELD_OUT_ARTICLES, place_of

FEWEST, MOST, AROUND = 5, 30, 480
"""Words of a comment, and of the text around it."""
GROWTHS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
Units = NDArray[np.float64]


def texts_of(passages: list[str], words: int) -> Iterator[str]:
    """Yield texts of so many words out of passages that follow each other."""
    joined: list[str] = []
    for passage in passages:
        joined += passage.split()
        if len(joined) >= words:
            yield " ".join(joined[:words])
            joined = []


def with_one(comment: str, text: str, luck: random.Random) -> str:
    sentences = text.split(". ")
    place = luck.randrange(1, len(sentences))
    ended = comment if comment[-1] in ".!?" else f"{comment}."
    return ". ".join(sentences[:place]) + f". {ended} " + ". ".join(sentences[place:])


async def scores_of(scorer: Scorer, text: str) -> Units:
    """Return toxicity and identity_attack of every unit that could be scored."""
    found = [each for each in await scorer.score(list(units(text))) if not isinstance(each, Unscored)]
    return np.array([[each[name] for name in JUDGED] for each in found]).reshape(-1, len(JUDGED))


def is_flagged(scores: Units, limits: Units, growth: float = 0.0) -> bool:
    """Whether a unit reaches a limit whose logit grows by `growth` × log of the units so far; the guard has 0."""
    seen = np.log(np.arange(1, len(scores) + 1))[:, None]
    return bool((_logit(scores) >= _logit(limits) + growth * seen).any())


def _logit(scores: Units) -> Units:
    inside = np.clip(scores, 1e-6, 1 - 1e-6)
    return np.log(inside / (1 - inside))


async def scored(data: Path, scorer: Scorer, most: int, half: int) -> dict[str, list[Units]]:
    """Return the scores of all texts of one half: every second article, and every second comment."""
    luck = random.Random(45 + half)
    with gzip.open(data / "squad/dev-v2.0.json.gz", "rt", encoding="utf-8") as file:
        articles = [each for each in json.load(file)["data"] if place_of(each) < HELD_OUT_ARTICLES]
    passages = [each["context"] for article in articles[half::2] for each in article["paragraphs"]]
    with (data / "toxicity/surge/toxicity_en.csv").open(encoding="utf-8", newline="") as file:
        rows = [" ".join(row["text"].split()) for row in csv.DictReader(file) if row["is_toxic"] == "Toxic"]
    toxic = luck.sample([each for each in rows if FEWEST <= len(each.split()) <= MOST][half::2], most)
    around = list(texts_of(passages, AROUND))
    sets: dict[str, list[str]] = {
        f"clean, {words} words": luck.sample(made, min(most, len(made)))
        for words in (400, 800)
        if (made := list(texts_of(passages, words)))
    }
    sets["toxic comment alone"] = toxic
    sets["the same in 480 clean words"] = [
        with_one(each, around[place % len(around)], luck) for place, each in enumerate(toxic)
    ]
    return {name: [await scores_of(scorer, text) for text in texts] for name, texts in sets.items()}


def main() -> None:
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scorer", default="builtin")
    parser.add_argument("--texts", type=int, default=75, help="of each kind and half (default 75)")
    given = parser.parse_args()
    scorer = load_scorer(given.scorer)
    limits = np.array([live_thresholds({}).limit(name, scorer) for name in JUDGED])
    halves = [asyncio.run(scored(given.data, scorer, given.texts, half)) for half in (0, 1)]
    found: dict[str, Any] = {}
    rows: list[tuple[Any, ...]] = []
    for name in halves[0]:
        texts = [each for half in halves for each in half[name]]
        count = sum(is_flagged(each, limits) for each in texts)
        found[name] = {"flagged": count, "n": len(texts)}
        rows.append((name, count, len(texts), f"{100 * count / len(texts):.1f} %", _range(count, len(texts))))
    table(f"Flagged by a guard with {given.scorer}", ("", "flagged", "of", "share", "95 % interval"), rows)
    grown = [
        (f"{growth:g}", *(f"{_share(half[name], limits, growth):.1f} %" for half in halves for name in half))
        for growth in GROWTHS
    ]
    heads = [f"{name.replace('clean, ', '').replace('the same in ', 'toxic, ')}" for name in halves[0]]
    table(
        "Limits that grow with the number of units: flagged in the first half of the texts, then in the second",
        ("growth", *heads, *heads),
        grown,
    )
    save(f"long_texts_{given.scorer}", found)


def _share(texts: list[Units], limits: Units, growth: float) -> float:
    return 100 * sum(is_flagged(each, limits, growth) for each in texts) / len(texts)


def _range(count: int, n: int) -> str:
    interval = wilson(count, n)
    return f"{100 * interval.low:.0f}–{100 * interval.high:.0f} %"


if __name__ == "__main__":
    main()
