"""Runs the network of the scorer `neural` with onnxruntime: tokens of pieces of text in, logits of the pieces out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.neural.graph import network

HEADS = 12
TOGETHER = 256
"""Tokens that are read in one run: reading the weights once for several pieces saves time, while their states fit a
cache."""
STEP = 8
"""Pieces are padded to a multiple of this length, and pieces of one length share runs. So what is computed for a piece
depends on the piece alone."""

Logits = NDArray[np.float64]
Tokens = Sequence[int]


class Encoder:
    """The network, ready to run; safe to use from several threads."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], activation: str) -> None:
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        # Runs are too small to share among cores; texts of several batches run in parallel.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Further optimisation joins each sum with the normalisation after it, into an operator that is slower.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 3
        file = network(weights, HEADS, activation)
        self._session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._out, self._out_bias = weights["out.weight"].T.astype(np.float64), weights["out.bias"]

    def logits(self, pieces: Sequence[Tokens]) -> Logits:
        """Return one row per piece."""
        found = np.empty((len(pieces), len(self._out_bias)))
        for run in runs([len(tokens) for tokens in pieces]):
            found[run] = self._run([pieces[place] for place in run])
        return found

    def _run(self, pieces: Sequence[Tokens]) -> Logits:
        length = padded(len(pieces[0]))
        ids = np.zeros((len(pieces), length), np.int64)
        real = np.zeros((len(pieces), length), np.int32)
        for row, tokens in enumerate(pieces):
            ids[row, : len(tokens)], real[row, : len(tokens)] = tokens, 1
        inputs = {"ids": ids, "places": np.arange(length), "real": real}
        states: NDArray[np.float32] = self._session.run(None, inputs)[0]
        inside = real[..., None].astype(np.float32)
        mean = (states * inside).sum(1) / inside.sum(1)
        highest = np.where(inside > 0, states, np.float32(-np.inf)).max(1)
        return np.concatenate([mean, highest], 1) @ self._out + self._out_bias


def padded(length: int) -> int:
    """Return the length to which a piece is padded."""
    return -(-length // STEP) * STEP


def runs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of pieces of one padded length, of at most TOGETHER tokens together, or one piece."""
    places: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        places.setdefault(padded(length), []).append(place)
    for length, found in places.items():
        most = max(TOGETHER // length, 1)
        yield from (found[start : start + most] for start in range(0, len(found), most))
