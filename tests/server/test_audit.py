"""The audit file: real SQLite, what is stored and what is not, age, size, and disks that fail."""

import os
import sqlite3
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from evenhand.core.errors import DataError, StoreError
from evenhand.core.types import Usage
from evenhand.guards.types import Check
from evenhand.guards.upstreams import Tried
from evenhand.server.telemetry import audit as audit_module
from evenhand.server.telemetry.audit import AuditLog, RetentionClock, read_audit, rotated_files
from evenhand.server.telemetry.events import Event, OtherAnswer

NOW = time.time()
DAY = 86_400.0
EVENT = Event(
    "r1",
    NOW,
    "chat",
    "/v1/chat/completions",
    key="team",
    action="revised",
    why=("toxicity",),
    prompt="I am jo@mail.example",
    first="Rude words",
    text="Kind words",
    before=(Check("toxicity", 0.7, 0.1, False, words="Too rude to jo@mail.example"),),
    after=(Check("toxicity", 0.04, 0.1, True),),
    stream=True,
    first_segment=0.5,
    stages={"total": 1.5},
    usage=Usage(calls=3, prompt_tokens=100, completion_tokens=40, cost=0.25),
    tried=(Tried("1", failed=True), Tried("spare")),
)


def written(file: Path, *events: Event, **settings: Any) -> list[dict[str, Any]]:
    log = AuditLog(file, **settings)
    for event in events:
        log(event)
    log.close()
    return list(read_audit(file))


def test_a_request_is_stored_with_all_that_is_known_of_it(tmp_path: Path):
    (row,) = written(tmp_path / "audit.sqlite", EVENT, texts="full")

    assert (row["id"], row["route"], row["key"], row["status"], row["action"]) == ("r1", "chat", "team", 200, "revised")
    assert (row["prompt"], row["first"], row["text"]) == ("I am jo@mail.example", "Rude words", "Kind words")
    assert row["before"] == [
        {"name": "toxicity", "score": 0.7, "limit": 0.1, "passed": False, "words": "Too rude to jo@mail.example"}
    ]
    assert row["usage"]["cost"] == 0.25
    assert (row["upstream"], row["upstreams_tried"]) == ("spare", 2)
    assert (row["stream"], row["late"], row["first_segment"], row["stages"]) == (True, False, 0.5, {"total": 1.5})
    assert row["time"] == NOW and row["at"].endswith("+00:00")


def test_without_being_asked_no_text_is_stored(tmp_path: Path):
    file = tmp_path / "audit.sqlite"

    (row,) = written(file, EVENT)

    assert (row["prompt"], row["first"], row["text"]) == ("", "", "")
    assert row["before"] == [{"name": "toxicity", "score": 0.7, "limit": 0.1, "passed": False}]
    assert b"rude" not in file.read_bytes().lower()


@pytest.mark.parametrize("texts", ["full", "redacted"])
def test_half_a_character_loses_no_row(tmp_path: Path, texts: Any):
    (row,) = written(tmp_path / "audit.sqlite", replace(EVENT, text="a \ud83d b"), texts=texts)

    assert row["text"] == "a \ufffd b"


def test_redacted_texts_hold_no_addresses(tmp_path: Path):
    (row,) = written(tmp_path / "audit.sqlite", EVENT, texts="redacted")

    assert row["prompt"] == "I am [email]"
    assert row["before"][0]["words"] == "Too rude to [email]"


def test_all_of_several_answers_are_stored(tmp_path: Path):
    other = OtherAnswer("passed", (), "Write to jo@mail.example", "Kind words", (), EVENT.before)

    (row,) = written(tmp_path / "audit.sqlite", replace(EVENT, others=(other,)), texts="redacted")

    assert row["others"] == [
        {
            "action": "passed",
            "why": [],
            "first": "Write to [email]",
            "text": "Kind words",
            "before": [],
            "after": row["before"],
        }
    ]


def test_rows_that_are_too_old_are_deleted(tmp_path: Path):
    file = tmp_path / "audit.sqlite"
    old = replace(EVENT, id="old", time=NOW - 8 * 86_400, prompt="An ancient secret of mine")

    rows = written(file, old, EVENT, texts="full", days=7)

    assert [row["id"] for row in rows] == ["r1"]
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert b"ancient secret" not in file.read_bytes()


class Clock:
    """The wall clock and the time that has passed, both moved by hand."""

    def __init__(self, wall: float = NOW) -> None:
        self.wall = wall
        self.passed = 0.0

    def made(self, reached: float | None = None) -> RetentionClock:
        return RetentionClock(reached, lambda: self.wall, lambda: self.passed)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


def kept(file: Path, clock: RetentionClock, *events: Event) -> list[str]:
    return [row["id"] for row in written(file, *events, days=7, clock=clock)]


