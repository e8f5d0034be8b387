"""One process per run directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from evenhand.errors import PlanError


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock; it is released by the system too when the process dies."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system; SQLite still keeps the file whole
        yield
        return
    handle = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PlanError(
                f"Another process is running in {directory}; wait for it or choose another --out."
            ) from error
        yield
    finally:
        os.close(handle)
