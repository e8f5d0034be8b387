"""Shared rooms know no single paper: methods and benchmarks declare what others need of them."""

import ast
import re
from pathlib import Path

import evenhand

HOUSE = Path(evenhand.__file__).parent
ROOMS = (
    *("core", "stats", "models", "scorers", "search", "data", "asking", "reading", "evaluators", "runs", "studies"),
    *("guards", "server", "show", "web", "ui", "annotate", "evidence", "suite"),
)
KINDS = {".py", ".md", ".js", ".html"}
PAPERS = re.compile(r"stardtox|mabrf|rldf|malibu", re.IGNORECASE)


def test_no_paper_is_named_in_shared_rooms():
    files = [file for room in ROOMS for file in sorted((HOUSE / room).rglob("*")) if file.suffix in KINDS]
    named = [
        f"{file.relative_to(HOUSE)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if PAPERS.search(line)
    ]

    assert all(any(file.is_relative_to(HOUSE / room) for file in files) for room in ROOMS)
    assert not named, "\n".join(named)


def test_the_face_names_a_paper_in_examples_only():
    """Commands and functions are made of what papers declare; `malibu` is also the command of a benchmark."""
    files = [HOUSE / "api.py", *sorted((HOUSE / "cli").glob("*.py"))]
    named = [
        f"{file.name}: {word}" for file in files for word in _words(file) if re.search("stardtox|mabrf|rldf", word)
    ]

    assert not named, "\n".join(named)


def _words(file: Path) -> list[str]:
    """The names and texts of a module, without docstrings, which have examples."""
    every = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {ast.get_docstring(each, clean=False) for each in every if isinstance(each, documented)}
    texts = [each.value for each in every if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    names = [each.id for each in every if isinstance(each, ast.Name)]
    modules = [each.module or "" for each in every if isinstance(each, ast.ImportFrom)]
    return [*(text for text in texts if text not in docs), *names, *modules]
