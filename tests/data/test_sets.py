"""The catalogue of public data sets: well-formed, described in the docs, and true to copies of the files."""

import os
import re
from pathlib import Path

import pytest

from evenhand.core.files import content_sha256
from evenhand.data.sets import SETS, find_file

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("EVENHAND_DATA") or ROOT.parent / "shared" / "data")
NOT_THE_OFFICIAL_BYTES = {"squad"}
"""The copy for tests was rebuilt from the authors' pages, so its bytes differ."""


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_a_licence_a_notice_and_https_addresses(name: str):
    found = SETS[name]

    assert found.name == name
    assert found.licence
    assert found.homepage in found.notice
    assert found.by_hand or found.base_url.startswith("https://")
    assert found.by_hand or found.base_url.endswith("/")
    for file in found.files:
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256), file.name


def test_the_page_on_data_says_of_each_set_how_it_was_confirmed():
    page = (ROOT / "docs/measure/data.md").read_text(encoding="utf-8")

    for name, found in SETS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        sums = sum(file.sha256 is not None for file in found.files)
        assert f"| {found.licence} |" in row
        assert (f"{sums} of {len(found.files)}" in row) if sums else ("none" in row), row


@pytest.mark.parametrize("name", sorted(set(SETS) - NOT_THE_OFFICIAL_BYTES))
def test_checksums_are_those_of_the_copies(name: str):
    copies = [
        (file, path)
        for file in SETS[name].files
        if file.sha256 is not None and (path := find_file(DATA / name, file.name)) is not None
    ]
    if not copies:
        pytest.skip(f"no copy of {name} with a known checksum in {DATA / name} (EVENHAND_DATA)")
    for file, path in copies:
        assert content_sha256(path) == file.sha256, file.name
