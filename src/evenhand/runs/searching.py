"""The search providers of a run: loaded once, shared by all samples, and stored with their fingerprints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.options import Options

if TYPE_CHECKING:
    from evenhand.search.searcher import Searcher

OPTIONS = ("search", "provider")
"""Options of methods that name a search."""
FILE_NAME = "searches.sqlite"
"""Of what was found, beside the cache of responses."""


class SearchPool:
    """Searches by spec; `responses` is the cache of responses, or None where nothing is to be remembered."""

    def __init__(self, responses: Path | None) -> None:
        self._cache = responses.with_name(FILE_NAME) if responses else None
        self._searches: dict[str, Searcher] = {}

    def get(self, spec: str) -> Searcher:
        """Return the search named by `spec`; load it on first use."""
        from evenhand.search.searcher import load_search

        if spec not in self._searches:
            self._searches[spec] = load_search(spec, self._cache)
        return self._searches[spec]

    def load_for(self, options: Options) -> None:
        """Load the searches that a method's options name, so that mistakes are reported before the first call."""
        for name in OPTIONS:
            if spec := getattr(options, name, None):
                self.get(str(spec))

    def fingerprints(self) -> dict[str, Mapping[str, Any]]:
        """Return the fingerprints of the searches, by spec."""
        return {spec: dict(search.fingerprint()) for spec, search in sorted(self._searches.items())}

    def caveats(self) -> list[str]:
        return [caveat for search in self._searches.values() for caveat in search.caveats()]

    async def aclose(self) -> None:
        await asyncio.gather(*(search.aclose() for search in self._searches.values()), return_exceptions=True)
