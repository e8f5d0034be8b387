"""What a stored run says of itself: each arm by itself, and the run as a whole."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from evenhand.core.errors import BadResponseError, PlanError
from evenhand.runs.file import locked
from evenhand.runs.store import Store
from evenhand.runs.summary import read_summary
from support.runs import Workshop
from support.toy import right_answer

SIZE = 24


async def test_an_arm_without_a_result_is_named_though_another_was_measured(workshop: Workshop):
    workshop.model(lambda messages, _params: right_answer(messages))
    workshop.model(lambda _messages, _params: BadResponseError("broken JSON"), "two")
    await workshop.run(models=["stub/one", "stub/two"])

    summary = read_summary(workshop.directory / "run")

    assert not summary.nothing_measured
    assert [(arm.label, arm.done) for arm in summary.unmeasured] == [("stub/two", SIZE)]
    assert summary.state == "failed in 1 of 2 arms"


async def test_an_arm_with_one_result_is_measured(workshop: Workshop):
    refusals = iter(["I'm sorry, but I can't help with that."])
    workshop.model(lambda _messages, _params: next(refusals, "Hard to say."))
    await workshop.run()

    summary = read_summary(workshop.directory / "run")

    assert summary.arms[0].ungraded == SIZE - 1
    assert not summary.unmeasured
    assert summary.state == "complete"


async def test_a_run_that_ends_while_it_is_read_did_not_stop_early(workshop: Workshop, monkeypatch: pytest.MonkeyPatch):
    workshop.model(lambda messages, _params: right_answer(messages))
    await workshop.run()
    with ExitStack() as process:
        process.enter_context(locked(workshop.directory / "run"))

        def counts_before_the_end(*_: object) -> dict[str, int]:
            process.close()
            return {"graded": SIZE - 1}

        monkeypatch.setattr(Store, "counts", counts_before_the_end)
        assert read_summary(workshop.directory / "run").state == "running"


def test_a_run_whose_plan_is_not_stored_yet_is_starting(tmp_path: Path):
    with closing(Store(tmp_path, create=True)):
        pass
    with locked(tmp_path), pytest.raises(PlanError, match="is starting"):
        read_summary(tmp_path)
    with pytest.raises(PlanError, match="has no plan"):
        read_summary(tmp_path)