def test_a_clock_that_jumps_deletes_nothing_before_its_time(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file, clock = tmp_path / "audit.sqlite", Clock()
    made = clock.made()
    clock.wall += 365 * DAY

    assert kept(file, made, EVENT) == ["r1"]
    assert "hours ahead" in caplog.text

    clock.pass_by(3 * DAY)
    assert kept(file, made, replace(EVENT, id="r2", time=clock.wall)) == ["r1", "r2"]


def test_a_clock_that_jumped_is_followed_at_twice_the_speed_and_a_corrected_one_at_once():
    clock = Clock()
    made = clock.made()
    clock.wall += 10 * DAY

    clock.pass_by(DAY)
    assert made.now() == NOW + 2 * DAY
    clock.pass_by(30 * DAY)
    assert made.now() == clock.wall
    clock.wall -= 100 * DAY
    assert made.now() == clock.wall
    clock.wall += 100 * DAY
    assert made.now() == clock.wall


def test_a_start_with_a_wrong_clock_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "audit.sqlite"
    written(file, EVENT, days=7)
    monkeypatch.setattr(time, "time", lambda: NOW + 365 * DAY)

    for start in ("r2", "r3"):
        log = AuditLog(file, days=7)
        log(replace(EVENT, id=start, time=NOW + 365 * DAY))
        log.close()

    assert [row["id"] for row in read_audit(file)] == ["r1", "r2", "r3"]


def test_rows_written_while_the_clock_was_behind_are_kept(tmp_path: Path):
    ids = kept(tmp_path / "audit.sqlite", Clock().made(), EVENT, replace(EVENT, id="1970", time=5.0))

    assert ids == ["r1", "1970"]


def test_a_file_that_is_too_large_is_set_aside_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_module, "BATCH", 10)
    file = tmp_path / "audit.sqlite"

    rows = written(file, *(replace(EVENT, id=str(n), text="x" * 1000) for n in range(300)), texts="full", megabytes=0.1)

    older = rotated_files(file)
    assert len(older) >= 2
    assert [row["id"] for row in rows] == [str(n) for n in range(300)]
    assert all(each.stat().st_size < 300_000 for each in older)
    assert {path.name for path in tmp_path.iterdir()} <= {each.name for each in older} | {
        ".audit.sqlite.lock",
        "audit.sqlite",
        "audit.sqlite-wal",
        "audit.sqlite-shm",
    }


def test_a_file_that_somebody_reads_is_turned_over_later(tmp_path: Path):
    file = tmp_path / "audit.sqlite"
    log = AuditLog(file, texts="full", megabytes=0.05)
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM requests").fetchone()
    for number in range(100):
        log(replace(EVENT, id=str(number), text="x" * 1000))
    log.close()
    assert rotated_files(file) == []
    assert len(list(read_audit(file))) == 100
    reader.close()

    rows = written(file, replace(EVENT, id="100"), megabytes=0.05)

    assert len(rotated_files(file)) == 1
    assert [row["id"] for row in rows] == [str(number) for number in range(101)]


def test_a_damaged_file_is_an_error_after_all_others_were_read(tmp_path: Path):
    file = tmp_path / "audit.sqlite"
    written(file, EVENT)
    (tmp_path / "audit-20260101T000000.sqlite").write_text("damaged")

    rows = read_audit(file)

    assert next(rows)["id"] == "r1"
    with pytest.raises(DataError, match="audit-20260101T000000"):
        next(rows)


def test_files_set_aside_long_ago_are_deleted(tmp_path: Path):
    file = tmp_path / "audit.sqlite"
    old, young = tmp_path / "audit-20260101T000000.sqlite", tmp_path / "audit-20260102T000000.sqlite"
    foreign = tmp_path / "audit-notes.sqlite"
    for path in (old, young, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (NOW - 8 * 86_400,) * 2)

    AuditLog(file, days=7).close()

    assert rotated_files(file) == [young]
    assert foreign.exists()


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_only_its_owner_can_read_it(tmp_path: Path):
    written(tmp_path / "audit.sqlite", EVENT)

    assert stat.S_IMODE((tmp_path / "audit.sqlite").stat().st_mode) == 0o600


def test_when_the_disk_does_not_keep_up_rows_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_module, "WAITING", 10)
    file = tmp_path / "audit.sqlite"
    log = AuditLog(file)
    busy = sqlite3.connect(file, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")  # the writer waits for this
    for number in range(1_000):
        log(replace(EVENT, id=str(number)))
    busy.execute("ROLLBACK")
    busy.close()
    log.close()

    stored = len(list(read_audit(file)))
    assert log.dropped > 0
    assert stored + log.dropped == 1_000


def test_a_row_that_cannot_be_stored_does_not_take_its_neighbours_along(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    log = AuditLog(tmp_path / "audit.sqlite", texts="full")
    for text in ("fine", 2**100, "fine too"):
        log(replace(EVENT, text=cast(str, text)))
    log.close()

    assert [row["text"] for row in read_audit(tmp_path / "audit.sqlite")] == ["fine", "fine too"]
    assert log.dropped == 1
    assert "lost 1 rows" in caplog.text


def test_a_failing_disk_costs_rows_but_not_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "audit.sqlite"
    log = AuditLog(file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("ALTER TABLE requests RENAME TO gone")
    log(EVENT)
    while not log.dropped:
        time.sleep(0.01)
    other.execute("ALTER TABLE gone RENAME TO requests")
    other.close()
    log(replace(EVENT, id="r2"))
    log.close()

    assert [row["id"] for row in read_audit(file)] == ["r2"]
    assert "lost 1 rows" in caplog.text


def test_a_place_that_cannot_be_written_is_refused_at_start(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="cannot be used"):
        AuditLog(tmp_path / "file" / "audit.sqlite")


def test_a_database_of_something_else_is_left_alone(tmp_path: Path):
    file = tmp_path / "run.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE samples (id TEXT)")
    db.close()
    before = file.read_bytes()

    with pytest.raises(StoreError, match="holds other data"):
        AuditLog(file)
    assert file.read_bytes() == before


def test_reading_filters_by_time_and_action(tmp_path: Path):
    file = tmp_path / "audit.sqlite"
    written(file, replace(EVENT, id="1", time=NOW - 100), replace(EVENT, id="2", action="passed"), EVENT)

    assert [row["id"] for row in read_audit(file, since=NOW - 1)] == ["2", "r1"]
    assert [row["id"] for row in read_audit(file, actions=("passed",))] == ["2"]


def test_what_is_no_audit_file_is_refused_in_a_sentence(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no database")

    for path in (tmp_path / "notes.txt", tmp_path / "missing.sqlite"):
        with pytest.raises(DataError, match="audit file"):
            list(read_audit(path))
