"""The registry of everything that can be added: models, methods, benchmarks, scorers, search providers.

An entry registers itself by decorator. The modules of one kind live in one package and are imported on first use;
third parties add theirs through entry points of the group `evenhand.<kind>s` (e.g. `evenhand.search_providers`).
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Generic, TypeVar

from evenhand.errors import UnknownNameError, UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Name → entry of one kind; the built-in entries are the modules of `package`."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._things: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an entry under `name`; a name can be used only once."""

        def add(thing: T) -> T:
            if name in self._things:
                raise UsageError(f"The {self.kind} {name!r} is registered already; choose another name.")
            self._things[name] = thing
            return thing

        return add

    def get(self, name: str) -> T:
        """Return the entry `name`; the module of that name is tried before all others are imported."""
        if name not in self._things and name.isidentifier() and find_spec(f"{self.package}.{name}"):
            importlib.import_module(f"{self.package}.{name}")
        if name not in self._things:
            self._import_all()
        if name not in self._things:
            raise UnknownNameError(self.kind, name, self._things)
        return self._things[name]

    def names(self) -> list[str]:
        self._import_all()
        return sorted(self._things)

    def _import_all(self) -> None:
        if self._complete:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
            importlib.import_module(module.name)
        for point in entry_points(group=f"evenhand.{self.kind.replace(' ', '_')}s"):
            if point.name in self._things:
                continue
            try:
                self._things[point.name] = point.load()
            except Exception as error:
                # A broken third-party package must not break Evenhand.
                warnings.warn(f"The {self.kind} {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
        self._complete = True
