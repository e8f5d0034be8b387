"""The journal of ratings: the last rating counts, undo goes back, and nothing that was confirmed is lost."""

import sqlite3
from pathlib import Path

import pytest

from evenhand.annotate.journal import FILE, Journal, Rating
from evenhand.core.errors import DataError, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


def rating(value: int | None, *, rater: str = "ann", item: str = "x", scale: str = "BS", at: float = 1.0) -> Rating:
    return Rating(rater, item, scale, value, at)


def test_the_last_rating_of_a_cell_counts(path: Path):
    journal = Journal(path)
    for each in (rating(10), rating(None, scale="CE"), rating(30, at=2.0), rating(90, rater="ben")):
        journal.rate(each)

    assert journal.current() == [rating(None, scale="CE"), rating(30, at=2.0), rating(90, rater="ben")]


def test_undo_brings_back_what_was_there_and_only_the_raters_own(path: Path):
    journal = Journal(path)
    for each in (rating(10), rating(30), rating(90, rater="ben")):
        journal.rate(each)

    assert journal.undo("ann") == ("x", "BS")
    assert journal.current() == [rating(10), rating(90, rater="ben")]
    assert journal.undo("ann") == ("x", "BS")
    assert journal.undo("ann") is None
    assert journal.current() == [rating(90, rater="ben")]


def test_a_rating_that_is_sent_twice_is_undone_at_once(path: Path):
    journal = Journal(path)
    for value in (10, 30, 30, None, None):
        journal.rate(rating(value))

    journal.undo("ann")
    assert journal.current() == [rating(30)]
    journal.undo("ann")
    assert journal.current() == [rating(10)]


def test_another_process_sees_it_at_once_and_the_stamp_changes(path: Path):
    journal, other = Journal(path), Journal(path)
    stamps = [other.stamp()]
    journal.rate(rating(10))
    stamps.append(other.stamp())
    journal.undo("ann")
    journal.rate(rating(20))
    stamps.append(other.stamp())

    assert other.current() == [rating(20)]
    assert len(set(stamps)) == 3


def test_only_the_owner_can_read_the_file(path: Path):
    Journal(path).rate(rating(10))

    assert {each.stat().st_mode & 0o077 for each in path.parent.iterdir()} == {0}


def test_a_file_that_is_no_journal_is_refused(path: Path):
    path.write_text("not a database, but long enough to be read as one" * 100, encoding="utf-8")

    with pytest.raises(DataError, match=r"ratings\.sqlite: cannot be used"):
        Journal(path)


def test_a_newer_file_is_refused(path: Path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 9")
    db.close()

    with pytest.raises(DataError, match="newer version"):
        Journal(path)


def test_a_rating_that_cannot_be_written_is_an_error(path: Path):
    journal = Journal(path)
    journal.rate(rating(10))
    journal._db.execute("PRAGMA query_only = on")

    with pytest.raises(StoreError, match="was not saved"):
        journal.rate(rating(20))
    assert journal.current() == [rating(10)]
