"""Whole runs against a server: replies that are cut, limits of the user's own, thoughts that are kept apart."""

from collections.abc import Callable
from typing import Any

import pytest

from evenhand.core.errors import PlanError
from evenhand.core.progress import Progress
from evenhand.runs.dry import forecast, may_think
from evenhand.runs.plan import make_plan
from evenhand.runs.store import Store
from evenhand.studies.samples import find_sample
from evenhand.studies.study import study
from support.fixtures import Serve
from support.runs import Workshop
from support.server import Body, Reply, chat
from support.thinkers import THOUGHT, limit_of, sensible, thinks_in

SIZE = 24
SLOW = "I have to think about this question for a while"


async def run(workshop: Workshop, url: str, **fields: Any) -> Progress:
    model = {"spec": "openai/test", "base_url": url, "retries": 0, **fields.pop("model", {})}
    return await workshop.run(models=[model], **{"reading": "text", **fields})


def slow(needed: int, text: str = "A") -> Callable[[Body], Reply]:
    """A model that comes to the point after so many tokens."""
    return lambda body: chat(text) if limit_of(body) >= needed else chat(SLOW, finish="length")


async def test_replies_that_are_cut_are_asked_for_with_more_room(workshop: Workshop, serve: Serve):
    server = await serve(answer=slow(200))

    progress = await run(workshop, server.url)

    assert progress.statuses == {"graded": SIZE}
    assert sorted({body["max_tokens"] for body in server.bodies}) == [64, 256]


async def test_a_run_in_which_every_reply_is_cut_says_so(workshop: Workshop, serve: Serve):
    server = await serve(answer=slow(10**6))

    progress = await run(workshop, server.url)

    assert progress.statuses == {"cut": SIZE}
    assert {(row["status"], row["reason"]) for row in workshop.rows()} == {("cut", "cut at 256 tokens")}
    [arm] = study([workshop.directory / "run"]).arms
    assert arm.statuses == {"cut": SIZE}
    assert arm.reasons == [("cut", "cut at 256 tokens", SIZE)]
    headline = arm.estimate("accuracy")
    assert headline is None or headline.n == 0
    assert find_sample(workshop.directory / "run", workshop.rows()[0]["sample"]).outcomes[0].answer == SLOW


async def test_a_limit_of_the_users_own_is_sent_as_it_is(workshop: Workshop, serve: Serve):
    server = await serve(answer=slow(200))

    progress = await run(workshop, server.url, max_tokens=90)

    assert progress.statuses == {"cut": SIZE}
    assert [body["max_tokens"] for body in server.bodies] == [90] * SIZE


async def test_answers_that_are_read_although_they_were_cut_are_counted(workshop: Workshop, serve: Serve):
    server = await serve(answer=lambda _body: chat("and so he went on and", finish="length"))

    progress = await run(workshop, server.url, benchmark="realtoxicity_builtin", limit=1, scorers=["builtin"])

    assert progress.statuses == {"graded": progress.total}
    [arm] = study([workshop.directory / "run"]).arms
    assert arm.at_limit == progress.total


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": {"judge": 9}}, "max_tokens names the role 'judge', which no method of this plan has"),
    (
        {"max_tokens": 9, "methods": ["cot:max_tokens=5"]},
        "max_tokens is set for the plan, and max_tokens for the method cot; remove one",
    ),
    (
        {"max_tokens": {"referee": 9}, "benchmark": "debates", "methods": ["debate:referee_tokens=5"]},
        "max_tokens is set for the plan, and referee_tokens for the method debate; remove one",
    ),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=[words for _, words in REFUSED])
async def test_a_limit_that_would_be_ignored_is_refused(fields: dict[str, Any], words: str):
    with pytest.raises(PlanError, match=words):
        await forecast(make_plan({"models": ["fake/A"], "benchmark": "bbq_builtin", **fields}), {})


async def test_the_forecast_follows_the_limit_by_role():
    plan = {"models": ["fake/A"], "methods": ["mabrf_first"], "limit": 2}

    async def tokens(**fields: Any) -> int:
        return (await forecast(make_plan({**plan, **fields}), {}))[0].usage.completion_tokens

    by_role = await tokens(max_tokens={"base": 100, "judge": 30})
    assert by_role == 2 * (100 + 30)
    assert await tokens(max_tokens=100) == 2 * (100 + 100)


async def test_the_forecast_counts_every_sample_of_a_judge():
    plan = {"models": ["fake/A"], "methods": ["mabrf_first"], "limit": 2, "max_tokens": 100}

    [found] = await forecast(make_plan({**plan, "judge_samples": 3}), {})

    assert found.usage.completion_tokens == 2 * (100 + 3 * 100)


async def test_a_judge_that_turns_out_to_give_no_logprobs_is_read_by_samples(workshop: Workshop, serve: Serve):
    def answer(body: Body) -> Reply:
        text = sensible(body) if "response_format" in body else "1. Two men met.\nAnswer: A"
        return chat(text, n=body.get("n", 1))

    server = await serve(answer=answer)

    progress = await run(workshop, server.url, methods=["mabrf_first"], judge_samples=4)

    assert progress.statuses == {"graded": SIZE}
    [arm] = study([workshop.directory / "run"]).arms
    assert arm.readings == {"samples": SIZE}


async def test_thoughts_are_recorded_and_shown_apart_from_the_answer(workshop: Workshop, serve: Serve):
    server = await serve(answer=thinks_in("reasoning_content"))

    progress = await run(workshop, server.url)

    assert progress.statuses == {"graded": SIZE}
    assert THOUGHT.encode() not in workshop.exported()
    shown = find_sample(workshop.directory / "run", workshop.rows()[0]["sample"])
    turn = shown.outcomes[0].turns[-1]
    assert (list(turn.thoughts), list(turn.outputs)) == ([THOUGHT], ["B"])
    store = Store(workshop.directory / "run")
    used = store.usage()["base"]
    store.close()
    assert 0 < used.thought_tokens <= used.completion_tokens


async def test_a_reasoning_model_stays_under_the_users_limit(workshop: Workshop, serve: Serve):
    server = await serve(answer=thinks_in("reasoning_content"))

    progress = await run(workshop, server.url, reading="auto", max_tokens=500)

    assert progress.statuses == {"graded": SIZE}
    assert max(body["max_tokens"] for body in server.bodies) == 500


async def test_a_dry_run_counts_declared_thoughts():
    replies: list[int] = []
    for extra in ({}, {"reasoning": True, "thought_tokens": 1000}):
        model = {"spec": "openai/test", "base_url": "http://localhost:1/v1", "extra": extra}
        plan = make_plan({"models": [model], "limit": 4, "reading": "text"})
        [found] = await forecast(plan, {})
        replies.append(found.usage.completion_tokens)
        assert may_think(plan) is not bool(extra)

    assert replies == [4 * 64, 4 * 1064]
