"""Heavy packages that are imported when they are first used: `from evenhand.core.lazy import torch`."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    """Stands for a package that may be missing; using it imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


torch: Any = _Lazy("torch")
transformers: Any = _Lazy("transformers")
peft: Any = _Lazy("peft")
