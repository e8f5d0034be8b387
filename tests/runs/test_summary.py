"""What a stored run says of itself: each arm by itself, and the run as a whole."""

from evenhand.core.errors import BadResponseError
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
