"""Heavy packages that are imported when they are first used: `from evenhand.core.lazy import torch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Lazy:
    """Stands for a package that may be missing; using it imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


torch: Any = _Lazy("torch")
transformers: Any = _Lazy("transformers")
peft: Any = _Lazy("peft")


def no_grad(function: Callable[P, T]) -> Callable[P, T]:
    """`torch.no_grad()` as a decorator, which imports torch only when the function is called."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        with torch.no_grad():
            return function(*args, **named)

    return call
