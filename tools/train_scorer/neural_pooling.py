"""python -m tools.train_scorer.neural_pooling --data FOLDER: compare poolings of `neural` over sentences.

Reads clean and mixed texts made of what is not kept for measuring: encyclopaedia articles and the calibration side of
RealToxicityPrompts. Prints, for each pair of scales, the logit that 99 % of clean texts stay under, and the share of
texts with one toxic sentence that get toxicity of 0.5 or more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.scorers.neural import WINDOW_SCALE, Network, plain_text, pooled, sentences, windows
from tools.train_scorer import corpora
from tools.train_scorer.corpora import open_text
from tools.train_scorer.neural_texts import HELD_OUT_ARTICLES, LENGTHS, piece_of, place_of, words_of_article

EACH = 40  # texts of each kind and length
SENTENCE_SCALES, JOINT_SCALES = (0.25, 0.35, 0.5, 0.63), (0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Read:
    """The toxicity of a text's windows and sentences, as logits."""

    toxic: bool
    windows: NDArray[np.float64]
    sentences: NDArray[np.float64]

    def logit(self, sentence_scale: float, joint_scale: float) -> float:
        whole = pooled(self.windows, WINDOW_SCALE)
        if len(self.sentences) < 2:
            return float(whole)
        return float(pooled(np.array([whole, pooled(self.sentences, sentence_scale)]), joint_scale))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_pooling", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with squad/ and rtp/")
    network = Network()
    read = [
        Read(toxic, network.logits(windows(text))[:, 0], network.logits(sentences(text))[:, 0])
        for toxic, text in _texts(parser.parse_args().data, random.Random(99))
    ]
    sys.stdout.write(f"{len(read)} texts\n| sentences | joint | clean, 99 % below | found |\n|---|---|---|---|\n")
    for first in SENTENCE_SCALES:
        for second in JOINT_SCALES:
            logits = {toxic: [each.logit(first, second) for each in read if each.toxic == toxic] for toxic in (0, 1)}
            high, found = np.quantile(logits[False], 0.99), np.mean(np.array(logits[True]) >= 0)
            sys.stdout.write(f"| {first} | {second} | {high:.2f} | {found:.1%} |\n")


def _texts(data: Path, chance: random.Random) -> Iterator[tuple[bool, str]]:
    with open_text(data / "squad" / "dev-v2.0.json") as file:
        articles = [words_of_article(each) for each in json.load(file)["data"] if place_of(each) >= HELD_OUT_ARTICLES]
    rtp = corpora.read_rtp(data)["a calibration"]
    rows = list(zip((text.strip() for text in rtp.texts), rtp.labels.tolist(), strict=True))
    calm, toxic = [text for text, row in rows if max(row) < 0.2], [text for text, row in rows if row[0] > 0.75]
    for length in LENGTHS:
        for _ in range(EACH):
            parts = list(_up_to(length, calm, chance))
            article, insult = chance.choice(articles), chance.choice(toxic)
            before, after = (piece_of(chance, article, length // 2) for _ in range(2))
            mixed = [*parts]
            mixed.insert(chance.randrange(len(parts) + 1), insult)
            texts = (piece_of(chance, article, length), ". ".join(parts), f"{before}. {insult}. {after}")
            for is_toxic, text in zip((False, False, True, True), (*texts, ". ".join(mixed)), strict=True):
                if not isinstance(plain := plain_text(text), Unscored):
                    yield is_toxic, plain


def _up_to(length: int, texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Yield random texts until they have so many words together."""
    words = 0
    while words < length:
        yield (text := chance.choice(texts))
        words += len(text.split())


if __name__ == "__main__":
    main()
