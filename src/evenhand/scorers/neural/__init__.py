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

from evenhand.errors import MissingExtraError
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.builtin import DECIMALS, MAX_CHARS
from evenhand.scorers.neural import weights
from evenhand.scorers.neural.encoder import Encoder, Logits
from evenhand.scorers.neural.text import plain_text, sentences, windows
from evenhand.types import Unscored

LONGEST = 128
"""Tokens of a window that are read; a window of ordinary words has fewer."""
WINDOW_SCALE, SENTENCE_SCALE, JOINT_SCALE = 0.25, 0.35, 2.0
"""Of the pooling over windows, over sentences, and over these two results; see `pooled`.

`tools/train_scorer/neural_pooling.py` compares others."""
READING = "1"
"""Raised when parts of a text or their pooling change, since scores change too."""


@SCORERS.register("neural")
class NeuralScorer(Scorer):
    """A small transformer that reads words in context, more exact than `builtin`; English only; needs a download."""

    name: ClassVar[str] = "neural"
    attributes = ATTRIBUTES
    latin_only = True
    longest = MAX_CHARS

    def __init__(self) -> None:
        self.version = f"{weights.about()['version']}.{READING}"
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
        whole, parts = windows(plain), sentences(plain)
        rows = network.logits([*whole, *parts] if len(parts) > 1 else whole)
        logits = pooled(rows[: len(whole)], WINDOW_SCALE)
        if len(parts) > 1:  # an insult among harmless sentences may not show in the whole
            logits = pooled(np.array([logits, pooled(rows[len(whole) :], SENTENCE_SCALE)]), JOINT_SCALE)
        scores = (1 + np.tanh(logits / 2)) / 2  # the logistic function, without overflow
        return dict(zip(ATTRIBUTES, scores.round(DECIMALS).tolist(), strict=True))

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": weights.digest()}


def pooled(logits: Logits, scale: float) -> Logits:
    """Return the logits of a text from those of its parts: the log of the mean of exp(logit / scale), times the scale.

    It lies between mean (a large scale) and maximum (a small one). The maximum of n clean parts grows with log n; the
    mean takes that away, so that a text does not become toxic by being long.
    """
    highest = logits.max(0)
    return highest + scale * np.log(np.exp((logits - highest) / scale).mean(0))


class Network:
    """The tokenizer and the network, ready to run; safe to use from several threads."""

    def __init__(self) -> None:
        tokenizers: Any = import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(weights.tokenizer_file()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._encoder = Encoder(weights.network_weights(), weights.about()["activation"])

    def logits(self, pieces: Sequence[str]) -> Logits:
        """Return one row of logits per piece."""
        return self._encoder.logits([self._tokenizer.encode(piece).ids for piece in pieces])
