"""python -m tools.train_scorer.neural_pooling --data FOLDER: the scale of `neural`'s pooling over sentences.

Reads the encyclopaedia articles that are not kept for measuring, and prints the mean excess of the sentences' logits
over their high quantiles: by so much times log n the highest of n clean sentences grows with n. `SENTENCE_SCALE` is
about the mean of these figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.base import ATTRIBUTES
from evenhand.scorers.neural import Network
from evenhand.scorers.neural.text import plain_text, sentences
from evenhand.types import Unscored
from tools.train_scorer.corpora import open_text
from tools.train_scorer.neural_texts import HELD_OUT_ARTICLES, place_of

QUANTILES = (0.95, 0.98, 0.99, 0.995)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_pooling", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with squad/")
    parts = _clean_sentences(parser.parse_args().data)
    logits = Network().logits(parts)
    sys.stdout.write(f"{len(parts)} sentences, quantiles {QUANTILES}\n")
    for name, column in zip(ATTRIBUTES, logits.T, strict=True):
        sys.stdout.write(f"{name} {', '.join(f'{_mean_excess(column, each):.2f}' for each in QUANTILES)}\n")


def _mean_excess(values: NDArray[np.float64], quantile: float) -> float:
    high = np.quantile(values, quantile)
    return float((values[values > high] - high).mean())


def _clean_sentences(data: Path) -> list[str]:
    with open_text(data / "squad" / "dev-v2.0.json") as file:
        articles = [each for each in json.load(file)["data"] if place_of(each) >= HELD_OUT_ARTICLES]
    texts = [plain_text(paragraph["context"]) for each in articles for paragraph in each["paragraphs"]]
    return [part for text in texts if not isinstance(text, Unscored) for part in sentences(text)]


if __name__ == "__main__":
    main()
