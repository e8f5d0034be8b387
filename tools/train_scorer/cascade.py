"""python -m tools.train_scorer.cascade --data FOLDER: what `cascade` finds for several values of SUSPICIOUS.

Toxic comments, and the guard's units of clean ones, each scored by `builtin` and by `neural`; five minutes of CPU.
"Read" is the share that `neural` would read. SQuAD, Surge and `tests/scorers/harmless.txt` are left for the test.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.guards.segments import units
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.neural import NeuralScorer
from tools.train_scorer.corpora import open_text

FEWEST, MOST, EACH = 5, 30, 400
"""Words of a toxic comment, and how many of them are drawn."""
LONG, TEXTS = 400, 120
"""Words of a clean text, and how many are joined."""
JUDGED = ("toxicity", "identity_attack")
VALUES = (0.0, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
Scored = NDArray[np.float64]


def drawn(data: Path) -> dict[str, list[str]]:
    """Return the toxic comments by source, and the units of clean ones."""
    luck = random.Random(7)
    with open_text(data / "toxicity/jigsaw_part/texts.csv") as file:
        jigsaw = [(row[0], row[1]) for row in csv.reader(file)]
    with open_text(data / "toxicity/davidson/labeled_data.csv") as file:
        hate = [row["tweet"] for row in csv.DictReader(file) if row["class"] == "0"]
    with open_text(data / "toxicity/toxigen_prompts/prompts.jsonl") as file:
        polite = [row["text"] for row in map(json.loads, file) if row["label"] == 1]
    with open_text(data / "toxicity/hatemoji/test.csv") as file:
        emoji = [row["text"] for row in csv.DictReader(file) if row["label_gold"] == "1"]
    toxic = {
        "Jigsaw, toxic": luck.sample([text for text, label in jigsaw if label == "1" and _is_short(text)], EACH),
        "Davidson, hate": luck.sample(list(filter(_is_short, hate)), EACH),
        "ToxiGen, hate in polite words": luck.sample(polite, EACH),
        "Hatemoji, hate with emoji": luck.sample(emoji, EACH // 2),
    }
    clean = [text.split() for text, label in jigsaw if label == "0"]
    luck.shuffle(clean)
    joined: list[str] = []
    words: list[str] = []
    for text in clean:
        words += text
        if len(words) >= LONG:
            joined.append(" ".join(words[:LONG]))
            words = []
    return {**toxic, "Jigsaw, clean": [unit for text in joined[:TEXTS] for unit in dict.fromkeys(units(text))]}


def _is_short(text: str) -> bool:
    return FEWEST <= len(text.split()) <= MOST


def scored(scorer: BuiltinScorer | NeuralScorer, texts: list[str]) -> Scored:
    """Return the scores of the judged attributes; NaN where a text cannot be read."""
    unread = dict.fromkeys(JUDGED, float("nan"))
    found = (unread if isinstance(each, Unscored) else each for each in scorer.score_texts(texts))
    return np.array([[each[name] for name in JUDGED] for each in found])


def flagged(scores: Scored, scorer: BuiltinScorer | NeuralScorer) -> NDArray[np.bool_]:
    return (scores >= [scorer.limits[name][1] for name in JUDGED]).any(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    quick, exact = BuiltinScorer(), NeuralScorer()
    for name, texts in drawn(parser.parse_args().data).items():
        low, high = scored(quick, texts), scored(exact, texts)
        print(f"{name}, {len(texts)}: builtin flags {flagged(low, quick).mean():.1%}")
        for value in VALUES:
            read = ~(low.max(1) < value)  # what `builtin` cannot read is left to `neural`
            print(f"  from {value:.2f}: read {read.mean():.1%}, flagged {(read & flagged(high, exact)).mean():.1%}")


if __name__ == "__main__":
    main()
