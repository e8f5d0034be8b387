"""Every benchmark that the documentation quotes exists, with its options and the names it takes."""

import re
import shlex
from pathlib import Path

import pytest

from support.docs import PAGES, ROOT

_QUOTED = re.compile(r"\bpython (bench/[^`#\n]*)")
_OPTION = re.compile(r"--?[a-z][\w-]*")
_NAMES = re.compile(r"^(?:NAMES|PARTS) = \((.*?)\)$", re.DOTALL | re.MULTILINE)
_CASE = re.compile(r'case \["([a-z]+)"')


def quoted() -> list[str]:
    pages = (*PAGES, ROOT / "bench" / "README.md")
    texts = (page.read_text(encoding="utf-8").replace("\\\n", " ") for page in pages)
    return sorted({found.strip(" ).,") for text in texts for found in _QUOTED.findall(text)})


def names_of(script: Path) -> set[str]:
    """The benchmarks, parts or steps that a script takes by name; empty if it takes other arguments."""
    text = script.read_text(encoding="utf-8")
    listed = [name for names in _NAMES.findall(text) for name in re.findall(r'"(\w+)"', names)]
    return {*listed, *_CASE.findall(text)}


@pytest.mark.parametrize("command", quoted())
def test_a_quoted_benchmark_exists_with_its_options(command: str):
    path, *words = shlex.split(command)
    script = ROOT / path

    assert script.is_file()
    own = words[: words.index("--")] if "--" in words else words  # what follows is for `evenhand`
    for option in filter(_OPTION.fullmatch, own):
        assert f'"{option}"' in script.read_text(encoding="utf-8"), f"{path} has no {option}"
    for option in filter(_OPTION.fullmatch, words[len(own) + 1 :]):
        assert f"`{option}`" in (ROOT / "docs/reference/options.md").read_text(encoding="utf-8")
    if names := names_of(script):
        given = {word for word in words if re.fullmatch(r"[a-z_]+", word)}
        assert given <= names, f"{path} takes {', '.join(sorted(names))}"


def test_the_benchmarks_are_found():
    assert len(quoted()) > 20
