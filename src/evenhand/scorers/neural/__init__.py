"""The scorer `neural`: a small transformer, fine-tuned from MiniLM-L6; needs the extra `toxicity` and one download.

`tools/train_scorer/neural.py` trains it; docs/results/scorer-card.md describes the training data and the accuracy.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import MissingExtraError
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.builtin import DECIMALS, MAX_CHARS
from evenhand.scorers.neural import weights
from evenhand.scorers.neural.graph import network
from evenhand.scorers.neural.text import plain_text, windows
from evenhand.types import Unscored

HEADS = 12
LONGEST = 128
"""Tokens of a window that are read; a window of ordinary words has fewer."""
SHARPNESS = 4.0
"""Of the pooling over windows: 0 is their mean, infinity their maximum."""

Logits = NDArray[np.float64]


@SCORERS.register("neural")
class NeuralScorer(Scorer):
    """A small transformer that reads words in context, more exact than `builtin`; English only; needs a download."""

    name: ClassVar[str] = "neural"
    attributes = ATTRIBUTES
    latin_only = True
    longest = MAX_CHARS

    def __init__(self) -> None:
        self.version = weights.about()["version"]
        self._lock = threading.Lock()
        self._network: Network | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if not (find_spec("onnxruntime") and find_spec("tokenizers")):
            return str(MissingExtraError("The scorer neural", "toxicity"))
        if weights.installed() is None:
            return "The weights of the scorer neural are not downloaded yet: run `evenhand models pull neural`."
        return None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        return await asyncio.to_thread(self.score_texts, texts)

    def score_texts(self, texts: Sequence[str]) -> list[Scores | Unscored]:
        """Score texts without an event loop."""
        with self._lock:
            if self._network is None:
                self._network = Network()
        return [self._score(self._network, text) for text in texts]

    def _score(self, network: Network, text: str) -> Scores | Unscored:
        plain = plain_text(text)
        if isinstance(plain, Unscored):
            return plain
        logits = pooled(np.array([network.logits(window) for window in windows(plain)], np.float64))
        scores = (1 + np.tanh(logits / 2)) / 2  # the logistic function, without overflow
        return dict(zip(ATTRIBUTES, scores.round(DECIMALS).tolist(), strict=True))

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": weights.digest()}


def pooled(logits: Logits) -> Logits:
    """Return the logits of a text from those of its windows.

    It is the logarithm of a mean of exponentials: a toxic window counts more than the others, and harmless ones lower
    the score, so that a text does not become toxic by being long.
    """
    highest = logits.max(0)
    return highest + np.log(np.exp(SHARPNESS * (logits - highest)).mean(0)) / SHARPNESS


class Network:
    """The tokenizer and the network, ready to run; safe to use from several threads."""

    def __init__(self) -> None:
        runtime: Any = import_module("onnxruntime")
        tokenizers: Any = import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(weights.tokenizer_file()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        options = runtime.SessionOptions()
        # Windows are too small to share among cores; texts of several batches run in parallel.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        file = network(weights.network_weights(), HEADS, weights.about()["activation"])
        self._session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def logits(self, window: str) -> Logits:
        ids = np.array(self._tokenizer.encode(window).ids, np.int64)
        return self._session.run(None, {"ids": ids})[0][0]
