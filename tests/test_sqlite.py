"""SQLite files are opened, migrated and described in one way."""

import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.core import sqlite


def test_migrations_are_applied_once_and_a_newer_file_is_refused(tmp_path: Path) -> None:
    steps = ("CREATE TABLE one (a);", "ALTER TABLE one ADD COLUMN b;")
    with closing(sqlite.connect(tmp_path / "new" / "file.sqlite")) as db:
        sqlite.migrate(db, steps[:1])
        sqlite.migrate(db, steps)
        sqlite.migrate(db, steps)
        assert sqlite.version_of(db) == 2
        with pytest.raises(sqlite.NewerFileError):
            sqlite.migrate(db, steps[:1])


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    with closing(sqlite.connect(tmp_path / "file.sqlite")) as db:
        db.execute("CREATE TABLE one (a)")
        with pytest.raises(RuntimeError), sqlite.transaction(db):
            db.execute("INSERT INTO one VALUES (1)")
            raise RuntimeError
        assert db.execute("SELECT count(*) FROM one").fetchone() == (0,)


def test_a_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    sqlite.connect(tmp_path / "file.sqlite", private=True).close()
    assert stat.S_IMODE((tmp_path / "file.sqlite").stat().st_mode) == 0o600


def test_a_file_of_others_is_not_touched(tmp_path: Path) -> None:
    def refuse(_db: sqlite3.Connection) -> None:
        raise sqlite3.DatabaseError("it holds other data")

    path = tmp_path / "file.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError):
        sqlite.connect(path, check=refuse)
    assert path.read_bytes() == before


def test_a_damaged_file_is_said_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        sqlite.connect(path)
    assert sqlite.reason(caught.value) == "the file is damaged or no SQLite file (file is not a database)"


def test_two_processes_that_open_an_older_file_at_once_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps = ("CREATE TABLE one (a);", "ALTER TABLE one ADD COLUMN b; ALTER TABLE one ADD COLUMN c;")
    path = tmp_path / "file.sqlite"
    with closing(sqlite.connect(path)) as first, closing(sqlite.connect(path)) as second:
        sqlite.migrate(first, steps[:1])
        real = sqlite.transaction

        def late(db: sqlite3.Connection) -> object:
            """The other one is faster, between the look at the version and the first statement."""
            monkeypatch.setattr(sqlite, "transaction", real)
            sqlite.migrate(first, steps)
            return real(db)

        monkeypatch.setattr(sqlite, "transaction", late)
        sqlite.migrate(second, steps)
        assert sqlite.version_of(second) == 2


def test_no_query_has_numbered_parameters() -> None:
    """Python 3.12 warns of `?1` with a sequence, and 3.14 refuses it."""
    source = Path(__file__).parents[1] / "src"
    found = [
        f"{file.relative_to(source)}:{number}"
        for file in source.rglob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"[=(,] ?\?\d|LIMIT \?\d", line)
    ]
    assert not found
