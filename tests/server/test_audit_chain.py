"""The audit file's hash chain: changes by others are found, and what the server itself deletes is accepted."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from evenhand.core.errors import PlanError, StoreError, UsageError
from evenhand.core.types import Usage
from evenhand.server.config import ServeConfig, make_config
from evenhand.server.process import ServeOptions, check
from evenhand.server.server import Server
from evenhand.server.telemetry import audit as audit_module
from evenhand.server.telemetry.audit import (
    AuditLog,
    Hasher,
    key_from,
    newest_file,
    read_audit,
    rotated_files,
    verify_audit,
)
from evenhand.server.telemetry.events import Event

NOW = time.time()
EVENT = Event("r1", NOW, "chat", "/v1/chat/completions", action="revised", usage=Usage(calls=1, cost=0.1))
KEY, OTHER_KEY = b"a key of the operators", b"some other, later key"
VERSION_1 = """
CREATE TABLE requests (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, id TEXT NOT NULL, route TEXT NOT NULL, endpoint TEXT NOT NULL,
    key TEXT NOT NULL, status INTEGER NOT NULL, action TEXT NOT NULL, late INTEGER NOT NULL, stream INTEGER NOT NULL,
    cost REAL, body TEXT NOT NULL
);
PRAGMA user_version=1;
INSERT INTO requests VALUES (1, 5.0, 'old', 'chat', '/v1/chat/completions', '', 200, 'passed', 0, 0, NULL, '{}');
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.sqlite"


def write(file: Path, count: int = 5, **settings: Any) -> None:
    log = AuditLog(file, **settings)
    for number in range(count):
        log(replace(EVENT, id=str(number), text="x" * 2000))
    log.close()


