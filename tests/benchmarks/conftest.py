"""The official files of public sets, where this machine has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def official() -> Path:
    """The folder above `bbq/`, from EVENHAND_DATA or beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    named = os.environ.get("EVENHAND_DATA")
    places = [Path(named)] if named else [beside]
    for place in places:
        if any((place / "bbq" / name).is_file() for name in ("Age.jsonl", "Age.jsonl.gz")):
            return place
    pytest.skip(f"no official BBQ files: looked for bbq/Age.jsonl[.gz] in {places[0]} (EVENHAND_DATA)")


@pytest.fixture(scope="session")
def public(official: Path) -> Callable[[str], str]:
    """Returns the folder above a set's own, or skips the test."""

    def folder(name: str) -> str:
        if not (official / name).is_dir():
            pytest.skip(f"no folder {name} in {official} (EVENHAND_DATA)")
        return str(official)

    return folder
