"""The SearchProvider interface and the registry of providers.

A provider is named by a spec: `wikipedia`, or with an argument after a colon, `wikipedia:de` or `corpus:FOLDER`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from evenhand.core.errors import DataError, UsageError
from evenhand.core.registry import Registry
from evenhand.core.specs import spec_parts


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search; all its texts are untrusted."""

    title: str
    url: str
    snippet: str = ""
    text: str = ""
    """The text of the page, if it is known."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one query, with provider and time."""

    query: str
    provider: str
    time: str
    """UTC, as in 2026-01-31T12:00:00Z."""
    hits: tuple[Hit, ...]


class Finder(Protocol):
    """What agents search with: a provider with page reading and a cache."""

    @property
    def spec(self) -> str: ...

    async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
        """Return the best hits, the first `pages` of them with page texts; raise SearchError on failure."""
        ...


class SearchProvider(ABC):
    """Answers queries: `await provider.search(query, limit)`; safe to call concurrently.

    The first line of a provider's docstring is what `evenhand data search --list` prints about it.
    """

    name: ClassVar[str]
    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "nothing"
    """Whether its spec takes no argument after the colon, an optional one, or a required one."""
    web: ClassVar[bool] = False
    """Whether its hits are web pages whose texts must be fetched."""
    argument: str | None = None

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this provider cannot be used here and how to fix that; None if it can be used."""
        return None

    @abstractmethod
    async def search(self, query: str, limit: int) -> SearchResult:
        """Return at most `limit` hits, best first, or none; raise SearchError if the search fails."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what identifies the source beyond its name (a hash of a corpus, …)."""
        return {"search": self.spec}

    async def aclose(self) -> None:
        """Release connections and files."""

    def result(self, query: str, hits: Sequence[Hit]) -> SearchResult:
        """Return the hits as a result with the current time."""
        return SearchResult(query, self.spec, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), tuple(hits))


SEARCHES: Registry[type[SearchProvider]] = Registry("search provider", package="evenhand.search")


def check_spec(spec: str) -> tuple[Any, str]:
    """Return the provider's class and its argument; raise UsageError for an invalid spec."""
    name, argument = spec_parts(spec)
    factory: Any = SEARCHES.get(name)
    if reason := factory.unavailable():
        raise UsageError(reason)
    if factory.takes == "nothing" and argument:
        raise UsageError(f"The search provider {name} takes no argument; remove {':' + argument!r}.")
    if factory.takes == "needed" and not argument:
        raise UsageError(f"The search provider {name} needs an argument: {name}:….")
    return factory, argument


def load_provider(spec: str) -> SearchProvider:
    """Load the provider named by `spec`; raise an error for anything wrong that shows without a search."""
    factory, argument = check_spec(spec)
    return factory() if factory.takes == "nothing" else factory(argument or None)


def text_field(row: dict[str, Any], name: str, path: Path | str | None, number: int | None) -> str:
    """Return a text field of a row, "" if it is missing or null; raise DataError if it is not a text."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"the field {name!r} is not text.", file=path, line=number)
    return value
