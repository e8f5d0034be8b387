"""The built-in scorers: two small networks over hashed words. They work offline, need only numpy, and are fast.

A word's embedding is the table row of its hash plus the mean of the rows of its hashed character n-grams. One
convolution over three words follows; its maximum and its attention-weighted mean give seven calibrated scores.
`tools/train_scorer` trains them; docs/results/scorer-card.md describes the training data and the accuracy.
No readable word is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import threading
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import DataError
from evenhand.core.language import unsupported
from evenhand.core.types import Unscored
from evenhand.core.untrusted import without_entities
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores
from evenhand.scorers.identity import bounded, without_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ARTEFACTS = Path(__file__).parent / "artefacts"
WINDOW, STRIDE = 48, 32
"""Texts of more than WINDOW words are scored in overlapping windows."""
LENGTH_BOUND = 0.8
"""How much the length of a text may lower a logit."""
DECIMALS = 4
"""Scores are rounded, so that the order of floating-point additions (machine) does not matter. Computation is in
double precision, since in single precision some differences would survive the rounding."""

LANGUAGES = ("en",)
READING = "4"
"""Raised when scores change and the weights do not."""

_SHOWN = 1_000  # characters of an unscored text that are kept with the reason
_KEPT = 16_384  # words whose vectors are cached between passes, 3 KB each
_LONGEST = 40  # characters of a word that count
_TOGETHER = 48  # windows in one pass: their vectors fit a cache
_END = ""  # stands after each part of a pass; its vectors are zero
_IN_THREAD = 5_000  # characters from which a batch would block the event loop

_SPACED = re.compile(r"(?<![a-z])[a-z](?:[ .*_-][a-z]){3,}(?![a-z])")
_APART = re.compile(r"[ .*_-][a-z][ .*_-][a-z][ .*_-]")  # in all that _SPACED finds, and much quicker
_CLITIC = re.compile(r"(n't|'(?:s|m|d|re|ve|ll))(?![a-z])")
_TOKEN = re.compile(
    r"n't(?![a-z])|'(?:s|m|d|re|ve|ll)(?![a-z])"
    # A word, perhaps with replaced letters; a leading "@" is a mention. The bound keeps long rows of symbols fast.
    r"|[0-9$*]{0,40}[a-z][a-z0-9@$*]*"
    r"|[0-9]+|[^\sa-z0-9]"
)
_STRETCHED = re.compile(r"([a-z])\1{2,}")
_TRIPLES = tuple(3 * letter for letter in "abcdefghijklmnopqrstuvwxyz")
_LETTER = re.compile(r"[a-z]")
_DISGUISING = re.compile(r"[0-9@$*]")
# Letters of two scripts in one word, forms such as full-width ones, signs within a word, letters thrice, letters apart.
_DISGUISE = re.compile(
    r"[A-Za-z][Ͱ-ӿ]|[Ͱ-ӿ][A-Za-z]|[\uff21-\uff5a\U0001d400-\U0001d7ff]|[A-Za-z][0-9@$*]+[A-Za-z]"
    r"|([A-Za-z])\1\1|\b[A-Za-z](?:[ .*_-][A-Za-z]){3}"
)
_LEET = str.maketrans("013457@$", "oieastas")
_LOOKALIKES = str.maketrans("аеорсухіѕјк" + "οανερτικ" + "’‘ʼ`", "aeopcyxisjk" + "oaveptik" + "''''")


class BuiltinScorer(Scorer):
    """Perspective's seven attributes, learned from its scores on RealToxicityPrompts; English only."""

    name: ClassVar[str] = "builtin"
    attributes = ATTRIBUTES
    languages = LANGUAGES
    latin_only = True
    most: ClassVar[float] = 0.75
    """How much the names of groups may add to the logit of toxicity; `tools/train_scorer/groups.py` compares others."""

    def __init__(self, artefact: str | Path | None = None) -> None:
        self.path = Path(artefact) if artefact else ARTEFACTS / f"{self.name}.npz"
        self._network = _load(self.path)
        self.version = f"{self._network.version}.{READING}"
        self.limits = self._network.limits

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        if sum(map(len, texts)) < _IN_THREAD:
            return self.score_texts(texts)
        return await asyncio.to_thread(self.score_texts, texts)

    def score_texts(self, texts: Sequence[str]) -> list[Scores | Unscored]:
        """Score texts without an event loop."""
        found = [words_of(text) for text in texts]
        read = [words for words in found if not isinstance(words, Unscored)]
        named = {place: instead for place, words in enumerate(read) if (instead := without_groups(words)) is not None}
        logits = self._network.logits([*read, *named.values()])
        for place, anybody in zip(named, logits[len(read) :], strict=True):
            logits[place] = bounded(logits[place], anybody, self.most)
        scores = (1 + np.tanh(logits / 2)) / 2  # the logistic function, without overflow
        rows = iter(scores.round(DECIMALS).tolist())
        names = self._network.attributes
        return [words if isinstance(words, Unscored) else dict(zip(names, next(rows), strict=True)) for words in found]

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "artefact": self._network.digest}


