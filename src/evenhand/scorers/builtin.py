"""The built-in scorers: two small networks over hashed words, offline, numpy only, thousands of texts per second.

A word is a vector: the row of its fingerprint in a table, plus the mean of the rows of its hashed character n-grams.
Over three neighbouring words runs one layer; its maximum and its attention-weighted mean give seven calibrated scores.
Everything is learned by `tools/train_scorer`; docs/scorer-card.md says from what, and how good it is. No readable
word is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import DataError
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.types import Unscored

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

ARTEFACTS = Path(__file__).parent / "artefacts"
MAX_CHARS = 100_000
"""Of a longer text only this much is read, so that no input can take more than a second or so."""
WINDOW, STRIDE = 48, 32
"""Texts of more words are scored in overlapping windows; each attribute is the maximum over them."""
DECIMALS = 4
"""Scores are rounded, so that the order of floating-point additions (batch, machine) does not show."""

_CHUNK = 8_192  # words per pass: bounds the memory of a batch
_KEPT = 32_768  # word vectors that are kept between passes
_LONGEST = 40  # characters of a word that are looked at
_IN_THREAD = 20_000  # characters from which a batch would hold up the event loop

_SPACED = re.compile(r"(?<![a-z])[a-z](?:[ .*_-][a-z]){3,}(?![a-z])")
_CLITIC = re.compile(r"(n't|'(?:s|m|d|re|ve|ll))(?![a-z])")
_TOKEN = re.compile(
    r"n't(?![a-z])|'(?:s|m|d|re|ve|ll)(?![a-z])"
    r"|[a-z0-9$*]*[a-z][a-z0-9@$*]*"  # a word, perhaps with letters replaced; "@" in front is a mention
    r"|[0-9]+|[^\sa-z0-9]"
)
_STRETCHED = re.compile(r"([a-z])\1{2,}")
_LETTER = re.compile(r"[a-z]")
_LEET = str.maketrans("013457@$", "oieastas")
_LOOKALIKES = str.maketrans("аеорсухіѕјк" + "οανερτικ" + "’‘ʼ`", "aeopcyxisjk" + "oaveptik" + "''''")


class BuiltinScorer(Scorer):
    """Perspective's seven attributes, learned from its scores of RealToxicityPrompts; English only."""

    name: ClassVar[str] = "builtin"
    attributes = ATTRIBUTES

    def __init__(self, artefact: str | Path | None = None) -> None:
        self._network = _load(Path(artefact) if artefact else ARTEFACTS / f"{self.name}.npz")
        self.version = self._network.version

    async def score(self, texts: Sequence[str]) -> list[Scores | Unscored]:
        if sum(map(len, texts)) < _IN_THREAD:
            return self.score_texts(texts)
        return await asyncio.to_thread(self.score_texts, texts)

    def score_texts(self, texts: Sequence[str]) -> list[Scores | Unscored]:
        """The same, for callers without an event loop."""
        read = [words_of(text) for text in texts]
        rated = iter(self._network.rate([words for words in read if isinstance(words, list)]))
        return [
            words if isinstance(words, Unscored) else dict(zip(ATTRIBUTES, next(rated).tolist(), strict=True))
            for words in read
        ]

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": self._network.digest}


class BuiltinScorerB(BuiltinScorer):
    """The judge for methods that used `builtin` as feedback: other training half, other vectors, other n-grams."""

    name: ClassVar[str] = "builtin_b"


SCORERS.register(BuiltinScorer.name)(BuiltinScorer)
SCORERS.register(BuiltinScorerB.name)(BuiltinScorerB)


def words_of(text: str) -> list[str] | Unscored:
    """The words and signs of a text with disguises undone, or why it cannot be scored."""
    if not text.strip():
        return Unscored("empty text", text[:MAX_CHARS])
    plain = text[:MAX_CHARS].lower()
    if not plain.isascii():
        plain = _without_marks(plain)
        if _mostly_foreign(plain):
            return Unscored("not English: most letters are of another script", text[:MAX_CHARS])
        plain = plain.translate(_LOOKALIKES)
    if "&" in plain:
        plain = html.unescape(plain)
    if "'" in plain:
        plain = _CLITIC.sub(r" \1", plain)
    if not _LETTER.search(plain):
        return Unscored("no words", text[:MAX_CHARS])
    plain = _SPACED.sub(lambda found: "".join(_LETTER.findall(found[0])), plain)
    words = [word if word.isalpha() else _undisguised(word) for word in _TOKEN.findall(plain)]
    if _STRETCHED.search(plain):
        words = [word if len(set(word)) == 1 else _STRETCHED.sub(r"\1", word) for word in words]
    return words


