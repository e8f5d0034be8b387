"""Environments of client packages, each with pinned versions in a folder of its own under the cache folder."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evenhand.core.files import cache_folder

OLDEST_NODE = 20
_SECONDS = 1200


def python_with(pins: Sequence[str]) -> Path:
    """Return a Python that has these packages; skips the test where they cannot be installed."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        _run([str(_python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins], folder)

    return _python(_made(["python", sys.version, *pins], make))


def node_with(pins: Sequence[str]) -> Path:
    """Return a folder whose scripts can import these npm packages; skips the test where they cannot be installed."""
    if (npm := shutil.which("npm")) is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"the client packages need Node {OLDEST_NODE}, and this is {version}")

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        _run([npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *pins], folder)

    return _made(["node", *pins], make)


def _made(key: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return the folder for this key; makes it on first use, in one process at a time."""
    name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
    home = cache_folder() / "clients"
    home.mkdir(parents=True, exist_ok=True)
    folder, ready = home / name, home / f"{name}.ready"
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            ready.write_text("\n".join(key))
    return folder


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, check=False, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        pytest.skip(f"the client packages cannot be installed: {reason}")


def clean_environment() -> dict[str, str]:
    """The environment without the paths of this Python's own packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
