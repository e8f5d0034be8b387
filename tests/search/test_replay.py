"""Recorded searches."""

from pathlib import Path

import pytest

from evenhand.core.errors import DataError, SearchError, UsageError
from evenhand.search.base import Hit, SearchResult, load_provider
from evenhand.search.replay import ReplaySearch, read_replay, read_result, record, result_row

FOUND = SearchResult(
    "older drivers",
    "ddgs:brave",
    "2026-01-31T12:00:00Z",
    (Hit("A", "https://example.org/a", "snippet ü", "text"), Hit("B", "https://example.org/b")),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "found.jsonl"
    record(path, FOUND)
    return path


async def test_a_recorded_query_brings_what_it_brought_then(file: Path):
    provider = load_provider(f"replay:{file}")

    assert await provider.search("older drivers", 5) == FOUND
    assert (await provider.search("older drivers", 1)).hits == FOUND.hits[:1]


async def test_blanks_do_not_matter_but_words_do(file: Path):
    provider = ReplaySearch(str(file))

    assert (await provider.search(" older \n drivers ", 5)).hits == FOUND.hits
    with pytest.raises(SearchError, match=r"'Older drivers' was not recorded in found\.jsonl"):
        await provider.search("Older drivers", 5)


async def test_no_hits_is_a_recorded_answer(tmp_path: Path):
    record(tmp_path / "f.jsonl", SearchResult("q", "wikipedia", "2026-01-31T12:00:00Z", ()))

    assert (await ReplaySearch(str(tmp_path / "f.jsonl")).search("q", 5)).hits == ()


def test_the_later_recording_counts(file: Path):
    later = SearchResult("older  drivers", "wikipedia", "2026-02-01T12:00:00Z", ())
    record(file, later)

    assert read_replay(file) == {"older drivers": later}


def test_recording_goes_on_after_a_line_without_an_end(file: Path):
    file.write_bytes(file.read_bytes().rstrip())
    record(file, SearchResult("q", "wikipedia", "2026-02-01T12:00:00Z", ()))

    assert list(read_replay(file)) == ["older drivers", "q"]


def test_the_identity_is_the_content(file: Path, tmp_path: Path):
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(file.read_bytes() + b"\n")
    assert ReplaySearch(str(copy)).fingerprint() == ReplaySearch(str(file)).fingerprint()

    record(copy, SearchResult("q", "wikipedia", "2026-02-01T12:00:00Z", ()))
    assert ReplaySearch(str(copy)).fingerprint() != ReplaySearch(str(file)).fingerprint()


def test_a_row_is_read_as_it_was_written():
    assert read_result(result_row(FOUND)) == FOUND


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"hits": []}', "'query' is missing"),
        ('{"query": "q"}', "'hits' is not a list"),
        ('{"query": "q", "hits": ["x"]}', "a hit is not an object"),
        ('{"query": "q", "hits": [{"title": 3}]}', "'title' is not text"),
    ],
)
def test_a_damaged_line_is_named(file: Path, line: str, sentence: str):
    file.write_text(f"{file.read_text()}{line}\n")

    with pytest.raises(DataError, match=f"line 2: .*{sentence}"):
        ReplaySearch(str(file))


def test_a_file_that_is_missing_or_empty_is_refused(tmp_path: Path):
    (tmp_path / "empty.jsonl").touch()

    with pytest.raises(DataError, match="no such file"):
        load_provider(f"replay:{tmp_path / 'none.jsonl'}")
    with pytest.raises(DataError, match="Is a directory"):
        load_provider(f"replay:{tmp_path}")
    with pytest.raises(DataError, match="no recorded searches"):
        load_provider(f"replay:{tmp_path / 'empty.jsonl'}")
    with pytest.raises(UsageError, match="needs an argument"):
        load_provider("replay")
