"""One generic registry for everything that can be added: models, methods, benchmarks, scorers.

Entries are registered by decorator, or lazily as "module:attribute" so that nothing heavy loads at start-up;
third parties add theirs through entry points of the group `evenhand.<kind>s`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from evenhand.errors import UnknownNameError, UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names → things of one kind."""

    def __init__(self, kind: str, builtin: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, T | str | EntryPoint] = dict(builtin or {})
        self._searched_entry_points = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that adds a thing under `name`; a name is given once."""

        def add(thing: T) -> T:
            if isinstance(self._entries.get(name), str) or name not in self._entries:
                self._entries[name] = thing
                return thing
            raise UsageError(f"The {self.kind} {name!r} is registered already; choose another name.")

        return add

    def get(self, name: str) -> T:
        """The thing called `name`, imported now if it was lazy."""
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = getattr(importlib.import_module(module), attribute)
        elif isinstance(entry, EntryPoint):
            entry = entry.load()
        self._entries[name] = entry
        return entry

    def names(self) -> list[str]:
        self._load_entry_points()
        return sorted(self._entries)

    def _load_entry_points(self) -> None:
        if not self._searched_entry_points:
            self._searched_entry_points = True
            for point in entry_points(group=f"evenhand.{self.kind}s"):
                self._entries.setdefault(point.name, point)