class BuiltinScorerB(BuiltinScorer):
    """For judging methods that use `builtin` as feedback: other half of the data, other vectors, other n-grams."""

    name: ClassVar[str] = "builtin_b"
    most: ClassVar[float] = 1.0


SCORERS.register(BuiltinScorer.name)(BuiltinScorer)
SCORERS.register(BuiltinScorerB.name)(BuiltinScorerB)


def limits_of(about: Mapping[str, Any]) -> Mapping[str, Mapping[int, float]]:
    """Return the limits that are stored with the weights of a scorer."""
    stored: Mapping[str, Mapping[str, float]] = about.get("limits", {})
    return {name: {int(percent): value for percent, value in each.items()} for name, each in stored.items()}


def words_of(text: str) -> list[str] | Unscored:
    """Split a text into words and symbols, with obfuscated words restored; Unscored if it cannot be scored.

    Its language is told after that, too, since a disguise looks like another language.
    """
    if not text.strip():
        return _unscored("empty text", text)
    plain = without_entities(text) if "&" in text else text
    foreign = unsupported(plain, LANGUAGES)
    plain = plain.lower()
    if not plain.isascii():
        plain = without_marks(plain).translate(_LOOKALIKES)
    if "'" in plain:
        plain = _CLITIC.sub(r" \1", plain)
    if not _LETTER.search(plain):
        return _unscored(foreign or "no words", text)
    if _APART.search(plain):
        plain = _SPACED.sub(lambda match: "".join(_LETTER.findall(match[0])), plain)
    words: list[str] = _TOKEN.findall(plain)
    if _DISGUISING.search(plain):
        words = [word if len(word) == 1 or word.isalpha() else _undisguised(word) for word in words]
    if any(map(plain.__contains__, _TRIPLES)):
        words = [word if len(set(word)) == 1 else _STRETCHED.sub(r"\1", word) for word in words]
    if foreign and not _is_disguised_english(text, words):
        return _unscored(foreign, text)
    return words


def _is_disguised_english(text: str, words: list[str]) -> bool:
    """Return whether a text that looks foreign is English without its disguise.

    Only signs that occur in no ordinary text count as one; accents do not.
    """
    shown = text[:_SHOWN]
    if not (_DISGUISE.search(shown) or any(unicodedata.category(sign) == "Cf" for sign in shown)):
        return False
    return unsupported(" ".join(words[:_SHOWN]), LANGUAGES) is None


def without_marks(text: str) -> str:
    """Normalise compatibility forms and remove accents and invisible characters."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in decomposed if unicodedata.category(sign) not in ("Mn", "Cf")).lower()


def _unscored(reason: str, text: str) -> Unscored:
    """Return the reason with the start of the text, escaped so that it can be stored."""
    return Unscored(reason, text[:_SHOWN].encode("utf-8", "backslashreplace").decode())


def _undisguised(word: str) -> str:
    """Replace digits and symbols used as letters; keep asterisks that censor letters."""
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
    """Yield the whole text, or overlapping windows of a long one."""
    if len(words) <= WINDOW:
        yield words
        return
    for start in range(0, len(words) - WINDOW + STRIDE, STRIDE):
        yield words[start : start + WINDOW]


def highest(logits: Floats, scale: Floats | float) -> Floats:
    """Return the logits of a text from those of its parts: the highest of each, less at most LENGTH_BOUND.

    The highest of n clean parts grows by about scale × log n. That is taken away up to a bound, so that a toxic
    sentence counts in a text of any length.
    """
    return logits.max(0) - np.minimum(scale * np.log(len(logits)), LENGTH_BOUND)


def fingerprint(word: str, seed: int) -> int:
    """Return the 32-bit hash of a word, its key in the table."""
    return zlib.crc32(word[:_LONGEST].encode("utf-8", "surrogatepass"), seed)


def gram_hashes(word: str, seed: int, shortest: int, longest: int, buckets: int) -> list[int]:
    """Return the hash buckets of a word's character n-grams, with both ends of the word marked."""
    data = f"<{word[:_LONGEST]}>".encode("utf-8", "surrogatepass")
    return [
        zlib.crc32(data[start : start + size], seed) % buckets
        for size in range(shortest, longest + 1)
        for start in range(max(len(data) - size, 0) + 1)
    ]


