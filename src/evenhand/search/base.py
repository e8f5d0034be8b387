"""The SearchProvider interface and the registry of providers.

A provider is named by a spec: `wikipedia`, or with an argument after a colon, `wikipedia:de` or `corpus:FOLDER`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from evenhand.errors import UsageError
from evenhand.registry import Registry
from evenhand.specs import spec_parts


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search. All of it is untrusted text."""

    title: str
    url: str
    snippet: str = ""
    text: str = ""
    """The text of the page, where it is known."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one query, and when they were found."""

    query: str
    provider: str
    time: str
    """UTC, as in 2026-01-31T12:00:00Z."""
    hits: tuple[Hit, ...]


class Finder(Protocol):
    """What agents search with: a provider with its pages read, cached."""

    @property
    def spec(self) -> str: ...

    async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
        """The best hits, the first `pages` of them with the texts of their pages; a failure is a SearchError."""
        ...


class SearchProvider(ABC):
    """Answers queries: `await provider.search(query, limit)`; safe to call concurrently.

    The first line of a provider's docstring is what `evenhand search --list` prints about it.
    """

    name: ClassVar[str]
    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "nothing"
    """Whether something may, or must, stand after the colon of its spec."""
    web: ClassVar[bool] = False
    """Whether its hits are addresses of web pages, whose texts have to be fetched."""
    argument: str | None = None

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @classmethod
    def unavailable(cls) -> str | None:
        """Why this provider cannot be used here, with the way to mend it; None when it can."""
        return None

    @abstractmethod
    async def search(self, query: str, limit: int) -> SearchResult:
        """The best hits, best first, `limit` at most; no hits is an answer, a failure is a SearchError."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What identifies the source beyond its name (a hash of a corpus, …)."""
        return {"search": self.spec}

    async def aclose(self) -> None:
        """Release connections and files."""

    def found(self, query: str, hits: Sequence[Hit]) -> SearchResult:
        """The hits, as found now."""
        return SearchResult(query, self.spec, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), tuple(hits))


SEARCHES: Registry[type[SearchProvider]] = Registry("search provider", package="evenhand.search")


def check_spec(spec: str) -> tuple[Any, str]:
    """The provider's class and its argument; a spec that cannot be right is refused."""
    name, argument = spec_parts(spec)
    factory: Any = SEARCHES.get(name)
    if reason := factory.unavailable():
        raise UsageError(reason)
    if factory.takes == "nothing" and argument:
        raise UsageError(f"The search provider {name} takes nothing after its name, not {argument!r}.")
    if factory.takes == "needed" and not argument:
        raise UsageError(f"The search provider {name} needs something after its name: {name}:….")
    return factory, argument


def load_provider(spec: str) -> SearchProvider:
    """The provider named by `spec`; what can be told to be wrong without a search is refused here."""
    factory, argument = check_spec(spec)
    return factory() if factory.takes == "nothing" else factory(argument or None)
