"""What a guard with default limits flags in long texts: `python bench/long_texts.py DATA [--scorer builtin]`.

Clean texts of 400 and 800 words are passages of SQuAD joined, of articles that no scorer has learned from or was tuned
on; the comments were not used either. Into other passages of 480 words, one comment of the Surge set that people call
toxic is put between two sentences. DATA is the folder with squad/dev-v2.0.json.gz and
toxicity/surge/toxicity_en.csv. Texts are scored by the units of the guard; "found" means by its limits for `alarms=1`.
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

from common import HERE, save, table

from evenhand.core.types import Unscored
from evenhand.evaluators.rules import excess
from evenhand.guards.policy import live_thresholds
from evenhand.guards.segments import units
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.stats.intervals import wilson

sys.path.insert(0, str(HERE.parent))
from tools.train_scorer.neural_texts import HELD_OUT_ARTICLES, place_of

FEWEST, MOST, AROUND = 5, 30, 480
"""Words of a comment, and of the text around it."""


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


async def flagged(scorer: Scorer, text: str) -> bool:
    found = await scorer.score(list(units(text)))
    return any(excess(each, live_thresholds({}), scorer) >= 0 for each in found if not isinstance(each, Unscored))


async def measured(data: Path, scorer: Scorer, most: int) -> dict[str, tuple[int, int]]:
    luck = random.Random(45)
    with gzip.open(data / "squad/dev-v2.0.json.gz", "rt", encoding="utf-8") as file:
        articles = [each for each in json.load(file)["data"] if place_of(each) < HELD_OUT_ARTICLES]
    passages = [each["context"] for article in articles for each in article["paragraphs"]]
    with (data / "toxicity/surge/toxicity_en.csv").open(encoding="utf-8", newline="") as file:
        rows = [" ".join(row["text"].split()) for row in csv.DictReader(file) if row["is_toxic"] == "Toxic"]
    toxic = luck.sample([each for each in rows if FEWEST <= len(each.split()) <= MOST], most)
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
    return {name: (sum([await flagged(scorer, text) for text in texts]), len(texts)) for name, texts in sets.items()}


def main() -> None:
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scorer", default="builtin")
    parser.add_argument("--texts", type=int, default=150, help="of each kind (default 150)")
    given = parser.parse_args()
    found = asyncio.run(measured(given.data, load_scorer(given.scorer), given.texts))
    rows = [(name, count, n, f"{100 * count / n:.1f} %", _range(count, n)) for name, (count, n) in found.items()]
    table(f"Flagged by a guard with {given.scorer}", ("", "flagged", "of", "share", "95 % interval"), rows)
    save(f"long_texts_{given.scorer}", {name: {"flagged": count, "n": n} for name, (count, n) in found.items()})


def _range(count: int, n: int) -> str:
    interval = wilson(count, n)
    return f"{100 * interval.low:.0f}–{100 * interval.high:.0f} %"


if __name__ == "__main__":
    main()
