"""Which versions made a result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_RECORDED = ("evenhand", "aiohttp", "numpy", "xllamacpp", "transformers", "torch", "inspect-ai")


def versions() -> dict[str, str]:
    """Versions of Python and of every installed package that can change results."""
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