def write_files(file: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[Path]:
    """Write three rotated files or more, and return them."""
    monkeypatch.setattr(audit_module, "BATCH", 10)
    write(file, 300, texts="full", megabytes=0.1, **settings)
    assert len(rotated_files(file)) >= 3
    return rotated_files(file)


def change(file: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


def problems(file: Path, *keys: bytes) -> str:
    return "; ".join(verify_audit(file, keys).problems)


def test_an_untouched_file_is_intact(file: Path):
    write(file)
    write(file)

    state = verify_audit(file)

    assert (state.problems, state.actions, state.crashes) == ([], {"revised": 10}, 0)
    assert state.last.number == 14  # with two starts and two ends
    assert not state.signed


CHANGES = {
    "time": "UPDATE requests SET time = time + 0.001 WHERE number = 4",
    "action": "UPDATE requests SET action = 'passed' WHERE number = 4",
    "cost": "UPDATE requests SET cost = NULL WHERE number = 4",
    "type": "UPDATE requests SET id = x'00ff' WHERE number = 4",
    "body": "UPDATE requests SET body = json_set(body, '$.text', 'Kind words') WHERE number = 4",
    "hash": "UPDATE requests SET hash = x'00' WHERE number = 4",
    "note": "UPDATE notes SET kind = 'closed' WHERE number = 1",
    "note's body": "UPDATE notes SET body = '[]' WHERE number = 1",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_value_is_found(file: Path, statement: str):
    write(file)
    change(file, statement)

    assert verify_audit(file).problems


def test_the_first_changed_row_is_named(file: Path):
    write(file)
    change(file, "UPDATE requests SET action = 'passed' WHERE number IN (3, 5)")

    assert verify_audit(file).problems == ["audit.sqlite: row 3 was changed", "audit.sqlite: row 5 was changed"]


REMOVALS = {
    "in the middle": ("number BETWEEN 3 AND 4", "rows 3 to 4 are missing"),
    "at the beginning": ("number <= 3", "rows before 4 are missing"),
    "at the end": ("number >= 5", "rows after 4 are missing"),
    "everywhere": ("1", "all rows are missing"),
}


@pytest.mark.parametrize(("where", "words"), REMOVALS.values(), ids=REMOVALS.keys())
def test_removed_rows_are_found(file: Path, where: str, words: str):
    write(file)
    change(file, f"DELETE FROM requests WHERE {where}", f"DELETE FROM notes WHERE {where}")

    assert words in problems(file)


def test_rows_in_another_order_and_added_rows_are_found(file: Path, tmp_path: Path):
    write(file)
    other = tmp_path / "other.sqlite"
    shutil.copy(file, other)
    change(
        file,
        "UPDATE requests SET number = -3 WHERE number = 3",
        "UPDATE requests SET number = 3 WHERE number = 4",
        "UPDATE requests SET number = 4 WHERE number = -3",
    )
    change(
        other,
        "INSERT INTO requests SELECT number + 5, time, id, route, endpoint, key, status, action, late, stream, cost,"
        " body, hash FROM requests WHERE number = 6",
    )

    assert "row 3 was changed" in problems(file)
    assert problems(other)


def rebuild(file: Path) -> None:
    """Compute a new chain without the key, as somebody would who may write to the file."""
    hasher, last = Hasher(), bytes(32)
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        rows = [
            (row[0], table, row[:-1])
            for table in ("requests", "notes")
            for row in db.execute(f"SELECT * FROM {table}").fetchall()
        ]
        for number, table, values in sorted(rows):
            last = hasher.row(last, "request" if table == "requests" else "note", values)
            db.execute(f"UPDATE {table} SET hash = ? WHERE number = ?", (last, number))
        db.execute("UPDATE state SET value = ? WHERE name = 'head'", (hasher.head(last),))


def test_without_a_key_a_chain_can_be_rebuilt_and_with_one_it_cannot(file: Path, tmp_path: Path):
    signed = tmp_path / "signed.sqlite"
    write(file)
    write(signed, key=KEY)
    assert verify_audit(signed, [KEY]).signed

    for each in (file, signed):
        change(each, "UPDATE requests SET action = 'passed'")
        rebuild(each)
    assert problems(file) == ""
    assert "row 1 was changed" in problems(signed, KEY)

    change(signed, "UPDATE state SET value = '' WHERE name = 'key'")
    assert "not signed" in problems(signed, KEY)


def test_the_end_of_a_signed_file_cannot_be_cut_off(file: Path):
    write(file, key=KEY)
    change(file, "DELETE FROM requests WHERE number > 4", "DELETE FROM notes WHERE number > 4")
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        (last,) = db.execute("SELECT hash FROM requests WHERE number = 4").fetchone()
        db.execute("UPDATE state SET value = ? WHERE name = 'head'", (Hasher().head(last),))

    assert "rows after 4 are missing" in problems(file, KEY)


def test_a_signed_file_needs_its_key(file: Path):
    write(file, key=KEY)

    for keys in ((), (OTHER_KEY,)):
        with pytest.raises(UsageError, match="--key-env"):
            verify_audit(file, keys)


def test_a_key_that_is_missing_or_short_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHORT", "abc")

    with pytest.raises(PlanError, match="NOT_SET_AT_ALL is not set"):
        key_from("NOT_SET_AT_ALL")
    with pytest.raises(PlanError, match="fewer than 16"):
        key_from("SHORT")


async def _open_and_close(config: ServeConfig) -> None:
    await Server(config, "127.0.0.1").close()


def test_the_server_signs_with_the_key_that_its_config_names(file: Path, monkeypatch: pytest.MonkeyPatch):
    config = make_config(
        {"routes": {"a": {"model": "fake/x"}}, "audit": {"file": str(file), "key_env": "EVENHAND_AUDIT_KEY"}}
    )
    with pytest.raises(PlanError, match="EVENHAND_AUDIT_KEY is not set"):
        check(ServeOptions(config))
    assert not file.exists()

    monkeypatch.setenv("EVENHAND_AUDIT_KEY", KEY.decode())
    asyncio.run(_open_and_close(config))

    assert verify_audit(file, [KEY]).signed


def test_a_new_key_begins_a_new_file_that_vouches_for_the_old_one(file: Path):
    write(file)
    write(file, key=KEY)
    write(file, key=OTHER_KEY)
    unsigned, _ = rotated_files(file)

    assert problems(file, KEY, OTHER_KEY) == ""

    change(unsigned, "UPDATE requests SET action = 'passed'")
    rebuild(unsigned)
    assert "whose end was changed" in problems(file, KEY, OTHER_KEY)


def test_the_chain_goes_on_over_rotated_files(file: Path, monkeypatch: pytest.MonkeyPatch):
    older = write_files(file, monkeypatch)

    state = verify_audit(file)

    assert (state.problems, state.actions["revised"], state.files) == ([], 300, len(older) + 1)
    assert newest_file(older[0]) == file
    assert newest_file(Path()) == Path()


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_rotated_file_that_was_removed_is_named(file: Path, monkeypatch: pytest.MonkeyPatch, place: int):
    gone = write_files(file, monkeypatch)[place]
    gone.unlink()

    assert f"the file before it, {gone.name}, is missing" in problems(file)


def test_a_rotated_file_with_another_end_is_found(file: Path, monkeypatch: pytest.MonkeyPatch):
    changed = write_files(file, monkeypatch)[1]
    change(changed, "UPDATE requests SET action = 'passed'")
    with contextlib.closing(sqlite3.connect(changed)) as db, db:
        last = db.execute("SELECT max(number) FROM requests").fetchone()[0]
        db.execute("UPDATE requests SET hash = zeroblob(32) WHERE number = ?", (last,))

    assert f"does not continue {changed.name}" in problems(file)


def test_a_rotated_file_alone_is_checked_as_far_as_it_goes(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first, second, *_ = write_files(file, monkeypatch)
    (tmp_path / "archive").mkdir()
    copy = Path(shutil.copy(second, tmp_path / "archive"))

    state = verify_audit(copy)

    assert (state.problems, state.unproved) == ([], first.name)


def test_what_was_deleted_by_age_is_not_missing(file: Path, monkeypatch: pytest.MonkeyPatch):
    older = write_files(file, monkeypatch, days=7)
    for path in older[:2]:
        os.utime(path, (NOW - 8 * 86_400,) * 2)
    change(file, "UPDATE state SET value = NULL WHERE name = 'clock'")
    write(file, days=7)

    state = verify_audit(file)

    assert rotated_files(file) == older[2:]
    assert (state.problems, state.deleted > 0) == ([], True)


@pytest.mark.parametrize("key", [b"", KEY])
def test_rows_that_were_deleted_by_age_are_not_missing(file: Path, key: bytes):
    log = AuditLog(file, days=7, key=key)
    for days in (9, 8, 8, 1, 0):
        log(replace(EVENT, time=NOW - days * 86_400))
    log.close()

    state = verify_audit(file, [key] if key else [])

    assert (state.problems, state.actions.total(), state.deleted) == ([], 2, 4)
    change(file, "DELETE FROM requests WHERE number = 5")
    assert "rows before 6 are missing" in problems(file, *([key] if key else []))


def test_after_a_crash_the_file_goes_on_and_says_so(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = AuditLog(file)
    for count in (1, 2):
        log(EVENT)
        while len(list(read_audit(file))) < count:
            time.sleep(0.01)
    crashed = tmp_path / "crashed" / "audit.sqlite"
    crashed.parent.mkdir()
    shutil.copy(file, crashed)
    torn = file.with_name("audit.sqlite-wal").read_bytes()[:-100]
    crashed.with_name("audit.sqlite-wal").write_bytes(torn)
    log.close()

    write(crashed, 1)

    state = verify_audit(crashed)
    assert (state.problems, state.crashes) == ([], 1)
    assert "was not closed" in caplog.text


def test_a_file_whose_making_was_interrupted_is_made_by_the_next_writer(file: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr(audit_module, "_SCHEMA", f"{audit_module._SCHEMA} interrupted;")
        with pytest.raises(StoreError):
            AuditLog(file)

    write(file, 1)

    assert (rotated_files(file), verify_audit(file).problems) == ([], [])


@pytest.mark.processes
@pytest.mark.parametrize("key", [b"", KEY])
def test_a_writer_that_is_killed_leaves_an_intact_chain(file: Path, key: bytes):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from evenhand.server.telemetry.audit import AuditLog; from evenhand.server.telemetry import audit as module\n"
        "from evenhand.server.telemetry.events import Event\n"
        "module.GATHER_SECONDS = 0.0\n"
        "log = AuditLog(Path(sys.argv[1]), key=sys.argv[2].encode(), megabytes=0.2)\n"
        "while True:\n"
        "    log(Event('r', time.time(), 'chat', '/v1/chat/completions', action='passed'))\n"
    )
    for _ in range(3):
        before = rotated_files(file)
        writer = subprocess.Popen([sys.executable, "-c", code, str(file), key.decode()])
        while rotated_files(file) == before:
            time.sleep(0.01)
        writer.kill()
        writer.wait()

    write(file, 1, key=key)

    state = verify_audit(file, [key] if key else [])
    assert (state.problems, state.crashes) == ([], 3)
    assert state.actions["passed"] > 100


def test_rows_that_were_lost_are_recorded(file: Path):
    log = AuditLog(file, texts="full")
    log(EVENT)
    log(replace(EVENT, text=cast(str, 2**100)))
    log.close()

    state = verify_audit(file)

    assert (state.problems, state.lost, state.actions.total()) == ([], 1, 1)


def test_a_file_without_a_chain_is_set_aside_and_said_to_have_none(file: Path):
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.executescript(VERSION_1)
    alone = verify_audit(file)

    write(file, 1)

    state = verify_audit(file)
    (old,) = rotated_files(file)
    assert (alone.problems, alone.unchained, alone.actions) == ([], ["audit.sqlite"], {"passed": 1})
    assert (state.problems, state.unchained, state.actions) == ([], [old.name], {"passed": 1, "revised": 1})
    assert [row["id"] for row in read_audit(old)] == ["old"]


def test_a_file_that_lost_its_end_with_a_whole_file_lacks_the_logged_hash(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    *_, newest = write_files(file, monkeypatch)
    logged = bytes.fromhex(caplog.messages[-1].rpartition(" ")[2])
    assert verify_audit(file, expected=logged).problems == []

    newest.replace(file)

    assert verify_audit(file).problems == []
    assert "no row has the hash" in verify_audit(file, expected=logged).problems[0]


def test_a_second_writer_of_one_file_is_refused_and_leaves_no_mark(file: Path):
    first = AuditLog(file)
    first(EVENT)

    with pytest.raises(PlanError, match="Another server writes the audit file"):
        AuditLog(file)
    first(EVENT)
    first.close()
    write(file, 1)

    state = verify_audit(file)
    assert (state.problems, state.actions.total(), state.crashes, first.dropped) == ([], 3, 0, 0)