class _Network:
    """The learned arrays and the forward pass over them."""

    def __init__(self, content: bytes) -> None:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(bytes(arrays["about"]))
            self._keys: NDArray[np.uint32] = arrays["keys"]
            self._words: NDArray[np.int8] = arrays["words"]
            self._grams: NDArray[np.int8] = arrays["grams"]
            self._word_scale: Floats = arrays["word_scale"].astype(np.float64)
            self._gram_scale: Floats = arrays["gram_scale"].astype(np.float64)
            kernel: Floats = arrays["kernel"].astype(np.float64)
            self._bias: Floats = arrays["bias"].astype(np.float64)
            self._attention: Floats = arrays["attention"].astype(np.float64)
            self._out: Floats = arrays["out"].astype(np.float64)
            self._out_bias: Floats = arrays["out_bias"].astype(np.float64)
            self._scale: Floats = arrays["scale"].astype(np.float64)
        self.version = str(about["version"])
        self.attributes = tuple(map(str, about["attributes"]))
        self.limits = limits_of(about)
        self.digest = hashlib.sha256(content).hexdigest()[:16]
        self._seed, self._shortest, self._longest = (int(about[key]) for key in ("seed", "shortest", "longest"))
        # The convolution is a sum of three products, one for each place of a word among three words; they are cached
        # by word, since most words of a text have been seen before.
        self._kernels: Floats = kernel.reshape(3, -1, kernel.shape[1])
        self._kept: dict[str, int] = {_END: 0}
        self._products: Floats = np.zeros((3, _KEPT, kernel.shape[1]))
        self._lock = threading.Lock()

    def logits(self, texts: Sequence[list[str]]) -> Floats:
        """Return one logit per text and attribute, that of the highest window less what their number explains."""
        parts = [list(windows(words)) for words in texts]
        flat = [window for each in parts for window in each]
        pooled = [self._pooled(flat[start : start + _TOGETHER]) for start in range(0, len(flat) or 1, _TOGETHER)]
        rows = np.concatenate(pooled) @ self._out + self._out_bias
        if len(rows) == len(texts):
            return rows
        return np.array([highest(each, self._scale) for each in np.split(rows, np.cumsum([*map(len, parts)])[:-1])])

    def _pooled(self, parts: Sequence[list[str]]) -> Floats:
        """Return the maximum and the attention-weighted mean of each part, all of them in one pass."""
        words = [word for part in parts for word in (*part, _END)]  # so that no part sees the words of the next
        with self._lock:
            rows = self._rows(words)
            before, own, after = self._products
            hidden: Floats = own.take(rows, 0)
            hidden[1:] += before.take(rows[:-1], 0)
            hidden[:-1] += after.take(rows[1:], 0)
        np.maximum(hidden, 0, out=hidden)
        attention = hidden @ self._attention
        size = len(self._attention)
        pooled: Floats = np.empty((len(parts), 2 * size))
        start = 0
        for part, row in zip(parts, pooled, strict=True):
            inside = slice(start, start + len(part))
            weight = np.exp(attention[inside] - np.maximum.reduce(attention[inside]))
            np.maximum.reduce(hidden[inside], 0, out=row[:size])
            np.divide(weight @ hidden[inside], np.add.reduce(weight), out=row[size:])
            start += len(part) + 1
        return pooled

    def _rows(self, words: list[str]) -> Ints:
        """Return the cache row of each word; the products of new words are computed first."""
        try:
            return self._kept_rows(words)
        except KeyError:
            self._keep(words)
            return self._kept_rows(words)

    def _kept_rows(self, words: list[str]) -> Ints:
        return np.fromiter(map(self._kept.__getitem__, words), np.int64, len(words))

    def _keep(self, words: list[str]) -> None:
        new = [word for word in dict.fromkeys(words) if word not in self._kept]
        if len(self._kept) + len(new) > _KEPT:
            self._kept = {_END: 0}
            new = list(dict.fromkeys(word for word in words if word != _END))
        first = len(self._kept)
        self._products[:, first : first + len(new)] = self._embed(new) @ self._kernels
        self._products[1, first : first + len(new)] += self._bias
        self._kept.update(zip(new, range(first, first + len(new)), strict=True))

    def _embed(self, words: list[str]) -> Floats:
        keys = np.array([fingerprint(word, self._seed) for word in words], np.uint32)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = (self._keys[rows] == keys)[:, None]
        buckets = len(self._grams)
        grams = [gram_hashes(word, self._seed, self._shortest, self._longest, buckets) for word in words]
        counts = np.array([len(hashes) for hashes in grams])
        total = np.add.reduceat(
            self._grams[[number for hashes in grams for number in hashes]].astype(np.float64),
            np.cumsum(counts) - counts,
        )
        return self._words[rows] * self._word_scale * known + total / counts[:, None] * self._gram_scale


@cache
def _load(path: Path) -> _Network:
    try:
        return _Network(path.read_bytes())
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except (ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        problem = "are damaged"
    raise DataError(f"The scorer's weights {problem}; install evenhand again.", file=path)
