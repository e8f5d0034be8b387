"""A damaged row costs a row: it is named and left out if that is asked for. Nothing starts over unnoticed."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import PlanError, StoreError
from evenhand.core.types import Answer, Outcome
from evenhand.models.budget import Limits
from evenhand.runs.store import FILE_NAME, FINAL, LOG_NAME, Finished, Scored, Store
from evenhand.runs.stored import StoredRun
from evenhand.runs.summary import read_summary
from evenhand.studies.export import export
from evenhand.studies.samples import find_sample
from evenhand.studies.study import study
from support.runs import Workshop
from support.toy import right_answer, toy_sample

RESUME: dict[str, Any] = {"settings": {"resume": True}}
SKIP: dict[str, Any] = {"settings": {"resume": True, "skip_damaged": True}}
BROKEN = {
    "not compressed": b"\xff\xfe",
    "cut": b'{"id":"toy/00',
    "not an object": b"{}",
    "empty": b"",
}


def damage(folder: Path, table: str, body: Any = b"\xff\xfe", where: str = "sample = 3") -> None:
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as db, db:
        assert db.execute(f"UPDATE {table} SET body = ? WHERE {where}", (body,)).rowcount


@pytest.fixture
async def run(workshop: Workshop) -> Path:
    """A complete run of 24 samples."""
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run()
    return workshop.directory / "run"


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_damaged_sample_is_named_and_can_be_left_out_of_a_report(run: Path, body: bytes):
    damage(run, "samples", body, "number = 3")

    with pytest.raises(StoreError, match=r"the sample toy/0002 cannot be read.*--skip-damaged"):
        study([run])
    with pytest.warns(UserWarning, match="left out: the sample toy/0002"):
        result = study([run], skip_damaged=True)

    assert result.arms[0].statuses == {"graded": 23}
    assert any("left out: the sample toy/0002" in each for each in result.warnings)


@pytest.mark.parametrize("body", ["{", "[1]", "", None, b"\xff"])
def test_a_damaged_score_is_named_and_can_be_left_out_of_a_report(run: Path, body: Any):
    damage(run, "scores", body or "null")

    with pytest.raises(StoreError, match="a score of sample toy/0002 in arm 1 cannot be read"):
        study([run])
    with pytest.warns(UserWarning, match="a score of sample toy/0002"):
        assert study([run], skip_damaged=True).arms[0].statuses == {"graded": 23}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    ("table", "row"), [("outcomes", "the outcome of sample toy/0002"), ("turns", "a call of sample toy/0002")]
)
def test_a_damaged_row_is_left_out_of_an_export_and_of_show(run: Path, tmp_path: Path, table: str, row: str, body: Any):
    whole = export(run, table, "jsonl", tmp_path / "whole")
    damage(run, table, body)

    with pytest.raises(StoreError, match=row):
        export(run, table, "jsonl", tmp_path / "rows")
    with pytest.raises(StoreError, match=row):
        find_sample(run, "toy/0002")
    with pytest.warns(UserWarning, match=row):
        assert export(run, table, "jsonl", tmp_path / "rows", skip_damaged=True) < whole
    with pytest.warns(UserWarning, match=row):
        assert find_sample(run, "toy/0002", skip_damaged=True).id == "toy/0002"


async def test_a_damaged_row_does_not_hide_how_a_run_ended(workshop: Workshop):
    workshop.model(lambda _messages, _params: "One of the two, of course.")
    await workshop.run()
    folder = workshop.directory / "run"
    damage(folder, "outcomes", where="sample = 1")

    summary = read_summary(folder)

    assert summary.nothing_measured
    assert summary.unread == "One of the two, of course."


async def test_a_damaged_call_is_made_again_by_a_resumed_run(workshop: Workshop):
    model = workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run(settings={"budget": Limits(calls=5)})
    folder = workshop.directory / "run"
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as db, db:
        db.execute("DELETE FROM outcomes WHERE sample IN (1, 2)")
    damage(folder, "turns", where="sample = 1")

    with pytest.raises(StoreError, match="a call of sample toy/0000 in arm 1"):
        await workshop.run(**RESUME)
    with pytest.warns(UserWarning, match="left out: a call of sample toy/0000"):
        progress = await workshop.run(**SKIP)

    assert progress.statuses == {"graded": 24}
    assert len(model.requests) == 24 + 1  # only the damaged call is repeated
    assert any("a call of sample toy/0000" in each for each in StoredRun.open(folder).store.get("caveats"))


async def test_a_damaged_sample_does_not_stop_a_resumed_run(workshop: Workshop):
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run(settings={"budget": Limits(calls=5)})
    damage(workshop.directory / "run", "samples", where="number = 20")

    with pytest.warns(UserWarning, match="left out: the sample toy/0019"):
        progress = await workshop.run(**SKIP)

    assert progress.statuses == {"graded": 23}


@pytest.mark.parametrize("table", ["facts", "samples", "turns", "outcomes", "scores"])
async def test_a_missing_table_is_told(run: Path, workshop: Workshop, table: str):
    with contextlib.closing(sqlite3.connect(run / FILE_NAME)) as db:
        db.execute(f"DROP TABLE {table}")

    with pytest.raises(StoreError, match=f"damaged and has no table {table}"):
        study([run])
    with pytest.raises(StoreError, match=f"damaged and has no table {table}"):
        await workshop.run(**RESUME)


def test_damaged_pages_are_told_in_one_sentence(run: Path, tmp_path: Path):
    file = run / FILE_NAME
    content = file.read_bytes()
    file.write_bytes(content[: 5 * 4096] + b"\xff" * (len(content) - 5 * 4096))

    with pytest.raises(StoreError, match=r"cannot be (read|used).*malformed"):
        export(run, "turns", "jsonl", tmp_path / "rows")


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """The folder of a run as kill -9 leaves it: one outcome in the log, which is not merged."""
    store = Store(tmp_path / "alive", create=True)
    store.add_samples([toy_sample(number) for number in range(4)])
    store.put(identity="x", plan={"benchmark": "toy", "models": ["stub/one"]}, scorer="toy@1")
    store.begin()
    score = Scored("toy@1", FINAL, "graded", None, {"choice": 2})
    await store.record_outcome(Finished(1, 1, "graded", None, 0.5, Outcome(Answer("B", 1)), [score]))
    shutil.copytree(tmp_path / "alive", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def counts(folder: Path, **options: Any) -> dict[Any, int]:
    with contextlib.closing(Store(folder, **options)) as store:
        return store.counts(1)


def test_a_killed_run_is_read_whole_however_often(killed: Path):
    assert [counts(killed) for _ in range(3)] == [{"graded": 1}] * 3


@pytest.mark.parametrize("log", [None, b"", b"\x00" * 9000], ids=["missing", "empty", "damaged"])
async def test_a_lost_log_is_told_and_nothing_starts_over(killed: Path, workshop: Workshop, log: bytes | None):
    (killed / LOG_NAME).unlink()
    if log is not None:
        (killed / LOG_NAME).write_bytes(log)

    for _ in range(2):  # the first command must not hide it from the second
        with pytest.raises(StoreError, match=f"the log {LOG_NAME} is missing or damaged.*--skip-damaged"):
            counts(killed)
    with pytest.raises(StoreError, match=LOG_NAME):
        Store(killed, create=True)
    with pytest.warns(UserWarning, match="left out: the newest results"):
        assert counts(killed, skip_damaged=True) == {}


async def test_a_file_that_lost_everything_is_not_taken_for_a_new_run(run: Path, workshop: Workshop):
    (run / FILE_NAME).write_bytes(b"")

    with pytest.raises(PlanError, match="has no plan"):
        await workshop.run(**RESUME)
    with pytest.raises(PlanError, match="has no plan"):
        study([run])


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that another user may enter, unlike those of `tmp_path`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder cannot be written by this process; root, who may write anywhere, becomes nobody for a while."""
    for each in (*folder.rglob("*"), folder):
        each.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)


