"""The scorer `neural`: a small transformer, fine-tuned from MiniLM-L6; needs the extra `toxicity` and one download.

`tools/train_scorer/neural.py` trains it; docs/results/scorer-card.md describes the training data and the accuracy.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from evenhand.core.errors import MissingExtraError
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.builtin import DECIMALS, MAX_CHARS
from evenhand.scorers.identity import bounded, without_groups
from evenhand.scorers.neural import weights
from evenhand.scorers.neural.encoder import Encoder, Logits
from evenhand.scorers.neural.text import plain_text, sentences, windows

LONGEST = 128
"""Tokens of a window that are read; a window of ordinary words has fewer."""
WINDOW_SCALE, SENTENCE_SCALE, JOINT_SCALE = 0.25, 0.35, 2.0
"""Of the pooling over windows, over sentences, and over these two results; see `pooled`.

`tools/train_scorer/neural_pooling.py` compares others."""
LOW, SHORT = -2.2, 40
"""The sentences of a text of fewer than SHORT words are not read if every logit of the whole is under LOW, and names of
groups are not examined if its toxicity is."""
TOGETHER = 256
"""Texts whose pieces are read together."""
READING = "4"
"""Raised when parts of a text or their pooling change, since scores change too."""


@SCORERS.register("neural")
class NeuralScorer(Scorer):
    """A small transformer that reads words in context, more exact than `builtin`; English only; needs a download."""

    name: ClassVar[str] = "neural"
    attributes = ATTRIBUTES
    latin_only = True
    longest = MAX_CHARS
    most: ClassVar[float] = 1.0
    """How much the names of groups may add to the logit of toxicity; `tools/train_scorer/groups.py` compares others."""

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
        found: list[Scores | Unscored] = []
        for start in range(0, len(texts), TOGETHER):
            plain = [plain_text(text) for text in texts[start : start + TOGETHER]]
            found += _scored(self._network, plain, self.most)
        return found

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": weights.digest()}


def _scored(network: Network, texts: Sequence[str | Unscored], most: float) -> Iterator[Scores | Unscored]:
    """Yield the scores of each text; equal texts are read once."""
    plain = list(dict.fromkeys(text for text in texts if not isinstance(text, Unscored)))
    logits = dict(zip(plain, _read(network, plain), strict=True))
    named = {text: words for text in plain if logits[text][0] > LOW and (words := without_groups(text.split(" ")))}
    for text, anybody in zip(named, _read(network, [" ".join(words) for words in named.values()]), strict=True):
        logits[text] = bounded(logits[text], anybody, most)
    for text in texts:
        if isinstance(text, Unscored):
            yield text
        else:
            scores = (1 + np.tanh(logits[text] / 2)) / 2  # the logistic function, without overflow
            yield dict(zip(ATTRIBUTES, scores.round(DECIMALS).tolist(), strict=True))


def _read(network: Network, texts: Sequence[str]) -> list[Logits]:
    """Return the logits of texts, whose pieces are read together: all windows, then the sentences that are needed."""
    found = [pooled(rows, WINDOW_SCALE) for rows in network.logits_of_each([windows(text) for text in texts])]
    parts = {
        place: sentences(text)
        for place, text in enumerate(texts)
        if found[place].max() > LOW or text.count(" ") >= SHORT  # an insult among few words shows in the whole
    }
    several = {place: each for place, each in parts.items() if len(each) > 1}
    for place, rows in zip(several, network.logits_of_each(list(several.values())), strict=True):
        found[place] = pooled(np.array([found[place], pooled(rows, SENTENCE_SCALE)]), JOINT_SCALE)
    return found


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

    def logits_of_each(self, texts: Sequence[Sequence[str]]) -> list[Logits]:
        """Return one row of logits per piece of each text."""
        rows = self.logits([piece for pieces in texts for piece in pieces])
        return np.split(rows, np.cumsum([len(pieces) for pieces in texts])[:-1]) if texts else []

    def logits(self, pieces: Sequence[str]) -> Logits:
        """Return one row of logits per piece."""
        return self._encoder.logits([each.ids for each in self._tokenizer.encode_batch_fast(list(pieces))])
