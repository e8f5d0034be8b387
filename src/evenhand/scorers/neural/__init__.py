"""The scorer `neural`: two small transformers, fine-tuned from MiniLM-L6; needs the extra `toxicity` and one download.

Three layers read every part of a text; six layers read again what these do not find clean beyond doubt.
`tools/train_scorer/neural.py` trains it; docs/results/scorer-card.md describes the training data and the accuracy.
"""

from __future__ import annotations

import asyncio
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import MissingExtraError
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, SCORERS, STEREOTYPE, Scorer, Scores
from evenhand.scorers.builtin import DECIMALS, WINDOW, highest, limits_of, words_of
from evenhand.scorers.identity import bounded, without_groups
from evenhand.scorers.neural import weights

SHORTEST, LONGEST = 4, 40
"""Words of a sentence: shorter ones are joined with the next, longer ones are cut."""
OVERLAP = WINDOW - LONGEST - SHORTEST + 1
"""Words of a sentence that was cut which the next part repeats."""
MAX_TOKENS, REPEATED = 128, 16
"""Tokens that are read together, and those of them that the next reading repeats. A window of ordinary words, with its
context, has fewer; of one that has more, the highest logits count."""
SCALE = 0.25
"""Of the highest of several windows; see `highest`."""
CLEAN = -1.75
"""All layers read a part if a logit of the first reading is above it, of those in ASKED. None of 2,498 texts that all
layers score 0.5 or more was below it: learned ones, and those of the sets `calibration` and `davidson`."""
LOW = -3.0
"""The sentences of a part are read, too, if a logit of all layers is above it, of those in ASKED."""
ASKED = [0, 3, 7]
"""The places of toxicity, identity_attack and stereotype, without which a text has none of the other attributes."""
TEXTS_TOGETHER = 256
"""Texts whose pieces are read together."""
READING = "2"
"""Raised when parts of a text or their pooling change, since scores change too."""
TOKENS_TOGETHER = 256
"""Tokens that are read in one run: reading the weights once for several pieces saves time, while their states fit a
cache. Only pieces of one length share runs, so nothing is padded, and what is computed for a piece depends on the piece
alone."""

Logits = NDArray[np.float64]
Tokens = Sequence[int]

SEPARATOR = "[SEP]"
"""Stands between a context and its text."""
_APART = re.compile(r" (n't|'(?:s|m|d|re|ve|ll))(?= |$)")
_ENDS, _QUOTES = frozenset(".!?…"), frozenset('"“”')
_SKIN = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f\u200d]")


