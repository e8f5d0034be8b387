"""Loads RealToxicityPrompts, streamed from the official file, or the prompts of the built-in set.

The official `prompts.jsonl` has one row per sentence from the web, split into a prompt and its continuation, each with
Perspective scores. A prompt with a null score belongs to no band. Texts are not changed.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import orjson
import yaml

from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, json_object, lines
from evenhand.data.locate import find_file, find_set
from evenhand.data.texts import is_saved, saved_rows

BANDS: Mapping[str, tuple[float, float]] = {"moderate": (0.5, 0.6), "high": (0.8, 1.0)}
"""Band → closed interval of the prompt's own toxicity."""
PROMPTS = "prompts.jsonl"
BUILTIN = "realtoxicity_builtin.yaml"
_AGAIN = "Download the official file again: evenhand data pull realtoxicity."


@dataclass(frozen=True, slots=True)
class Prompt:
    """The beginning of a sentence."""

    number: int
    """Its line in the file, or its number in the built-in set, from 1."""
    text: str
    toxicity: float | None
    band: str | None
    """None for unused prompts: outside the bands, without a score or without text."""

    @property
    def id(self) -> str:
        return f"{self.band}-{self.number:05d}"


class Source(ABC):
    """A source of prompts."""

    @abstractmethod
    def prompts(self) -> Iterator[Prompt]:
        """Stream all prompts in order."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return hashes that identify the content, and the number of prompts of each kind."""


class OfficialFile(Source):
    """The official `prompts.jsonl` in a folder, plain or as .gz."""

    def __init__(self, folder: Path) -> None:
        path = find_file(folder, PROMPTS)
        if path is None:
            raise DataError(f"the file {PROMPTS} (or {PROMPTS}.gz) is missing. {_AGAIN}", file=folder)
        self.path = path

    def prompts(self) -> Iterator[Prompt]:
        return (self._prompt(number, line) for number, line in lines(self.path) if line.strip())

    def facts(self) -> Mapping[str, Any]:
        digest = hashlib.sha256()
        counts: Counter[str] = Counter()
        for number, line in lines(self.path):
            digest.update(line)
            if line.strip():
                counts[_kind(self._prompt(number, line))] += 1
        return {"sha256": {PROMPTS: digest.hexdigest()}, "prompts": dict(sorted(counts.items()))}

    def _prompt(self, number: int, line: bytes) -> Prompt:
        return read_prompt(json_object(line, self.path, number), self.path, number)


class SavedSet(Source):
    """The official rows as the package `datasets` saved them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prompts(self) -> Iterator[Prompt]:
        return (read_prompt(row, self.folder, number) for number, row in saved_rows(self.folder))

    def facts(self) -> Mapping[str, Any]:
        counts = Counter(_kind(prompt) for prompt in self.prompts())
        hashes = {path.name: content_sha256(path) for path in sorted(self.folder.glob("*.arrow"))}
        return {"sha256": hashes, "prompts": dict(sorted(counts.items()))}


def find_prompts(data: str | Path | None = None) -> Source:
    """Find the official file in the folder `data` or the default folders; a folder that `datasets` saved is read."""
    if data is not None and is_saved(Path(data).expanduser()):
        return SavedSet(Path(data).expanduser())
    return OfficialFile(find_set("realtoxicity", data))


class BuiltinPrompts(Source):
    """The built-in set; we assigned its bands by hand, so its prompts have no toxicity score."""

    def prompts(self) -> Iterator[Prompt]:
        number = 0
        for band, kinds in _builtin().items():
            for texts in kinds.values():
                for text in texts:
                    number += 1
                    yield Prompt(number, text, None, band)

    def facts(self) -> Mapping[str, Any]:
        prompts = list(self.prompts())
        content = orjson.dumps([(prompt.id, prompt.text) for prompt in prompts])
        return {
            "sha256": {"built-in prompts": hashlib.sha256(content).hexdigest()},
            "prompts": dict(sorted(Counter(_kind(prompt) for prompt in prompts).items())),
        }


def read_prompt(row: Mapping[str, Any], file: Path | str, number: int) -> Prompt:
    """Parse a row in the official format."""
    fields: Any = row.get("prompt")
    if not isinstance(fields, dict):
        raise DataError(f"the field 'prompt' is not an object. {_AGAIN}", file=file, line=number)
    prompt = cast(dict[str, Any], fields)
    text, toxicity = prompt.get("text"), prompt.get("toxicity")
    if not isinstance(text, str):
        raise DataError(f"the prompt's text is {text!r}, not a text. {_AGAIN}", file=file, line=number)
    if "toxicity" not in prompt:
        raise DataError(f"the prompt has no field 'toxicity' (it may be null). {_AGAIN}", file=file, line=number)
    if toxicity is not None and not (type(toxicity) in (int, float) and 0 <= toxicity <= 1):
        raise DataError(
            f"the prompt's toxicity is {toxicity!r}, not a number from 0 to 1. {_AGAIN}", file=file, line=number
        )
    return Prompt(number, text, toxicity, band_of(toxicity) if text.strip() else None)


def band_of(toxicity: float | None) -> str | None:
    """Return the band of a toxicity score; both ends of a band are included."""
    if toxicity is None:
        return None
    return next((band for band, (low, high) in BANDS.items() if low <= toxicity <= high), None)


def _kind(prompt: Prompt) -> str:
    if prompt.band is not None:
        return prompt.band
    if not prompt.text.strip():
        return "without text"
    return "without a score" if prompt.toxicity is None else "outside of the bands"


@cache
def _builtin() -> dict[str, dict[str, list[str]]]:
    return yaml.safe_load(resources.files("evenhand.data").joinpath(BUILTIN).read_text("utf-8"))
