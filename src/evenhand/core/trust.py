"""Which stored runs were made on this machine, and which Python files of others its user has agreed to run.

A run folder may come from anyone. Its plan names addresses, environment variables with keys, paths and Python files.
So a run gets a mark, an HMAC of its plan, settings and file hashes under a key that never leaves this machine. A run
without the right mark is data: what it names is used only after consent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.files import write_bytes

_KEY_BYTES = 32


def state_folder() -> Path:
    """Return XDG_STATE_HOME/evenhand or ~/.local/state/evenhand; the folder may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".local" / "state") / "evenhand"


def mark(values: Mapping[str, Any]) -> str:
    """Return the mark of a run's plan, settings and files; empty if this machine can keep no key."""
    key = _key()
    return "" if key is None else hmac.new(key, _canonical(values), hashlib.sha256).hexdigest()


def is_own(values: Mapping[str, Any], found: Any) -> bool:
    """Return whether a mark says that these values were stored by this machine, and not changed since."""
    expected = mark(values)
    return bool(expected) and isinstance(found, str) and hmac.compare_digest(expected, found)


def trust_file(path: Path) -> None:
    """Remember that the user agreed to run this very file; a change of it needs consent again."""
    agreed = _agreed() | {str(path.resolve()): _sum(path)}
    write_bytes(state_folder() / "trusted.json", orjson.dumps(agreed, option=orjson.OPT_INDENT_2), mode=0o600)


def is_trusted(path: Path) -> bool:
    """Return whether the user has agreed to run this very file."""
    try:
        return _sum(path) in _agreed().values()
    except OSError:
        return False


def _agreed() -> dict[str, str]:
    """Return path → sha256 of the files that may be run."""
    try:
        found: Any = orjson.loads((state_folder() / "trusted.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(path): str(digest) for path, digest in found.items()} if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _key() -> bytes | None:
    """Return this machine's key, made on first use; None if it cannot be kept."""
    file = state_folder() / "key"
    try:
        if not file.is_file():
            write_bytes(file, secrets.token_bytes(_KEY_BYTES), mode=0o600)
        key = file.read_bytes()
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _canonical(values: Mapping[str, Any]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
