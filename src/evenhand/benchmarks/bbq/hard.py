"""BBQ-Hard: the BBQ questions on which a reference model's first reasoning is biased, from a list of ids.

`evenhand data hard` makes the list with any model and records how it was made. Which questions are hard depends on that
model, so results on different lists are not comparable; the list's hash is part of the fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.benchmarks.bbq.benchmark import BBQForm, BBQOptions
from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import read_json, sha256
from evenhand.core.options import Text
from evenhand.data.bbq import CATEGORIES, BBQSource, BuiltinRows, OfficialFiles
from evenhand.data.sets import find_set

FORMAT = "evenhand-ids-1"
SOURCES = ("bbq", "bbq_builtin")
"""The benchmarks whose questions a list may name."""
_MAKE = "Make one with `evenhand data hard --model SPEC`."


@dataclass(frozen=True, slots=True)
class IdList:
    """The content of an id list."""

    benchmark: str
    ids: Mapping[str, frozenset[int]]
    """Question ids by category."""
    sha256: str
    """Hash of the file."""


class HardOptions(BBQOptions):
    ids: Text = Field(description=f"The list of questions: --set ids=FILE. {_MAKE}")
    data: Text | None = Field(default=None, description="The folder with the official files; searched for by default.")


@BENCHMARKS.register("bbq_hard")
class HardBBQ(BBQForm[HardOptions]):
    """The questions of BBQ that a list made by `evenhand data hard` names: --set ids=FILE."""

    Options = HardOptions

    @cached_property
    def listed(self) -> IdList:
        """The list, read on first use: grades and metrics do not need it."""
        return read_ids(Path(self.options.ids).expanduser())

    def open_source(self) -> BBQSource:
        if self.listed.benchmark != "bbq_builtin":
            return OfficialFiles(find_set("bbq", self.options.data))
        if self.options.data is not None:
            raise UsageError(f"{self.options.ids} lists questions of the built-in set. Remove --data.")
        return BuiltinRows()

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "ids_sha256": self.listed.sha256}

    @cached_property
    def _ids(self) -> Mapping[str, frozenset[int]] | None:
        return self.listed.ids


def read_ids(path: Path) -> IdList:
    """Reads an id list; raises DataError if it is invalid."""
    value: Any = read_json(path, _MAKE)
    if not isinstance(value, dict) or value.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise DataError(f"this is not a list of ids in the form {FORMAT}. {_MAKE}", file=path)
    fields = cast("dict[str, Any]", value)
    if fields.get("benchmark") not in SOURCES:
        found = fields.get("benchmark")
        raise DataError(f"the list is for the benchmark {found!r}, not for {' or '.join(SOURCES)}. {_MAKE}", file=path)
    ids = _checked(fields.get("ids"), path)
    return IdList(fields["benchmark"], ids, sha256(path))


def _checked(ids: Any, path: Path) -> dict[str, frozenset[int]]:
    if not isinstance(ids, dict):
        raise DataError(f"the list has no 'ids' by category. {_MAKE}", file=path)
    listed = cast("dict[str, Any]", ids)
    for category, numbers in listed.items():
        if category not in CATEGORIES:
            raise DataError(f"the list contains {category!r}, which is not a category of BBQ. {_MAKE}", file=path)
        if not isinstance(numbers, list) or any(type(each) is not int for each in cast("list[Any]", numbers)):
            raise DataError(f"the ids of {category} must be whole numbers. {_MAKE}", file=path)
    if not any(listed.values()):
        raise DataError("the list is empty. Make a new one with a larger --limit or a smaller --accept.", file=path)
    return {category: frozenset(numbers) for category, numbers in listed.items()}
