"""Stopping and going on: what was paid for is kept, what is missing is done, and nothing is done twice."""

import asyncio
import resource
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import BadResponseError, BudgetExhausted, PlanError, StoreError
from evenhand.core.types import Message, Params
from evenhand.models.budget import Limits, Price
from evenhand.models.fake import FunctionModel
from evenhand.runs.file import locked
from evenhand.runs.runner import Runner
from evenhand.runs.store import FILE_NAME, Store
from support.runs import Workshop
from support.toy import right_answer

SIZE = 24
METHODS = {"methods": ["default", "cot"]}
CALLS = 3 * SIZE
"""One for `default`, two for `cot`."""
RESUME: dict[str, Any] = {"settings": {"resume": True}}


def right(messages: Sequence[Message], _params: Params) -> str:
    return right_answer(messages)


async def test_the_same_plan_gives_the_same_bytes_in_whatever_order_things_happen(workshop: Workshop):
    workshop.model(right)

    await workshop.run("one", settings={"concurrency": 1}, **METHODS)
    await workshop.run("two", settings={"concurrency": 50}, **METHODS)

    assert workshop.exported("one") == workshop.exported("two")
    assert workshop.exported("one", "metrics") == workshop.exported("two", "metrics")
    assert len(workshop.rows("one")) == 2 * SIZE


async def test_with_a_cache_the_second_run_makes_no_call_and_gives_the_same_bytes(workshop: Workshop, tmp_path: Path):
    cache = {"settings": {"cache": tmp_path / "cache.sqlite"}}
    first = workshop.model(right)
    await workshop.run("one", **cache, **METHODS)
    second = workshop.model(right)

    progress = await workshop.run("two", **cache, **METHODS)

    assert (len(first.requests), len(second.requests)) == (CALLS, 0)
    assert (progress.spent.calls, progress.spent.tokens) == (0, 0)
    assert workshop.exported("one") == workshop.exported("two")


async def test_another_seed_gives_another_order(workshop: Workshop):
    workshop.model(lambda *_: "A")

    await workshop.run("one")
    await workshop.run("two", seeds=[1])

    answers = [[row["answer"] for row in workshop.rows(folder)] for folder in ("one", "two")]
    assert answers[0] != answers[1]


async def test_a_finished_run_that_is_resumed_does_nothing(workshop: Workshop):
    model = workshop.model(right)
    await workshop.run()
    before = workshop.exported()

    progress = await workshop.run(**RESUME)

    assert (progress.already, progress.done, progress.total) == (SIZE, SIZE, SIZE)
    assert len(model.requests) == SIZE
    assert workshop.exported() == before


@pytest.mark.parametrize("limits", [Limits(calls=30), Limits(tokens=4000), Limits(money=0.004)], ids=str)
async def test_a_run_that_the_budget_stopped_is_completed_with_exactly_the_missing_calls(
    workshop: Workshop, limits: Limits
):
    def settings(**more: Any) -> dict[str, Any]:
        return {"settings": {"prices": {"stub/one": Price(1.0, 1.0)}, "concurrency": 4, **more}, "max_tokens": 5}

    model = workshop.model(right)
    stopped = await workshop.run(**settings(budget=limits), **METHODS)
    first = len(model.requests)

    completed = await workshop.run(**settings(resume=True), **METHODS)
    workshop.model(right)
    await workshop.run("whole", **settings(), **METHODS)

    assert stopped.stopped is not None
    assert "could exceed the budget" in stopped.stopped
    assert 0 < first < CALLS
    assert 0 < stopped.done < 2 * SIZE
    assert stopped.spent.calls <= (limits.calls or CALLS)
    assert stopped.spent.tokens <= (limits.tokens or 10**9)
    assert (stopped.spent.cost or 0) <= (limits.money or 10**9)
    assert (completed.stopped, completed.done) == (None, 2 * SIZE)
    assert len(model.requests) == CALLS
    assert workshop.exported() == workshop.exported("whole")


