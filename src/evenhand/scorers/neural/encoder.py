"""Runs the network of the scorer `neural` with onnxruntime: tokens of pieces of text in, logits of the pieces out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.neural.graph import APART, network

HEADS = 12
TOGETHER = 256
"""Tokens that are read in one run: reading the weights once for several short pieces saves time, but each token is
compared with all others of its run."""

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
        return np.concatenate([self._run(run) for run in runs(pieces)])

    def _run(self, pieces: Sequence[Tokens]) -> Logits:
        lengths = np.array([len(tokens) for tokens in pieces], np.int64)
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        first = np.repeat(starts, lengths)
        inputs = {
            "ids": np.concatenate([np.array(tokens, np.int64) for tokens in pieces]),
            "places": np.arange(len(first)) - first,
            "bias": np.where(first[:, None] == first, np.float32(0), np.float32(APART))[None, None],
        }
        states: NDArray[np.float32] = self._session.run(None, inputs)[0]
        mean = np.add.reduceat(states, starts) / lengths[:, None]
        return np.concatenate([mean, np.maximum.reduceat(states, starts)], 1) @ self._out + self._out_bias


def runs(pieces: Sequence[Tokens]) -> Iterator[list[Tokens]]:
    """Yield the pieces in runs of at most TOGETHER tokens, or of one piece."""
    run: list[Tokens] = []
    for piece in pieces:
        if run and sum(map(len, run)) + len(piece) > TOGETHER:
            yield run
            run = []
        run.append(piece)
    yield run
