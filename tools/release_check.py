"""Builds a release into dist/ and checks it: python tools/release_check.py [--tag v1.2.3].

1. pyproject.toml, CITATION.cff, CHANGELOG.md and the tag name the same version.
2. The wheel holds all of src/evenhand and nothing else; the sdist holds only files of the repository.
3. Wheel and sdist each install into a fresh environment and do small audits there, which need no network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
AUDITS = (
    ("audit", "fake/A", "--limit", "4"),
    ("audit", "fake/A", "--benchmark", "realtoxicity_builtin", "--method", "fair_prompt", "--limit", "2"),
)
"""Together they read prompts, built-in data, a scorer's weights, and the page's styles and scripts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default="", help="the tag that is released, such as v1.2.3")
    version = agreed_version(versions(ROOT, parser.parse_args().tag))
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    call(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    wheel, sdist = DIST / f"evenhand-{version}-py3-none-any.whl", DIST / f"evenhand-{version}.tar.gz"
    with zipfile.ZipFile(wheel) as archive:
        check_wheel(archive.namelist(), package_files(ROOT / "src"))
    with tarfile.open(sdist) as archive:
        check_sdist(archive.getnames(), call("git", "ls-files", cwd=ROOT).splitlines())
    for package in (wheel, sdist):
        with tempfile.TemporaryDirectory() as folder:
            check_installed(package, version, Path(folder))
        print(f"{package.name}: installs and works.")


def versions(root: Path, tag: str = "") -> dict[str, str]:
    """The version by every place that names it."""
    newest = re.search(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    named = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"],
        "CITATION.cff": str(yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))["version"]),
        "CHANGELOG.md": newest[1] if newest else "none",
    }
    return {**named, "the tag": tag.removeprefix("v")} if tag else named


def agreed_version(named: dict[str, str]) -> str:
    if len(set(named.values())) != 1:
        sys.exit("The versions differ: " + ", ".join(f"{place} says {version}" for place, version in named.items()))
    return named["pyproject.toml"]


def package_files(src: Path) -> set[str]:
    return {
        path.relative_to(src).as_posix()
        for path in (src / "evenhand").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_wheel(held: Iterable[str], package: set[str]) -> None:
    names = {name for name in held if not re.match(r"evenhand-[^/]+\.dist-info/", name)}
    report("The wheel lacks", package - names)
    report("The wheel holds what is not part of the package:", names - package)


def check_sdist(held: Iterable[str], tracked: Iterable[str]) -> None:
    names = {name.partition("/")[2] for name in held}
    report("The sdist holds files that are not in the repository:", names - {*tracked, "PKG-INFO"})


def report(what: str, names: set[str]) -> None:
    if names:
        sys.exit(f"{what} {', '.join(sorted(names)[:10])}")


def check_installed(package: Path, version: str, folder: Path) -> None:
    """Install the package into a new environment and use it there."""
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / "bin"
    call(binaries / "pip", "install", "--quiet", package)
    evenhand = binaries / "evenhand"
    if version not in (told := call(evenhand, "--version", cwd=folder)):
        sys.exit(f"{package.name} says that it is {told.strip()!r}, not {version}.")
    call(evenhand, "--help", cwd=folder)
    for number, audit in enumerate(AUDITS):
        call(evenhand, *audit, "--out", folder / f"run{number}", cwd=folder)
        if "</html>" not in (folder / f"run{number}" / "report.html").read_text("utf-8"):
            sys.exit(f"{package.name}: `evenhand {' '.join(audit)}` wrote no whole report.")


def call(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command outside the source tree's influence; its output, or the end where it fails."""
    words = [str(each) for each in command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nThis failed: {' '.join(words)}")
    return done.stdout


if __name__ == "__main__":
    main()
