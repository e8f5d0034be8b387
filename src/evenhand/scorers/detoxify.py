"""Detoxify (Unitary): transformers trained on Jigsaw's comments; needs the extra `detoxify`.

Detoxify itself downloads the weights (about 0.5 GB) when the first text is scored.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, ClassVar

from pydantic import Field, field_validator

from evenhand.core.errors import MissingExtraError, UnknownNameError, UsageError, needs_extra
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
        if variant not in VARIANTS:
            raise UnknownNameError("variant of detoxify", variant, VARIANTS)
        return variant


@SCORERS.register("detoxify")
class DetoxifyScorer(Scorer):
    """Detoxify, in this process; `unbiased` (default), `original` or `multilingual`; downloads 0.5 GB on first use.

    `unbiased` was trained not to penalise the mere mention of a group; `original` has no sexually_explicit;
    `multilingual` (1.1 GB) also reads French, Spanish, Italian, Portuguese, Turkish and Russian. Texts are
    truncated to 512 tokens.
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
        self.version = _version()
        self._lock = threading.Lock()
        self._network: Any = None

    @classmethod
    def unavailable(cls) -> str | None:
        return None if find_spec("detoxify") else str(MissingExtraError("the scorer detoxify", "detoxify"))

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts  # only the text counts
        faults = [unsupported(text, self.languages) if text.strip() else "empty text" for text in texts]
        results: list[Scores | Unscored] = [Unscored(fault or "") for fault in faults]
        full = [index for index, fault in enumerate(faults) if fault is None]
        for start in range(0, len(full), BATCH):
            batch = full[start : start + BATCH]
            scored = await asyncio.to_thread(self._predict, [texts[index] for index in batch])
            for index, result in zip(batch, scored, strict=True):
                results[index] = result
        return results

    async def aclose(self) -> None:
        self._network = None

    def _predict(self, texts: list[str]) -> list[Scores | Unscored]:
        with self._lock:  # one pass at a time: parallel passes would only share the cores
            if self._network is None:
                self._network = _load(self.argument or DEFAULT_VARIANT)
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
