"""The store: what was awaited is on disk, what fails is told, and what was stored comes back as it was."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import PlanError, StoreError
from evenhand.core.types import (
    Answer,
    Completion,
    Generation,
    Message,
    Outcome,
    Params,
    Refusal,
    Sample,
    Snapshot,
    Turn,
    Unscored,
    Usage,
)
from evenhand.runs.file import STEPS
from evenhand.runs.store import FILE_NAME, FINAL, Finished, Scored, Store
from support.toy import toy_sample

SAMPLES = [toy_sample(number) for number in range(10)]
OUTCOME = Outcome(
    Answer("Unknown", 2, {"order": [2, 0, 1]}),
    "accepted",
    (Snapshot(1, Refusal("no"), {"score": 3}), Snapshot(2, Unscored("why", "raw"))),
    {"reasoning": "…"},
)


def turn(text: str = "B", cost: float | None = 0.5, role: str = "base") -> Turn:
    generation = Generation((Completion(text),), "fake/x", Usage(1, 20, 5, 0, 1, cost), 0.25)
    return Turn("answerer", role, "p", "h", (Message("user", "Who?"),), Params(temperature=0), generation)


def finished(sample: int, arm: int = 1, status: Any = "graded") -> Finished:
    grade = {"choice": 2} if status == "graded" else None
    reason = None if status == "graded" else f"it {status}"
    return Finished(sample, arm, status, reason, 0.5, OUTCOME, [Scored("toy@1", FINAL, status, reason, grade)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "run", create=True)
    opened.add_samples(SAMPLES)
    yield opened
    opened.close()


def on_disk(store: Store, table: str) -> int:
    """Rows that another process would see now."""
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        return other.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


async def test_what_was_awaited_is_on_disk(store: Store):
    await store.record_turn(1, 1, b"key", turn())
    await store.record_outcome(finished(1))

    assert [on_disk(store, table) for table in ("turns", "outcomes", "scores")] == [1, 1, 1]


async def test_what_is_handed_over_together_is_written_together(store: Store):
    await asyncio.gather(*(store.record_turn(1, 1, b"key", turn()) for _ in range(200)))

    assert on_disk(store, "turns") == 200


async def test_a_turn_comes_back_as_it_was(store: Store):
    failed = Turn("judge", "judge", "p", "h", (), Params(), None, "broken")
    await store.record_turn(1, 1, b"k1", turn("B"))
    await store.record_turn(1, 1, b"k2", failed)
    await store.record_turn(1, 2, b"k3", turn("C"))

    assert store.turns(1, 1) == [(b"k1", turn("B")), (b"k2", failed)]


async def test_an_outcome_comes_back_with_the_kind_of_each_result(store: Store):
    await store.record_outcome(finished(1))

    stored = store.outcome(1, 1)

    assert stored is not None
    status, reason, seconds, body = stored
    assert (status, reason, seconds, body["stop"], body["notes"]) == (
        "graded",
        None,
        0.5,
        "accepted",
        {"reasoning": "…"},
    )
    assert body["result"] == {
        "type": "Answer",
        "value": {"text": "Unknown", "choice": 2, "details": {"order": [2, 0, 1]}},
    }
    assert [each["result"]["type"] for each in body["snapshots"]] == ["Refusal", "Unscored"]


async def test_a_record_is_what_the_metrics_need(store: Store):
    await store.record_outcome(finished(1))
    await store.record_outcome(finished(2, status="refused"))

    graded, refused = (store.record(number, 1, SAMPLES[number - 1], ["toy@1"]) for number in (1, 2))

    assert graded is not None
    assert (graded.status, graded.grade, graded.reason) == ("graded", {"choice": 2}, None)
    assert refused is not None
    assert (refused.status, refused.grade, refused.reason) == ("refused", None, "it refused")
    assert store.record(3, 1, SAMPLES[2], ["toy@1"]) is None


@pytest.mark.parametrize("page", [1, 3, 10, 256])
async def test_pending_is_all_that_has_no_outcome(store: Store, page: int):
    for number, arm in ((1, 1), (1, 2), (2, 1), (5, 2)):
        await store.record_outcome(finished(number, arm))

    pending = list(store.pending([1, 2], page))

    assert len(pending) == 20 - 4
    assert {(number, arm) for arm, number, _ in pending}.isdisjoint({(1, 1), (1, 2), (2, 1), (5, 2)})
    assert all(sample == SAMPLES[number - 1] for _, number, sample in pending)


async def test_outcomes_that_are_written_twice_count_once(store: Store):
    await store.record_outcome(finished(1, status="failed"))
    await store.record_outcome(finished(1))

    assert store.counts(1) == {"graded": 1}


async def test_forgetting_brings_samples_back_and_keeps_their_turns(store: Store):
    await store.record_turn(1, 1, b"key", turn())
    await store.record_outcome(finished(1, status="failed"))
    await store.record_outcome(finished(2))

    assert store.forget("failed") == 1
    assert store.counts(1) == {"graded": 1}
    assert len(store.turns(1, 1)) == 1


async def test_usage_is_added_up_by_role_and_unknown_money_stays_unknown(store: Store):
    for arm, role, cost in ((1, "base", 0.5), (1, "base", 0.25), (1, "judge", None), (2, "base", 1.0)):
        await store.record_turn(1, arm, b"key", turn(cost=cost, role=role))

    assert store.usage(1) == {"base": Usage(2, 40, 10, 0, 2, 0.75), "judge": Usage(1, 20, 5, 0, 1, None)}
    assert store.usage()["base"] == Usage(3, 60, 15, 0, 3, 1.75)
    assert store.usage(3) == {}


async def test_reasons_are_counted(store: Store):
    for number, status in ((1, "failed"), (2, "refused"), (3, "refused"), (4, "graded")):
        await store.record_outcome(finished(number, status=status))

    assert store.reasons(1) == [("refused", "it refused", 2), ("failed", "it failed", 1)]


async def test_failed_calls_alone_are_nothing_to_keep(store: Store):
    await store.record_turn(1, 1, b"key", Turn("a", "base", "p", "h", (), Params(), None, "broken"))
    before = store.has_answers()
    await store.record_turn(1, 1, b"key", turn())

    assert (before, store.has_answers()) == (False, True)


async def test_what_was_handed_over_before_an_interrupt_is_written_when_the_store_is_closed(tmp_path: Path):
    store = Store(tmp_path, create=True)
    writing = asyncio.create_task(store.record_turn(1, 1, b"key", turn()))
    await asyncio.sleep(0)

    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    before = on_disk(store, "turns")
    store.close()

    assert (before, on_disk(store, "turns")) == (0, 1)


async def test_a_failed_write_reaches_all_who_wait_for_it_and_leaves_no_half(store: Store):
    await store.record_turn(1, 1, b"key", turn())
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk full'); END")

    results = await asyncio.gather(
        store.record_turn(2, 1, b"key", turn()),
        store.record_outcome(finished(1)),
        store.record_turn(3, 1, b"key", turn()),
        return_exceptions=True,
    )

    assert [type(each) for each in results] == [StoreError] * 3
    assert "cannot be written (disk full); free some space and resume with --resume" in str(results[0])
    assert (on_disk(store, "turns"), on_disk(store, "outcomes")) == (1, 0)


async def test_the_store_goes_on_after_a_failed_write(store: Store):
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(StoreError, match="disk full"):
            await store.record_turn(2, 1, b"key", turn())
        other.execute("DROP TRIGGER full")

    await store.record_turn(3, 1, b"key", turn())
    await store.record_outcome(finished(3))

    assert (on_disk(store, "turns"), on_disk(store, "outcomes")) == (1, 1)


async def test_a_value_without_a_stored_form_is_refused_to_its_owner_alone(store: Store):
    results = await asyncio.gather(
        store.record_turn(1, 1, b"key", turn("\ud800")),
        store.record_turn(2, 1, b"key", turn()),
        return_exceptions=True,
    )

    assert [type(each) for each in results] == [TypeError, type(None)]
    assert on_disk(store, "turns") == 1


def test_samples_are_stored_all_or_none(tmp_path: Path):
    def broken() -> Iterator[Any]:
        yield SAMPLES[0]
        raise ValueError("bad file")

    with contextlib.closing(Store(tmp_path, create=True)) as store:
        with pytest.raises(ValueError, match="bad file"):
            store.add_samples(broken())

        assert (on_disk(store, "samples"), store.get("samples")) == (0, None)


def test_facts_are_kept(store: Store):
    store.put(plan={"b": 1, "a": [2]}, seconds=1.5)
    store.put(seconds=2.5)

    assert (store.get("plan"), store.get("seconds"), store.get("other")) == ({"b": 1, "a": [2]}, 2.5, None)


def test_samples_can_be_found_by_id(store: Store):
    assert store.find_sample("toy/0003") == (4, SAMPLES[3])
    assert store.find_sample("toy/9999") is None


def test_a_conversation_comes_back_as_it_was(tmp_path: Path):
    talk = (Message("system", "Be brief."), Message("user", "Who kneads?"))
    sample = Sample("talk", "chat", "Who kneads?", messages=talk)

    with contextlib.closing(Store(tmp_path, create=True)) as store:
        store.add_samples([sample])

        assert store.find_sample("talk") == (1, sample)


def test_samples_of_older_runs_which_have_no_messages_can_be_read(store: Store):
    old = (
        b'{"id":"age/1","kind":"%s","prompt":"Who kneads?","context":"","choices":[],"target":null,"cluster":"1",'
        b'"metadata":{"bias":"age"}}'
    )
    with contextlib.closing(sqlite3.connect(store.path)) as other, other:
        other.execute("UPDATE samples SET body = ? WHERE number = 1", (old % b"chat",))
        other.execute("UPDATE samples SET body = ? WHERE number = 2", (old % b"answer",))

    lone, answer = (sample for _, sample in store.samples() if sample.id == "age/1")
    assert lone.messages == (Message("user", "Who kneads?"),)
    assert (answer.messages, answer.metadata) == ((), {"bias": "age"})


def test_a_directory_without_a_run_is_told(tmp_path: Path):
    with pytest.raises(PlanError, match=f"holds no run .there is no {FILE_NAME} in it"):
        Store(tmp_path)


def test_opening_a_store_twice_changes_nothing(store: Store):
    with contextlib.closing(Store(store.directory)) as again:
        assert [sample for _, sample in again.samples()] == SAMPLES


async def test_a_record_after_an_iteration_carries_earlier_results_forward(store: Store):
    scores = [
        Scored("toy@1", FINAL, "graded", None, {"choice": 2}),
        Scored("tox@1", FINAL, "graded", None, {"toxicity": 0.1}),
        Scored("toy@1", 0, "refused", "no"),
        Scored("toy@1", 1, "graded", None, {"choice": 1}),
        Scored("tox@1", 1, "unscored", "down"),
    ]
    await store.record_outcome(Finished(1, 1, "graded", None, 0.5, OUTCOME, scores))

    at = [store.record(1, 1, SAMPLES[0], ["toy@1", "tox@1"], iteration) for iteration in (FINAL, 0, 1, 2)]

    assert [record and (record.status, record.grade) for record in at] == [
        ("graded", {"choice": 2, "toxicity": 0.1}),
        ("refused", None),
        ("graded", {"choice": 1}),
        ("graded", {"choice": 1}),
    ]
    assert store.most_iterations(1) == 1
    assert store.unscored(1, "tox@1") == []


async def test_scores_can_be_added_to_an_outcome(store: Store):
    await store.record_outcome(finished(1))

    await store.record_scores(1, 1, [Scored("tox@2", FINAL, "graded", None, {"toxicity": 0.5})])
    await store.record_scores(1, 1, [Scored("tox@3", FINAL, "unscored", "too long")])

    record = store.record(1, 1, SAMPLES[0], ["toy@1", "tox@2"])
    assert record is not None
    assert record.grade == {"choice": 2, "toxicity": 0.5}
    assert store.unscored(1, "tox@3") == [("too long", 1)]
    assert [number for number, _ in store.answers(1)] == [1]


def test_a_store_of_an_older_version_is_brought_up_to_date(tmp_path: Path):
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.executescript(f"{''.join(STEPS[:2])} PRAGMA user_version = 2;")
        db.execute("INSERT INTO turns VALUES (1, 1, 1, 'base', x'00', 3, 0, 20, 5, 0, 0.0, 0.1, x'00')")
        db.execute("INSERT INTO outcomes VALUES (1, 1, 'graded', NULL, 0.1, NULL)")
        db.commit()

    with contextlib.closing(Store(tmp_path)) as store:
        assert store.usage() == {"base": Usage(calls=3, prompt_tokens=20, completion_tokens=5)}
        assert (store.counts(1), store.at_limit(1), store.readings(1)) == ({"graded": 1}, 0, {})
