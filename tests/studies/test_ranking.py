"""Ranks: decided by paired tests, shared where nothing is decided."""

import re
from collections.abc import Sequence

from evenhand.core.types import Message, Params
from evenhand.studies.agreement import ranking
from evenhand.studies.study import study
from support.runs import Workshop
from support.toy import OTHER, STEREOTYPED, UNKNOWN


def answering(*texts: str):
    """Choose the options with these texts in turn, by the number of the case, whatever letters they have."""

    def answer(messages: Sequence[Message], params: Params) -> str:
        del params
        asked = messages[-1].content
        number = int(re.search(r"in case (\d+)", asked)[1])
        text = texts[number // 2 % len(texts)]
        line = next(each for each in asked.splitlines() if each.rstrip().endswith(text))
        return line.strip().lstrip("(").strip()[:1]

    return answer


async def test_an_arm_that_is_decidedly_better_ranks_before_the_others(workshop: Workshop):
    workshop.model(answering(STEREOTYPED), "worse")
    workshop.model(answering(STEREOTYPED, OTHER), "better")
    await workshop.run("worse", models=["stub/worse"], seeds=[0, 1], benchmark_options={"size": 96, "clusters": 48})
    await workshop.run("better", models=["stub/better"], benchmark_options={"size": 96, "clusters": 48})

    found = ranking([workshop.directory / "worse", workshop.directory / "better"])

    assert [(each.id, each.rank) for each in found] == [("2.1", 1), ("1.1", 2), ("1.2", 2)]
    assert found[0].estimate is not None
    assert found[0].estimate.value == 0
    assert found[0].samples == 96


async def test_some_arms_are_ranked_and_studied(workshop: Workshop):
    workshop.model(answering(UNKNOWN))
    await workshop.run(seeds=[0, 1, 2])

    assert [each.id for each in ranking([workshop.directory / "run"], ["1.1", "1.3"])] == ["1.1", "1.3"]
    assert [arm.id for arm in study([workshop.directory / "run"], arms=["1.1", "1.3"]).arms] == ["1.1", "1.3"]
