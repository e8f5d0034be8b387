"""What a page may start: models, benchmarks and methods that are configured or installed already.

A page never names a file, an address or code; a file that it uploads is kept under its hash. Models are those of the
config files (by a provider's name, a price or the judge), weights that were pulled, and OpenAI's where the environment
has a key or an address for them.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import closing
from pathlib import Path

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.config import read_config
from evenhand.core.errors import UsageError
from evenhand.core.files import write_bytes
from evenhand.core.registry import is_file
from evenhand.core.specs import model_spec
from evenhand.methods.base import METHODS
from evenhand.models import weights
from evenhand.models.base import split_spec
from evenhand.models.budget import Limits
from evenhand.runs.stored import StoredRun
from evenhand.runs.trust import code_in

_BY_PATH = frozenset({"call", "local", "hf", "ray"})
"""Kinds of providers whose names are code or files: only specs that a config file names as a whole are offered."""
_NAME = re.compile(r"[A-Za-z0-9][\w.:@+-]{0,99}(/[A-Za-z0-9][\w.:@+-]{0,99}){0,3}", re.ASCII)
_UPLOADS = ".uploads"
_UPLOADED = re.compile(r"[0-9a-f]{16}\.(csv|jsonl|txt|xlsx|parquet|yaml|yml)")


def keep_upload(folder: Path, name: str, content: bytes) -> str:
    """Keep an uploaded file under the folder of runs; return the name by which pages know it."""
    kept = f"{hashlib.sha256(content).hexdigest()[:16]}{Path(name).suffix.lower()}"
    if not _UPLOADED.fullmatch(kept):
        raise UsageError(f"{name} cannot be read; upload a .csv, .jsonl, .txt, .xlsx, .parquet or .yaml file.")
    (folder / _UPLOADS).mkdir(exist_ok=True)
    write_bytes(folder / _UPLOADS / kept, content)
    return kept


def uploaded(folder: Path, kept: str) -> Path:
    """The file that was uploaded and kept under this name."""
    path = folder / _UPLOADS / kept
    if not _UPLOADED.fullmatch(kept) or not path.is_file():
        raise UsageError("The uploaded file is not here any more; upload it again.")
    return path


def own_groups(text: str) -> dict[str, list[str]]:
    """Read groups in the user's own words: a line 'attribute: words, words' for each attribute."""
    found: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, words = line.partition(":")
        groups = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
        if not name.strip() or len(groups) < 2:
            raise UsageError(f"Write groups as 'seniority: beginner, veteran', two or more on a line; not {line!r}.")
        found[name.strip()] = groups
    return found


def prepare() -> None:
    """Import all benchmarks and methods, so that no page waits for it."""
    BENCHMARKS.names()
    METHODS.names()


def offered_models() -> list[str]:
    config = read_config()
    found = [f"local/{name}" for name in weights.RECOMMENDED if weights.installed(name)]
    found += [*(f"http/{name}" for name in config.http), *config.prices, *([config.judge] if config.judge else [])]
    return list(dict.fromkeys(spec for spec in found if kind_of(spec) != "call" and "?" not in spec))


def offered_providers() -> list[str]:
    """Return the providers whose models can be chosen by name."""
    config = read_config()
    found = [name for name, provider in config.providers.items() if provider.kind not in _BY_PATH]
    if "openai" not in found and (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        found.append("openai")
    return sorted(found)


def check_model(spec: str) -> str:
    """Return the spec if it is offered; raises UsageError otherwise."""
    if spec in offered_models():
        return spec
    provider, _, name = spec.partition("/")
    if provider in offered_providers() and _NAME.fullmatch(name):
        return spec
    raise UsageError(
        f"The model {spec!r} is not configured. Choose one of the list, or PROVIDER/NAME with a provider of "
        "evenhand.toml; files, addresses and code are not taken from a page."
    )


def check_benchmark(name: str) -> str:
    if is_file(name) or name not in BENCHMARKS.names():
        raise UsageError(f"There is no benchmark {name!r} here; choose one of the list.")
    return name


def check_methods(names: list[str], benchmark: str) -> list[str]:
    """Return the methods if all are installed and serve the benchmark."""
    kind = BENCHMARKS.get(benchmark).kind
    if not names:
        raise UsageError("Choose at least one method.")
    for name in names:
        if is_file(name) or name not in METHODS.names():
            raise UsageError(f"There is no method {name!r} here; choose one of the list.")
        if kind not in METHODS.get(name).kinds:
            able = ", ".join(each for each in METHODS.names() if kind in METHODS.get(each).kinds)
            raise UsageError(f"The method {name} does not serve {benchmark}. These do: {able}.")
    return names


def check_budget(text: str) -> list[str]:
    """Return a budget as the command line takes it; it is required."""
    texts = [part.strip() for part in re.split(r"[,;]", text) if part.strip()]
    if not texts or Limits.parse(texts) == Limits():
        raise UsageError("Give a budget, e.g. '$1', '500 calls' or '200k tokens'.")
    return texts


def check_resume(directory: Path) -> None:
    """Refuse to go on, from a page, with a run that names code, or would do what this machine does not know."""
    run = StoredRun.open(directory)
    with closing(run.store):
        stored = run.store.get("plan")
        if code_in(stored) or stored.get("templates"):
            raise UsageError("This run names files; go on with it in a terminal: evenhand resume RUN.")
        run.acting()


def kind_of(spec: str) -> str:
    """Return the registered provider behind a spec."""
    name = split_spec(model_spec(spec)[0])[0]
    provider = read_config().providers.get(name)
    return provider.kind if provider else name
