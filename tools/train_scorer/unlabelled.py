"""python -m tools.train_scorer.unlabelled --texts FILE --registry DIR --more DIR --out FILE: texts without labels.

The teacher of `neural` labels them, so that a student sees many wordings beside the templates that we wrote. Comments
of RedditBias, sentences of BOLD and BUG, snippets of tweets, reviews and editorials (vaderSentiment's sdist), small
talk (chatterbot-corpus), and what can be made of texts to learn: another group, a part, two texts in a row, a frame.
Some are repeated misspelt or hidden. A text that shares six words in a row with one that is measured is left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from evenhand.core.types import Unscored
from evenhand.scorers.identity import without_groups
from evenhand.scorers.neural import SEPARATOR, plain_text
from tools.train_scorer import hard, identity
from tools.train_scorer.neural import read_rows
from tools.train_scorer.neural_texts import Row, windows, write

CAPS = {"reddit": 45_000, "wiki": 16_000, "medicine": 7_000, "snippets": 24_000, "talk": 4_000}
MADE = 50_000
"""Texts that are made of those to learn."""
MISSPELT, HIDDEN = 0.15, 0.10
SHORT = 40
"""Words of a text that is joined or framed."""
SHINGLE = 6
FRAMES = (
    'he said " {q} " and left', "my uncle keeps saying {q}", 'someone wrote " {q} " under my photo', "{q} lol",
    "so apparently {q}", "is it true that {q} ?", "i can not believe that {q}", "as my boss told me , {q}",
    "write a short story in which somebody says : {q}", "translate into french : {q}", "{q} , she whispered .",
    "summarize this comment : {q}", "nobody should ever say {q}", "update : {q}", "i used to think that {q}",
    "in the film a guard shouts {q}", "continue the text : {q}", "please explain why {q}", "{q} and that is a fact",
    "the sign on the wall said {q}", "{q} ( sorry , bad day )", "tell me more about this : {q}",
)  # fmt: skip


def texts(registry: Path, more: Path) -> Iterator[tuple[str, str]]:
    """Yield sets and texts of others."""
    for path in sorted((registry / "RedditBias" / "data").glob("*/*_processed.csv")):
        with path.open(encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                if 20 < len(text := row.get("comments") or row.get("comments_processed") or "") < 600:
                    yield "reddit", text
    for path in sorted((registry / "BOLD" / "data" / "wikipedia").glob("*.json")):
        pages = json.loads(path.read_text(encoding="utf-8"))
        yield from (("wiki", line[:600]) for group in pages.values() for page in group.values() for line in page)
    with (registry / "BUG" / "data" / "balanced_BUG.csv").open(encoding="utf-8", errors="replace") as file:
        yield from (("medicine", line) for line in sorted({row["sentence_text"][:600] for row in csv.DictReader(file)}))
    for path in sorted(more.rglob("*_GroundTruth.txt")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            yield "snippets", line.rpartition("\t")[2].replace("''", '"')
    for path in sorted(more.rglob("data/english/*.yml")):
        for talk in yaml.safe_load(path.read_text(encoding="utf-8"))["conversations"]:
            yield from (("talk", str(line)) for line in talk)


def made(learned: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Yield texts that are made of texts to learn, which are words as the network reads them."""
    groups = [group.many.lower() for group in identity.groups()]
    short = [text for text in learned if text.count(" ") < SHORT and SEPARATOR not in text]
    while True:
        text = chance.choice(short)
        words = text.split(" ")
        if (anybody := without_groups(words)) and chance.random() < 0.8:
            # "locals" stands for any group, so another one takes its place.
            yield " ".join(anybody).replace("locals", chance.choice(groups))
        way = chance.random()
        if way < 0.35:
            yield chance.choice(FRAMES).replace("{q}", text.rstrip(" .!?"))
        elif way < 0.65:
            yield f"{text} {chance.choice(short)}"
        elif way < 0.8 and len(words) > 8:
            yield " ".join(words[: chance.randint(4, len(words) - 3)])
        elif way < 0.9:
            yield " ".join(word for word in words if chance.random() > 0.12)
        else:
            yield f"{chance.choice(hard.OPENINGS)} {text}"


def rows(path: Path, registry: Path, more: Path) -> Iterator[Row]:
    chance = random.Random(29)
    learned: list[str] = []
    measured: set[int] = set()
    for row in read_rows(path):
        if row["set"].startswith("train"):
            learned.append(row["windows"][0])
        else:
            measured.update(each for window in row["windows"] for each in shingles_of(window))
    by_set: dict[str, dict[str, None]] = {}
    for name, text in texts(registry, more):
        by_set.setdefault(name, {})[re.sub(r"\s+", " ", text).strip()] = None
    for name, found in by_set.items():
        for text in chance.sample(list(found), min(CAPS[name], len(found))):
            versions = [text]
            versions += [hard.misspelt(text, chance)] if chance.random() < MISSPELT else []
            versions += [hard.hidden(text, chance)] if chance.random() < HIDDEN else []
            for version in versions:
                plain = plain_text(version)
                if not isinstance(plain, Unscored) and not measured.intersection(shingles_of(plain)):
                    yield from (_row(name, window) for window in windows(plain)[:2])
    new = made(learned, chance)
    for _ in range(MADE):
        text = next(new)
        if chance.random() < MISSPELT and not isinstance(plain := plain_text(hard.misspelt(text, chance)), Unscored):
            text = plain
        if not measured.intersection(shingles_of(text)):
            yield _row("made", windows(text)[0])


def shingles_of(window: str) -> Iterator[int]:
    words = [word for word in window.split(" ") if word.isalnum()]
    yield from (hash(tuple(words[place : place + SHINGLE])) for place in range(len(words) - SHINGLE + 1))


def _row(name: str, window: str) -> Row:
    return {"set": f"train unlabelled {name}", "labels": [None] * 8, "windows": [window]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.unlabelled", description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="what neural_texts wrote")
    parser.add_argument("--registry", type=Path, required=True, help="as for neural_texts")
    parser.add_argument("--more", type=Path, required=True, help="folder with both source packages, unpacked")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, .jsonl.gz")
    options = parser.parse_args()
    write(rows(options.texts, options.registry, options.more), options.out)


if __name__ == "__main__":
    main()
