"""One process per run directory."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path

from evenhand.core.errors import PlanError, StoreError

LOCK_NAME = "lock"


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock. The operating system releases it if the process dies."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system; SQLite still keeps the file whole
        directory.mkdir(parents=True, exist_ok=True)
        yield
        return
    path = directory / LOCK_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise StoreError(f"The run directory {directory} cannot be used: {error}.") from error
    taken = PlanError(f"Another process is running in {directory}; wait for it or choose another --out.")
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that stored nothing removes its directory, so this may be the lock of a deleted file.
            if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
                raise taken
        except BlockingIOError as error:
            raise taken from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                raise StoreError(f"The run directory {directory} cannot be locked: {error}.") from error
        yield
    finally:
        os.close(handle)


def is_locked(directory: Path) -> bool:
    """Whether a process is running in the directory."""
    try:
        import fcntl

        handle = os.open(directory / LOCK_NAME, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False