@SCORERS.register("neural")
class NeuralScorer(Scorer):
    """A small transformer that reads words in context, more exact than `builtin`; English only; needs a download."""

    name: ClassVar[str] = "neural"
    attributes = (*ATTRIBUTES, STEREOTYPE)
    latin_only = True
    # The continuation of a hateful text would be hateful by its context alone.
    reads_beginnings: ClassVar[bool] = False
    most: ClassVar[float] = 1.0
    """How much the names of groups may add to the logit of toxicity; `tools/train_scorer/groups.py` compares others."""

    def __init__(self) -> None:
        self.version = f"{weights.about()['version']}.{READING}"
        self.limits = limits_of(weights.about())
        self._lock = threading.Lock()
        self._network: Network | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if not weights.can_run():
            return str(MissingExtraError("the scorer neural", "toxicity"))
        if weights.installed() is None:
            return "The weights of the scorer neural are not downloaded yet: run `evenhand models pull neural`."
        return None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        return await asyncio.to_thread(self.score_texts, texts, contexts)

    def score_texts(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        """Score texts without an event loop."""
        with self._lock:
            if self._network is None:
                self._network = Network()
        found: list[Scores | Unscored] = []
        for start in range(0, len(texts), TEXTS_TOGETHER):
            part = slice(start, start + TEXTS_TOGETHER)
            plain = [plain_text(text) for text in texts[part]]
            if contexts is not None:
                plain = [
                    text if isinstance(text, Unscored) else _after(context, text)
                    for context, text in zip(contexts[part], plain, strict=True)
                ]
            found += _scored(self._network, self.attributes, plain, self.most)
        return found

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": weights.digest()}


def _after(context: str, text: str) -> str:
    """Return a text with the end of what it answers or continues before it."""
    before = plain_text(context) if context.strip() else ""
    if isinstance(before, Unscored) or not before:
        return text
    return f"{' '.join(before.split(' ')[-LONGEST:])} {SEPARATOR} {text}"


def _scored(
    network: Network, attributes: Sequence[str], texts: Sequence[str | Unscored], most: float
) -> Iterator[Scores | Unscored]:
    """Yield the scores of each text, by the stored slope and shift of each attribute; equal texts are read once."""
    plain = list(dict.fromkeys(text for text in texts if not isinstance(text, Unscored)))
    logits = dict(zip(plain, _read(network, plain, most), strict=True))
    slope, shift = network.calibration
    for text in texts:
        if isinstance(text, Unscored):
            yield text
        else:
            scores = (1 + np.tanh((slope * logits[text] + shift) / 2)) / 2  # the logistic function, without overflow
            yield dict(zip(attributes, scores.round(DECIMALS).tolist(), strict=True))


def _read(network: Network, texts: Sequence[str], most: float) -> list[Logits]:
    """Return the logits of texts, from those of their parts; all layers read those that are not clean beyond doubt."""
    pieces = [parts_of(text) for text in texts]
    found = network.logits_of_each(pieces, weights.FEW)
    doubtful = {
        (text, part): pieces[text][part]
        for text, rows in enumerate(found)
        for part in np.flatnonzero(rows[:, ASKED].max(1) > CLEAN).tolist()
    }
    for (text, part), row in zip(doubtful, _parts_read(network, list(doubtful.values()), most), strict=True):
        found[text][part] = row
    return [highest(rows, SCALE) for rows in found]


def _parts_read(network: Network, parts: Sequence[str], most: float) -> Logits:
    """Return the logits of parts by all layers; a part that names groups is read without them, too."""
    found = _with_sentences(network, parts)
    named = {
        part: " ".join(words)
        for part in np.flatnonzero(found[:, 0] > LOW).tolist()
        if (words := without_groups(parts[part].split(" ")))
    }
    for part, anybody in zip(named, _with_sentences(network, list(named.values())), strict=True):
        found[part, : len(ATTRIBUTES)] = bounded(found[part], anybody, most)[: len(ATTRIBUTES)]
    return found


def _with_sentences(network: Network, parts: Sequence[str]) -> Logits:
    """Return the logits of parts by all layers, from the whole and, unless that is clean, from its sentences."""
    found = network.logits(parts, weights.ALL)
    several = {part: sentences(parts[part]) for part in np.flatnonzero(found[:, ASKED].max(1) > LOW).tolist()}
    several = {part: each for part, each in several.items() if len(each) > 1}
    for part, rows in zip(several, network.logits_of_each(list(several.values()), weights.ALL), strict=True):
        found[part] = (found[part] + np.maximum(rows.max(0), found[part])) / 2
    return found


def parts_of(plain: str) -> list[str]:
    """Return the parts of a text, of at most WINDOW words, the first with its context.

    They are whole sentences; after one that had to be cut, the next part begins with its last words.
    """
    context, separator, text = plain.rpartition(f" {SEPARATOR} ")
    words = text.split(" ")
    parts: list[list[str]] = [words]
    if len(words) > WINDOW:
        parts = [[]]
        for sentence in map(str.split, sentences(text)):
            if len(parts[-1]) + len(sentence) > WINDOW:
                parts.append([] if parts[-1][-1] in _ENDS else parts[-1][-OVERLAP:])
            parts[-1] += sentence
    first, *others = (" ".join(part) for part in parts)
    return [f"{context}{separator}{first}", *others]


def plain_text(text: str) -> str | Unscored:
    """Return the text as the network reads it: words undisguised, emoji as words; Unscored if there are no words."""
    words = words_of(text if text.isascii() else _with_emoji_names(text))
    return words if isinstance(words, Unscored) else _APART.sub(r"\1", " ".join(words))


def sentences(plain: str) -> list[str]:
    """Return the sentences of a text; a quotation stays whole."""
    found: list[list[str]] = []
    words: list[str] = []
    quoted = False
    for word in plain.rpartition(f"{SEPARATOR} ")[2].split(" "):
        words.append(word)
        quoted ^= word in _QUOTES
        ends = word in _ENDS and not quoted and len(words) >= SHORTEST
        if ends or len(words) == LONGEST:
            found.append(words)
            words, quoted = [], False
    if found and len(words) < SHORTEST:
        found[-1] += words
    else:
        found.append(words)
    return [" ".join(words) for words in found]


def _with_emoji_names(text: str) -> str:
    """Name each emoji once: its name has several words, so one after each word would hide the text."""
    seen: set[str] = set()
    parts: list[str] = []
    for sign in _SKIN.sub("", text):
        if unicodedata.category(sign) == "So":
            parts.append(" " if sign in seen else f" {_name(sign)} ")
            seen.add(sign)
        else:
            parts.append(sign)
    return "".join(parts)


def _name(sign: str) -> str:
    return unicodedata.name(sign, "").lower().replace("-", " ")


class Network:
    """The tokenizer and the two networks, ready to run; safe to use from several threads."""

    def __init__(self) -> None:
        tokenizers: Any = import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(weights.tokenizer_file()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS, stride=REPEATED)
        stored = weights.network_weights()
        self.calibration: Logits = stored[weights.ALL]["calibration"]
        self._encoders = {number: Encoder(each) for number, each in stored.items()}

    def logits_of_each(self, texts: Sequence[Sequence[str]], layers: int) -> list[Logits]:
        """Return one row of logits per piece of each text, by the network of so many layers."""
        rows = self.logits([piece for pieces in texts for piece in pieces], layers)
        return np.split(rows, np.cumsum([len(pieces) for pieces in texts])[:-1]) if texts else []

    def logits(self, pieces: Sequence[str], layers: int) -> Logits:
        """Return one row of logits per piece, by the network of so many layers."""
        found = self._tokenizer.encode_batch_fast(list(pieces))
        tokens = [[part.ids for part in (each, *each.overflowing)] for each in found]
        rows = self._encoders[layers].logits([ids for parts in tokens for ids in parts])
        starts = list(accumulate(map(len, tokens[:-1]), initial=0))
        return np.maximum.reduceat(rows, starts) if len(rows) > len(pieces) else rows


class Encoder:
    """Runs a network with onnxruntime: tokens of pieces of text in, logits of the pieces out."""

    def __init__(self, stored: Mapping[str, NDArray[Any]]) -> None:
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        # Runs are too small to share among cores; texts of several batches run in parallel.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Further optimisation joins each sum and the normalisation after it into an operator that is slower.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 3
        values = {name: runtime.OrtValue.ortvalue_from_numpy(x) for name, x in weights.graph_weights(stored).items()}
        options.add_external_initializers(list(values), list(values.values()))
        graph = weights.graph_file(weights.number_of_layers(stored)).read_bytes()
        self._session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._words, self._scale, self._places = stored["words"], stored["word_scale"], stored["places"]
        self._out, self._out_bias = stored["out.weight"].T.astype(np.float64), stored["out.bias"]

    def logits(self, pieces: Sequence[Tokens]) -> Logits:
        """Return one row per piece."""
        found = np.empty((len(pieces), len(self._out_bias)))
        for run in runs([len(tokens) for tokens in pieces]):
            found[run] = self._run([pieces[place] for place in run])
        return found

    def _run(self, pieces: Sequence[Tokens]) -> Logits:
        ids = np.array(pieces)
        vectors = self._words[ids] * self._scale[ids] + self._places[: ids.shape[1]]
        states: NDArray[np.float32] = self._session.run(None, {"vectors": vectors})[0]
        return np.concatenate([states.mean(1), states.max(1)], 1) @ self._out + self._out_bias


def runs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of pieces of one length, of at most TOKENS_TOGETHER tokens together, or one piece."""
    places: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        places.setdefault(length, []).append(place)
    for length, found in places.items():
        most = max(TOKENS_TOGETHER // length, 1)
        yield from (found[start : start + most] for start in range(0, len(found), most))
