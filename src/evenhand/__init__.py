"""Evenhand measures and reduces social bias and toxicity of language models and of systems made of them.

The public API is in `__init__.pyi`; each name is imported when it is first used, so that `import evenhand` costs next
to nothing.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

_IMPORTS = re.compile(r"^from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_HOME = {
    name: module
    for module, names in _IMPORTS.findall(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    for name in re.findall(r"(\w+) as", names)
}
"""Public name → the module that it is in."""

__all__ = sorted(_HOME, key=lambda name: (not name.isupper(), not name[0].isupper(), name))  # noqa: PLE0605  # pyright: ignore


def __dir__() -> list[str]:
    """What `evenhand.<TAB>` offers: the public names, not the modules they live in."""
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
