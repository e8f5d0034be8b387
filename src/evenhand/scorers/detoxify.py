"""Detoxify (Unitary): transformers trained on Jigsaw's comments; needs the extra `detoxify`.

Detoxify itself downloads the weights (about 0.5 GB) when the first text is scored.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from itertools import islice
from typing import Any, ClassVar

from pydantic import Field, field_validator

from evenhand.core.errors import MissingExtraError, UsageError, check_names, needs_extra
from evenhand.core.language import unsupported
from evenhand.core.options import Options, Text
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scorer, Scores, unit

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "original": tuple(name for name in ATTRIBUTES if name != "sexually_explicit"),
    "unbiased": ATTRIBUTES,
    "multilingual": ATTRIBUTES,
}
LANGUAGES = {"multilingual": ("en", "fr", "es", "it", "pt", "tr", "ru")}
"""Of a variant that reads others than English."""
DEFAULT_VARIANT = "unbiased"
BATCH = 32
MAX_TOKENS = 512
"""More of a part would be cut off without a word."""
READING = "2"
"""Raised when parts of a text or their pooling change, since scores change too."""

_OUR_NAME = {
    "toxic": "toxicity",
    "severe_toxic": "severe_toxicity",
    "identity_hate": "identity_attack",
    "obscene": "profanity",
    "sexual_explicit": "sexually_explicit",
}


class DetoxifyOptions(Options):
    variant: Text = Field(default=DEFAULT_VARIANT, description=f"Which network: {', '.join(VARIANTS)}.")

    @field_validator("variant")
    @classmethod
    def _known(cls, variant: str) -> str:
        check_names("variant of detoxify", VARIANTS, variant)
        return variant


@SCORERS.register("detoxify")
class DetoxifyScorer(Scorer):
    """Detoxify, in this process; `unbiased` (default), `original` or `multilingual`; downloads 0.5 GB on first use.

    `unbiased` was trained not to penalise the mere mention of a group; `original` has no sexually_explicit;
    `multilingual` (1.1 GB) also reads French, Spanish, Italian, Portuguese, Turkish and Russian. A text of
    more than 512 tokens is read in overlapping parts, of which the highest scores count.
    """

    name: ClassVar[str] = "detoxify"
    Options = DetoxifyOptions
    attributes = VARIANTS[DEFAULT_VARIANT]
    latin_only = True

    def __init__(self, variant: str = DEFAULT_VARIANT) -> None:
        self.argument = variant
        self.attributes = VARIANTS[variant]
        self.languages = LANGUAGES.get(variant, self.languages)
        self.latin_only = variant not in LANGUAGES
        self.version = f"{_version()}.{READING}"
        self._lock = threading.Lock()
        self._network: Any = None

    @classmethod
    def unavailable(cls) -> str | None:
        return None if find_spec("detoxify") else str(MissingExtraError("the scorer detoxify", "detoxify"))

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        faults = [unsupported(text, self.languages) if text.strip() else "empty text" for text in texts]
        full = [text for text, fault in zip(texts, faults, strict=True) if fault is None]
        parts = await asyncio.to_thread(self._parts, full)
        read = [part for each in parts for part in each]
        scored: list[Scores | Unscored] = []
        for start in range(0, len(read), BATCH):
            scored += await asyncio.to_thread(self._predict, read[start : start + BATCH])
        rows, found = iter(scored), iter(parts)
        return [Unscored(fault) if fault else _highest(list(islice(rows, len(next(found))))) for fault in faults]

    async def aclose(self) -> None:
        self._network = None

    def _parts(self, texts: list[str]) -> list[list[str]]:
        with self._lock:  # one pass at a time: parallel passes would only share the cores
            if texts and self._network is None:
                self._network = _load(self.argument or DEFAULT_VARIANT)
            return [parts_of(text, self._fits) for text in texts]

    def _fits(self, text: str) -> bool:
        try:
            return len(self._network.tokenizer(text, verbose=False)["input_ids"]) <= MAX_TOKENS
        except Exception:  # reading it fails, too, and says why
            return True

    def _predict(self, texts: list[str]) -> list[Scores | Unscored]:
        with self._lock:
            try:
                predicted: Mapping[str, Sequence[Any]] = self._network.predict(texts)
                columns = {_OUR_NAME.get(name, name): column for name, column in predicted.items()}
                return [self._scores(columns, row) for row in range(len(texts))]
            except Exception as error:
                return [Unscored(f"detoxify failed: {type(error).__name__}: {error}")] * len(texts)

    def _scores(self, columns: Mapping[str, Sequence[Any]], row: int) -> Scores | Unscored:
        try:
            return {name: unit(name, float(columns[name][row])) for name in self.attributes}
        except ValueError as error:
            return Unscored(f"detoxify returned an invalid score: {error}")


def parts_of(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return parts that each fit, cut between words where there are any; neighbours share an eighth of what was cut."""
    if len(text) < 2 or fits(text):
        return [text]
    middle, shared = len(text) // 2, len(text) // 16
    end, start = text.find(" ", middle + shared, -1), text.rfind(" ", 1, middle - shared)
    halves = text[: end if end > 0 else middle + shared], text[start if start > 0 else middle - shared :]
    return [part for half in halves for part in parts_of(half, fits)]


def _highest(parts: Sequence[Scores | Unscored]) -> Scores | Unscored:
    """Return the highest score of the parts for each attribute; Unscored if one part is."""
    found: dict[str, float] = {}
    for each in parts:
        if isinstance(each, Unscored):
            return each
        found = {name: max(score, found.get(name, 0.0)) for name, score in each.items()}
    return found


def _load(variant: str) -> Any:
    with needs_extra("the scorer detoxify", "detoxify"):
        package: Any = import_module("detoxify")
    torch: Any = sys.modules.get("torch")  # detoxify has imported it
    device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    try:
        return package.Detoxify(variant, device=device)
    except Exception as error:
        raise UsageError(
            f"detoxify:{variant} could not load its weights ({type(error).__name__}: {error}); "
            "they are downloaded on first use, so connect to the network once, or use another scorer."
        ) from error


def _version() -> str:
    try:
        return metadata.version("detoxify")
    except metadata.PackageNotFoundError:
        return "unknown"