async def test_a_budget_counts_what_earlier_sessions_spent(workshop: Workshop):
    model = workshop.model(right)
    await workshop.run(settings={"budget": Limits(calls=10)})

    progress = await workshop.run(settings={"budget": Limits(calls=10), "resume": True})

    assert (len(model.requests), progress.done) == (10, 10)
    assert progress.stopped is not None


async def test_a_budget_in_money_without_a_price_is_refused_before_anything_is_spent(workshop: Workshop):
    priced, unpriced = workshop.model(right), workshop.model(right, "two")
    priced.free = unpriced.free = False  # pyright: ignore

    with pytest.raises(Exception, match="pass --price stub/two=INPUT/OUTPUT"):
        await workshop.run(
            models=["stub/one", "stub/two"],
            settings={"budget": Limits(money=1.0), "prices": {"stub/one": Price(1, 1)}},
        )

    assert priced.requests == unpriced.requests == []
    assert not (workshop.directory / "run").exists()


async def test_a_run_is_not_overwritten_by_accident(workshop: Workshop):
    workshop.model(right)
    await workshop.run()
    before = workshop.exported()

    with pytest.raises(PlanError, match="holds a run already; pass --resume to go on with it, or another --out"):
        await workshop.run()

    assert workshop.exported() == before


OTHER_PLANS: list[dict[str, Any]] = [
    {"methods": ["cot"]},
    {"models": ["stub/two"]},
    {"seeds": [1]},
    {"orders": 3},
    {"reading": "text"},
    {"limit": 3},
    {"benchmark_options": {"size": 12}},
    {"benchmark_options": {"version": "2"}},
    {"temperature": 0.5},
]


@pytest.mark.parametrize("fields", OTHER_PLANS, ids=str)
async def test_a_run_is_not_mixed_with_another_plan(workshop: Workshop, fields: dict[str, Any]):
    workshop.model(right)
    workshop.model(right, "two")
    await workshop.run()
    before = workshop.exported()

    with pytest.raises(PlanError, match="holds a run of another plan"):
        await workshop.run(**RESUME, **fields)

    assert workshop.exported() == before


async def test_a_run_is_not_resumed_under_other_defaults(workshop: Workshop):
    workshop.model(right)
    await workshop.run(**METHODS, settings={"budget": Limits(calls=10)})
    with closing(Store(workshop.directory / "run")) as store:
        stored = store.get("options")
        store.put(options={**stored, "2": {**stored["2"], "max_tokens": 100}})

    with pytest.raises(PlanError, match="holds a run with max_tokens=100, which a newer version has changed to 256"):
        await workshop.run(**METHODS, **RESUME)


async def test_a_run_of_a_version_that_stored_no_options_can_be_resumed(workshop: Workshop):
    workshop.model(right)
    await workshop.run(**METHODS, settings={"budget": Limits(calls=10)})
    with closing(Store(workshop.directory / "run")) as store:
        store.put(options=None)

    assert (await workshop.run(**METHODS, **RESUME)).done == 2 * SIZE


async def test_patience_with_the_endpoint_may_change_between_sessions(workshop: Workshop):
    workshop.model(right)
    await workshop.run()

    progress = await workshop.run(models=[{"spec": "stub/one", "timeout": 600, "retries": 20}], **RESUME)

    assert progress.already == SIZE


async def test_a_directory_with_other_things_in_it_is_left_alone(workshop: Workshop):
    folder = workshop.directory / "run"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    model = workshop.model(right)

    with pytest.raises(PlanError, match="is not empty and holds no run"):
        await workshop.run()

    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    assert model.requests == []


async def test_a_file_is_no_directory(workshop: Workshop):
    (workshop.directory / "run").write_text("")
    workshop.model(right)

    with pytest.raises(PlanError, match=r"cannot hold a run: Not a directory"):
        await workshop.run()


