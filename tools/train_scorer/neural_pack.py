"""python -m tools.train_scorer.neural_pack --students FILE … --texts FILE: what the package ships.

Takes the mean of the weights of students of one base, fits slope and shift of every attribute on the set `calibration`
(toxicity: as much on each of SOURCES), and writes the layers into the package. With `--limits NAME`, measures limits
of a scorer of the package and stores them with its weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from evenhand.scorers.base import load_scorer
from evenhand.scorers.builtin import ARTEFACTS
from evenhand.scorers.neural import MAX_TOKENS, Encoder, weights
from tools.train_scorer.both_sides import limits
from tools.train_scorer.neural import ATTRIBUTES, VERSION, floats, mean_of, pooled, read_rows

LEVELS = 63  # of a weight: 7 bits
SOURCES = {"calibration": 1620, "davidson": 1000}
"""Sets that fit the calibration, and how many texts of each; the second was never learned."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_pack", description=__doc__)
    parser.add_argument("--students", type=Path, nargs="+", help="NAME.layers.npz, from neural.py")
    parser.add_argument("--shares", type=float, nargs="+", help="of each in the mean; the same if left out")
    parser.add_argument("--texts", type=Path, help="what neural_texts.py wrote")
    parser.add_argument("--limits", choices=("neural", "builtin", "builtin_b"), help="the scorer to measure")
    parser.add_argument("--data", type=Path, help="folder with squad/ and rtp/, for --limits")
    options = parser.parse_args()
    if options.students:
        layers = mean(options.students, options.shares or [1.0] * len(options.students))
        slope, shift = slopes(layers, options.texts)
        layers["out.weight"] = (layers["out.weight"] * slope[:, None]).astype(np.float32)
        layers["out.bias"] = (layers["out.bias"] * slope + shift).astype(np.float32)
        layers["calibration"] = np.stack([np.ones_like(slope), np.zeros_like(shift)])  # see sources.py
        store(weights.layers_file(weights.number_of_layers(layers)), layers, version=VERSION)
    if options.limits:
        path = weights.layers_file(weights.ALL) if options.limits == "neural" else ARTEFACTS / f"{options.limits}.npz"
        store(path, stored(path), limits=limits(load_scorer(options.limits), options.data, each=200))


def mean(students: Sequence[Path], shares: Sequence[float]) -> dict[str, np.ndarray]:
    """The mean of students, rounded as the scorer stores it; its ranges hold those of each."""
    found: dict[str, np.ndarray] = {}
    for name, value in mean_of([floats(path) for path in students], shares).items():
        if name[0].isdigit() and value.ndim == 2:
            scale = (np.abs(value).max(1) / LEVELS).astype(np.float32)
            found |= {name: np.rint(value / scale[:, None]).astype(np.int8), name.replace(".weight", ".scale"): scale}
        elif not name.startswith("middle"):
            found[name] = value
    for path in students:
        with np.load(path, allow_pickle=False) as file:
            for name in (name for name in file if name.endswith(".range")):
                low, high = file[name]
                known = found.get(name, file[name])
                found[name] = np.array([min(low, known[0]), max(high, known[1])], np.float32)
    return found


def stored(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def store(path: Path, arrays: Mapping[str, np.ndarray], **more: Any) -> None:
    """Write the weights of a scorer, with more about it."""
    known = json.loads(bytes(arrays["about"])) if "about" in arrays else {}
    about = json.dumps({**known, **more}, sort_keys=True).encode()
    np.savez_compressed(path, allow_pickle=False, **{**arrays, "about": np.frombuffer(about, np.uint8)})


def slopes(layers: Mapping[str, np.ndarray], texts: Path) -> tuple[np.ndarray, np.ndarray]:
    """Slope and shift by logistic regression; an attribute with few labels has those of toxicity's first source."""
    rows = [row for row in read_rows(texts) if row["set"] in SOURCES]
    rows = [row for name, most in SOURCES.items() for row in [row for row in rows if row["set"] == name][:most]]
    logits = text_logits(layers, rows)
    sets = np.array([row["set"] for row in rows])
    labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in rows])
    found = np.tile(np.array([[1.0], [0.0]]), len(ATTRIBUTES))
    for number in range(len(ATTRIBUTES)):
        use = ~np.isnan(labels[:, number]) & ((sets == "calibration") | (number == 0))
        if use.sum() > 200:
            _, place, count = np.unique(sets[use], return_inverse=True, return_counts=True)
            found[:, number] = fitted(logits[use, number], labels[use, number], use.sum() / count[place])
    return found[0], found[1]


def text_logits(layers: Mapping[str, np.ndarray], rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    tokenizer = Tokenizer.from_file(str(weights.tokenizer_file()))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    pieces = [each.ids for each in tokenizer.encode_batch([window for row in rows for window in row["windows"]])]
    owner = np.array([number for number, row in enumerate(rows) for _ in row["windows"]])
    return pooled(Encoder({**weights.word_vectors(), **layers}).logits(pieces), owner)


def fitted(logit: np.ndarray, label: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Slope and shift that fit the labels best, by Newton's method."""
    x = np.stack([logit, np.ones_like(logit)], 1)
    w = np.array([1.0, 0.0])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ w))
        curve = x.T @ (x * (weight * p * (1 - p))[:, None]) + 1e-6 * np.eye(2)
        w = w + np.linalg.solve(curve, x.T @ (weight * (label - p)))
    return float(w[0]), float(w[1])


if __name__ == "__main__":
    main()