def test_a_folder_that_cannot_be_written_can_be_read(run: Path, shelf: Path):
    shutil.copytree(run, shelf / "run")

    with read_only(shelf / "run"):
        assert counts(shelf / "run") == {"graded": 24}
        assert study([shelf / "run"]).arms[0].statuses == {"graded": 24}
        assert find_sample(shelf / "run", "toy/0002").id == "toy/0002"


def test_a_log_in_a_folder_that_cannot_be_written_is_not_ignored(killed: Path, shelf: Path):
    shutil.copytree(killed, shelf / "run")

    with read_only(shelf / "run"):
        found = counts(shelf / "run")

    assert found == counts(killed)
    assert found


def test_a_run_of_an_older_version_is_read_in_a_folder_that_cannot_be_written(run: Path, shelf: Path):
    shutil.copytree(run, shelf / "run")
    with contextlib.closing(sqlite3.connect(shelf / "run" / FILE_NAME)) as db:
        db.executescript(
            "ALTER TABLE turns DROP COLUMN thought_tokens; ALTER TABLE outcomes DROP COLUMN at_limit;"
            "ALTER TABLE outcomes DROP COLUMN reading; ALTER TABLE turns DROP COLUMN recorded; PRAGMA user_version = 2;"
        )

    with read_only(shelf / "run"):
        assert study([shelf / "run"]).arms[0].statuses == {"graded": 24}