def _without_marks(text: str) -> str:
    """Compatibility forms made plain, accents and invisible characters taken away."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in parts if unicodedata.category(sign) not in ("Mn", "Cf")).lower()


def _mostly_foreign(text: str) -> bool:
    letters = [sign for sign in text if sign.isalpha()]
    return sum(sign.isascii() for sign in letters) * 2 < len(letters)


def _undisguised(word: str) -> str:
    """Digits and signs that stand for letters become letters; asterisks that hide letters stay."""
    letters = sum("a" <= sign <= "z" for sign in word)
    if letters == 0:
        return word
    if "*" in word and (word[0] == "*" or letters > 3):
        word = word.strip("*")
    if letters < 3:
        return word
    tail = len(word.rstrip("0123456789"))
    return word[:tail].translate(_LEET) + word[tail:]


def windows(words: list[str]) -> Iterator[list[str]]:
    """The whole text, or overlapping pieces of a long one."""
    if len(words) <= WINDOW:
        yield words
        return
    for start in range(0, len(words) - WINDOW + STRIDE, STRIDE):
        yield words[start : start + WINDOW]


def fingerprint(word: str, seed: int) -> int:
    """32 bits that stand for a word in the table."""
    return crc32(word[:_LONGEST].encode("utf-8", "surrogatepass"), seed)


def gram_hashes(word: str, seed: int, shortest: int, longest: int, buckets: int) -> list[int]:
    """The buckets of a word's character n-grams, its two ends marked."""
    data = f"<{word[:_LONGEST]}>".encode("utf-8", "surrogatepass")
    return [
        crc32(data[start : start + size], seed) % buckets
        for size in range(shortest, longest + 1)
        for start in range(max(len(data) - size, 0) + 1)
    ]


class _Network:
    """The learned arrays and the forward pass over them."""

    def __init__(self, path: Path) -> None:
        content = _read(path)
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(bytes(arrays["about"]))
            self._keys: NDArray[np.uint32] = arrays["keys"]
            self._words: NDArray[np.int8] = arrays["words"]
            self._word_scale: Floats = arrays["word_scale"]
            self._grams: NDArray[np.int8] = arrays["grams"]
            self._gram_scale: Floats = arrays["gram_scale"]
            self._kernel: Floats = arrays["kernel"].astype(np.float32)
            self._bias: Floats = arrays["bias"]
            self._attention: Floats = arrays["attention"]
            self._out: Floats = arrays["out"].astype(np.float32)
            self._out_bias: Floats = arrays["out_bias"]
        self.version = str(about["version"])
        self.digest = hashlib.sha256(content).hexdigest()[:16]
        self._seed, self._shortest, self._longest = (int(about[key]) for key in ("seed", "shortest", "longest"))
        self._kept: dict[str, int] = {}
        self._vectors: Floats = np.zeros((_KEPT, self._words.shape[1]), np.float32)
        self._lock = threading.Lock()

    def rate(self, texts: Sequence[list[str]]) -> Floats:
        """Seven scores per text, the maximum over its windows."""
        pieces = [(number, piece) for number, words in enumerate(texts) for piece in windows(words)]
        scores = np.zeros((len(texts), len(ATTRIBUTES)), np.float32)
        for chunk in _chunks(pieces):
            numbers = np.array([number for number, _ in chunk])
            with self._lock:
                logits = self._forward([piece for _, piece in chunk])
            np.maximum.at(scores, numbers, 1 / (1 + np.exp(-logits)))
        return np.round(scores.astype(np.float64), DECIMALS)

    def _forward(self, pieces: Sequence[list[str]]) -> Floats:
        lengths = np.array([len(piece) for piece in pieces])
        starts = np.cumsum(lengths) - lengths
        # One row of zeros lies between neighbours, so that the layer never looks into another text.
        places = np.arange(lengths.sum()) + np.repeat(np.arange(len(pieces)), lengths) + 1
        rows = np.zeros((places[-1] + 2, self._words.shape[1]), np.float32)
        rows[places] = self._vectors[self._indices([word for piece in pieces for word in piece])]
        triples = np.concatenate([rows[places - 1], rows[places], rows[places + 1]], axis=1)
        hidden: Floats = np.maximum(triples @ self._kernel + self._bias, 0)
        # The attention is bounded in training, so its exponential needs no maximum taken off.
        weight = np.exp(hidden @ self._attention)[:, None]
        mean = np.add.reduceat(hidden * weight, starts) / np.add.reduceat(weight, starts)
        pooled = np.concatenate([np.maximum.reduceat(hidden, starts), mean], axis=1)
        return pooled @ self._out + self._out_bias

    def _indices(self, words: list[str]) -> Ints:
        """Where each word's vector lies; vectors of new words are made first."""
        new = [word for word in dict.fromkeys(words) if word not in self._kept]
        if len(self._kept) + len(new) > _KEPT:
            self._kept.clear()
            new = list(dict.fromkeys(words))
        if new:
            first = len(self._kept)
            self._vectors[first : first + len(new)] = self._embed(new)
            self._kept.update(zip(new, range(first, first + len(new)), strict=True))
        return np.fromiter(map(self._kept.__getitem__, words), np.int64, len(words))

    def _embed(self, words: list[str]) -> Floats:
        keys = np.array([fingerprint(word, self._seed) for word in words], np.uint32)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = (self._keys[found] == keys)[:, None]
        buckets = len(self._grams)
        grams = [gram_hashes(word, self._seed, self._shortest, self._longest, buckets) for word in words]
        counts = np.array([len(hashes) for hashes in grams])
        total = np.add.reduceat(
            self._grams[[number for hashes in grams for number in hashes]].astype(np.float32),
            np.cumsum(counts) - counts,
        )
        return self._words[found] * self._word_scale * known + total / counts[:, None] * self._gram_scale


@cache
def _load(path: Path) -> _Network:
    return _Network(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"The scorer's weights cannot be read ({error.strerror}); install evenhand again.", file=path
        ) from error


def _chunks(pieces: list[tuple[int, list[str]]]) -> Iterator[list[tuple[int, list[str]]]]:
    chunk: list[tuple[int, list[str]]] = []
    size = 0
    for piece in pieces:
        if size + len(piece[1]) > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(piece)
        size += len(piece[1])
    if chunk:
        yield chunk
