"""Which versions made a result, and our own."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_RECORDED = ("aiohttp", "numpy", "xllamacpp", "transformers", "torch", "inspect-ai")
_PROJECT = Path(__file__).parents[3] / "pyproject.toml"
"""Of an unpacked tree; an installed package has none there."""


def own_version() -> str:
    """Our version: of the tree that is run, or of the installed package; unknown for a copy of the source alone."""
    if _PROJECT.is_file():
        import tomllib

        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == "evenhand":
            return str(project["version"])
    try:
        return version("evenhand")
    except PackageNotFoundError:  # copied without its project file: no reason to lose a result
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of Python and of every installed package that can change results."""
    found = {"python": platform.python_version(), "evenhand": own_version()}
    for name in _RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
