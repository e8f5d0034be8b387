"""Copies of runs on object storage or elsewhere, by any address that fsspec knows: s3://, gs://, az://, ssh://, …

A run is copied as a snapshot of its store, so it may go on meanwhile. Folders of papers are copied with all their runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from evenhand.core.errors import PlanError, StoreError, UsageError, needs_extra
from evenhand.core.files import draft_folder, scratch
from evenhand.models.endpoints import holds_secret
from evenhand.runs.file import LOCK_NAME
from evenhand.runs.store import FILE_NAME, Store


def push(folder: Path, url: str, *, overwrite: bool = False) -> int:
    """Copy a run, or a folder with runs, to `url`; return the number of files."""
    files = sorted(_files(folder))
    if not any(path.name == FILE_NAME for path in files):
        raise PlanError(f"There is no run in {folder}.")
    with _opened(url) as (storage, root):
        if storage.exists(f"{root}/{FILE_NAME}") and not overwrite:
            raise PlanError(f"{url} holds a run already; pass --overwrite to replace it, or choose another address.")
        # The stores go last, so that what holds one is complete.
        for path in sorted(files, key=lambda each: each.name == FILE_NAME):
            target = f"{root}/{path.relative_to(folder).as_posix()}"
            storage.makedirs(target.rpartition("/")[0], exist_ok=True)
            if path.name != FILE_NAME:
                storage.put_file(str(path), target)
                continue
            with scratch() as place, closing(Store(path.parent)) as store:
                store.snapshot(place / FILE_NAME)
                storage.put_file(str(place / FILE_NAME), target)
    return len(files)


def pull(url: str, folder: Path) -> int:
    """Copy a run, or a folder with runs, from `url` into a new folder; return the number of files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PlanError(f"{folder} exists already; name a new folder.")
    with _opened(url) as (storage, root):
        names = [_inside(path, root) for path in storage.find(root)]
        if not any(PurePosixPath(name).name == FILE_NAME for name in names):
            raise PlanError(f"There is no run at {url}.")
        with draft_folder(folder) as draft:
            for name in names:
                target = draft / name
                target.parent.mkdir(parents=True, exist_ok=True)
                storage.get_file(f"{root}/{name}", str(target))
                if target.name == FILE_NAME:
                    Store(target.parent).close()  # refuses what is no run
    return len(names)


def _files(folder: Path) -> Iterator[Path]:
    """What belongs to a run: all files but locks, logs of SQLite and drafts."""
    for path in folder.rglob("*"):
        left_out = path.name == LOCK_NAME or path.name.startswith((".", f"{FILE_NAME}-")) or path.is_symlink()
        if path.is_file() and not left_out:
            yield path


def _inside(path: str, root: str) -> str:
    """The name of a file below the root; refused if it would lie elsewhere here."""
    name = path.removeprefix(root).lstrip("/")
    parts = PurePosixPath(name).parts
    if not path.startswith(root) or not parts or ".." in parts or "\\" in name or ":" in parts[0]:
        raise PlanError(f"The file {path} has a name that cannot be used here.")
    return name


@contextmanager
def _opened(url: str) -> Generator[tuple[Any, str]]:
    """The storage and the path in it; its errors become one sentence."""
    if holds_secret(url, in_path=False):
        raise UsageError("The address holds a password or key; give it in the storage's own configuration instead.")
    with needs_extra("object storage", "remote"):
        fsspec: Any = importlib.import_module("fsspec")
    try:
        storage, root = fsspec.core.url_to_fs(url)
        yield storage, str(root).rstrip("/")
    except ImportError as error:
        raise UsageError(f"{url.partition(':')[0]}:// needs another package: {error}") from error
    except (PlanError, StoreError, UsageError):
        raise
    except (OSError, ValueError) as error:
        raise UsageError(f"{url} cannot be used: {str(error).strip() or type(error).__name__}") from error
    except Exception as error:  # each storage has errors of its own
        raise UsageError(f"{url} cannot be used: {type(error).__name__}: {error}") from error
