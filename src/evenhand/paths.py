"""Where Evenhand keeps what it fetches; models and data share this rule without importing each other."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """EVENHAND_CACHE, else evenhand in XDG_CACHE_HOME, else ~/.cache/evenhand; not created here."""
    named = os.environ.get("EVENHAND_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "evenhand"