async def test_a_directory_below_a_file_is_refused_with_a_sentence(workshop: Workshop):
    (workshop.directory / "file").write_text("")
    workshop.model(right)

    with pytest.raises((PlanError, StoreError), match="cannot"):
        await workshop.run("file/run")


async def test_an_empty_directory_is_used(workshop: Workshop):
    (workshop.directory / "run").mkdir()
    workshop.model(right)

    assert (await workshop.run()).done == SIZE


async def test_a_directory_in_use_is_refused_and_not_touched(workshop: Workshop):
    workshop.model(right)
    await workshop.run()
    before = workshop.exported()

    with locked(workshop.directory / "run"), pytest.raises(PlanError, match="Another process is running in"):
        await workshop.run(**RESUME)

    assert workshop.exported() == before


async def test_a_run_that_is_just_being_made_is_not_taken_back_by_a_second_one(workshop: Workshop):
    workshop.model(right)
    folder = workshop.directory / "run"

    with locked(folder):
        store = Store(folder, create=True)
        with pytest.raises(PlanError, match="Another process is running in"):
            await workshop.run(**RESUME)
        store.close()

    assert (folder / FILE_NAME).exists()


def test_the_lock_is_free_again_after_use(tmp_path: Path):
    for _ in range(2):
        with locked(tmp_path / "run"):
            pass

    with locked(tmp_path / "run"), pytest.raises(PlanError), locked(tmp_path / "run"):
        pass


async def test_a_run_without_a_plan_does_not_start_over_unnoticed(workshop: Workshop):
    workshop.model(right)
    store = Store(workshop.directory / "run", create=True)
    store.add_samples([])
    store.close()

    with pytest.raises(PlanError, match=r"has no plan: .* Remove the folder to begin again"):
        await workshop.run(**RESUME)


async def test_failed_samples_are_run_again_when_asked_for(workshop: Workshop):
    failing = {"on": True}

    def answer(messages: Sequence[Message], params: Params) -> Any:
        last_turn = messages[-1].content.startswith("Now answer")
        return BadResponseError("broken") if failing["on"] and last_turn else right(messages, params)

    model = workshop.model(answer)
    first = await workshop.run(methods=["cot"])
    failing["on"] = False

    unchanged = await workshop.run(methods=["cot"], **RESUME)
    mended = await workshop.run(methods=["cot"], settings={"resume": True, "retry_failed": True})

    assert first.statuses == unchanged.statuses == {"failed": SIZE}
    assert mended.statuses == {"graded": SIZE}
    # Their reasoning was answered before and is not asked for again.
    assert len(model.requests) == 3 * SIZE


async def test_an_interrupted_run_keeps_what_it_has_and_is_completed(workshop: Workshop):
    gate = asyncio.Event()

    class Slow(FunctionModel):
        async def generate(self, messages: Sequence[Message], params: Params) -> Any:
            if len(self.requests) >= 20:
                gate.set()
                await asyncio.Event().wait()
            return await super().generate(messages, params)

    slow = Slow(right, spec="stub/one")
    workshop.plug("one", slow)
    task = asyncio.create_task(workshop.run(**METHODS))
    await gate.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    model = workshop.model(right)
    progress = await workshop.run(**METHODS, **RESUME)
    workshop.model(right)
    await workshop.run("whole", **METHODS)

    assert progress.done == 2 * SIZE
    assert len(slow.requests) + len(model.requests) == CALLS
    assert workshop.exported() == workshop.exported("whole")


