"""The cache folder, shared by models and data, which do not import each other."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return EVENHAND_CACHE, XDG_CACHE_HOME/evenhand or ~/.cache/evenhand; the folder may not exist yet."""
    named = os.environ.get("EVENHAND_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "evenhand"
