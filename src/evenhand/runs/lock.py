"""One process per run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from evenhand.core import files
from evenhand.core.errors import PlanError, StoreError

LOCK_NAME = "lock"


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock. The operating system releases it if the process dies."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(directory / LOCK_NAME))
        except BlockingIOError as error:
            message = f"Another process is running in {directory}; wait for it or choose another --out."
            raise PlanError(message) from error
        except OSError as error:
            raise StoreError(f"The run directory {directory} cannot be used: {error}.") from error
        yield


def is_locked(directory: Path) -> bool:
    """Whether a process is running in the directory."""
    return files.is_locked(directory / LOCK_NAME)