@contextmanager
def largest_file(size: int) -> Generator[None]:
    """As on a full disk: no file of this process can grow beyond `size`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_is_full_at_once_leaves_no_run_and_says_so(workshop: Workshop):
    workshop.model(right)

    with largest_file(90_000), pytest.raises(StoreError, match="no answer was stored; free some space and begin again"):
        await workshop.run(benchmark_options={"size": 200}, **METHODS)

    assert not (workshop.directory / "run").exists()
    progress = await workshop.run(benchmark_options={"size": 20}, **METHODS)
    assert progress.statuses == {"graded": 40}


async def test_a_full_disk_ends_the_run_with_a_sentence_and_loses_nothing(workshop: Workshop):
    model = workshop.model(right)

    with (
        largest_file(300_000),
        pytest.raises(StoreError, match=r"cannot be written \(.*\); free some space and resume"),
    ):
        await workshop.run(benchmark_options={"size": 200}, settings={"concurrency": 4}, **METHODS)
    kept = len(workshop.rows())
    asked = len(model.requests)
    progress = await workshop.run(benchmark_options={"size": 200}, **METHODS, **RESUME)

    assert 0 < kept < 400
    assert progress.already == kept
    assert progress.statuses == {"graded": 400}
    # Only calls whose turns were not written any more are made again.
    assert asked < 600 <= len(model.requests) <= 600 + 8


async def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(workshop: Workshop):
    workshop.model(right)

    with largest_file(4096), pytest.raises(StoreError):
        await workshop.run(benchmark_options={"size": 200})

    assert not (workshop.directory / "run" / FILE_NAME).exists()


async def test_a_commit_that_fails_once_ends_the_run_and_the_rest_is_done_later(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
):
    model = workshop.model(right)
    commit = Store._commit
    commits = 0

    def fail_at_the_third(self: Store, batch: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == 3:
            raise StoreError("The run cannot be written (database or disk is full).")
        commit(self, batch)

    monkeypatch.setattr(Store, "_commit", fail_at_the_third)
    with pytest.raises(StoreError, match="disk is full"):
        await workshop.run(settings={"concurrency": 2})
    progress = await workshop.run(**RESUME)

    assert progress.statuses == {"graded": SIZE}
    assert len(workshop.rows()) == SIZE
    assert len(model.requests) <= SIZE + 6


@pytest.mark.parametrize("content", [b"", b"no database" * 500])
async def test_a_store_that_is_no_store_is_told(workshop: Workshop, content: bytes):
    folder = workshop.directory / "run"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(content)
    workshop.model(right)

    # An empty file is what a kill at the very start leaves, or a disk that lost everything.
    with pytest.raises((StoreError, PlanError), match="file is not a database" if content else "has no plan"):
        await workshop.run(**RESUME)
    assert (folder / FILE_NAME).read_bytes().startswith(content)


async def test_a_damaged_store_is_told_as_such(workshop: Workshop):
    workshop.model(right)
    await workshop.run(benchmark_options={"size": 300}, settings={"budget": Limits(calls=100)})
    file = workshop.directory / "run" / FILE_NAME
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

    with pytest.raises(StoreError, match=r"cannot be (read|used|written)"):
        await workshop.run(benchmark_options={"size": 300}, **RESUME)


async def test_a_run_of_a_newer_version_is_left_alone(workshop: Workshop):
    workshop.model(right)
    await workshop.run()
    with sqlite3.connect(workshop.directory / "run" / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(PlanError, match="newer version of Evenhand; upgrade to open it"):
        await workshop.run(**RESUME)


async def test_running_out_of_budget_is_no_error(workshop: Workshop):
    workshop.model(lambda *_: BudgetExhausted("the next call could exceed the budget of 0 calls"))

    progress = await workshop.run()

    assert (progress.done, progress.stopped) == (0, "the next call could exceed the budget of 0 calls")


async def test_a_runner_can_be_given_a_relative_directory(workshop: Workshop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(workshop.directory)
    workshop.model(right)
    runner = workshop.runner()

    progress = await Runner(runner.plan, Path("here/and/there"), runner.settings).run()

    assert progress.done == SIZE
    assert (workshop.directory / "here" / "and" / "there" / FILE_NAME).exists()
