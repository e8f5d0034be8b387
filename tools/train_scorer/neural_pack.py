"""python -m tools.train_scorer.neural_pack --student FILE --texts FILE --predictions FILE: what the package ships.

Fits slope and shift of every attribute of a student on the set `calibration`, and writes its layers with these into the
package. With `--limits NAME`, measures the limits of a scorer of the package and stores them with its weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.scorers.base import load_scorer
from evenhand.scorers.builtin import ARTEFACTS
from evenhand.scorers.neural import weights
from tools.train_scorer.both_sides import limits
from tools.train_scorer.neural import ATTRIBUTES, pooled, read_rows

LAYERS = weights.GRAPH.with_name("layers.npz")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_pack", description=__doc__)
    parser.add_argument("--student", type=Path, help="NAME.layers.npz, from neural.py")
    parser.add_argument("--texts", type=Path, help="what neural_texts.py wrote")
    parser.add_argument("--predictions", type=Path, help="NAME.pred.npz, from neural.py")
    parser.add_argument("--limits", choices=("neural", "builtin", "builtin_b"), help="the scorer to measure")
    parser.add_argument("--data", type=Path, help="folder with squad/ and rtp/, for --limits")
    options = parser.parse_args()
    if options.student:
        with np.load(options.student, allow_pickle=False) as file:
            layers = dict(file)
        slope, shift = slopes(options.texts, options.predictions)
        layers["out.weight"] = (layers["out.weight"] * slope[:, None]).astype(np.float32)
        layers["out.bias"] = (layers["out.bias"] * slope + shift).astype(np.float32)
        store(LAYERS, layers)
    if options.limits:
        path = LAYERS if options.limits == "neural" else ARTEFACTS / f"{options.limits}.npz"
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        store(path, arrays, limits=limits(load_scorer(options.limits), options.data, each=200))


def store(path: Path, arrays: Mapping[str, np.ndarray], **more: Any) -> None:
    """Write the weights of a scorer, with more about it."""
    about = json.dumps({**json.loads(bytes(arrays["about"])), **more}, sort_keys=True).encode()
    np.savez_compressed(path, allow_pickle=False, **{**arrays, "about": np.frombuffer(about, np.uint8)})


def slopes(texts: Path, predictions: Path) -> tuple[np.ndarray, np.ndarray]:
    """Slope and shift by logistic regression; an attribute with few labels has those of toxicity."""
    rows = [row for row in read_rows(texts) if not row["set"].startswith("train")]
    stored = np.load(predictions)
    logits = pooled(stored["logits"].astype(np.float64), stored["owner"])
    inside = np.array([row["set"] == "calibration" for row in rows])
    labels = np.array([[np.nan if x is None else x for x in row["labels"]] for row in rows])
    found = np.tile(np.array([[1.0], [0.0]]), len(ATTRIBUTES))
    for number in range(len(ATTRIBUTES)):
        use = inside & ~np.isnan(labels[:, number])
        if use.sum() > 200:
            found[:, number] = fitted(logits[use, number], labels[use, number])
    return found[0], found[1]


def fitted(logit: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """Slope and shift that fit the labels best, by Newton's method."""
    x = np.stack([logit, np.ones_like(logit)], 1)
    w = np.array([1.0, 0.0])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ w))
        w = w + np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-6 * np.eye(2), x.T @ (label - p))
    return float(w[0]), float(w[1])


if __name__ == "__main__":
    main()
