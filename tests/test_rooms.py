"""Shared rooms know no single paper: methods and benchmarks declare what others need of them."""

import re
from pathlib import Path

import evenhand

HOUSE = Path(evenhand.__file__).parent
ROOMS = ("runs", "studies", "guards", "server", "show")
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
