"""The dry run's calls are those that are made, at servers as people run them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.runs.dry import forecast
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from support.server import Body, ChatServer, Reply, chat, completion, reply_with
from support.thinkers import SERVERS


def scores(body: Body) -> Reply:
    """Gives log-probabilities."""
    return chat("B", logprobs=bool(body.get("logprobs")))


def scores_nothing(body: Body) -> Reply:
    """Ignores that log-probabilities are wanted."""
    return chat("B")


def wordy(body: Body) -> Reply:
    """Gives log-probabilities, and begins every answer with other words."""
    if body.get("max_tokens") == 1:
        return reply_with(completion("Well", finish="length", logprobs=True))
    return chat("Well, the answer is B.")


KINDS: dict[str, Callable[[Body], Reply]] = {
    "logprobs": scores,
    "no logprobs": scores_nothing,
    "wordy": wordy,
    "reasoning": SERVERS["deepseek-r1 and llama.cpp"],
    "reasoning in the text": SERVERS["qwen3 without a parser"],
}


@pytest.mark.parametrize("method", ["default", "cot"])
@pytest.mark.parametrize("kind", KINDS)
async def test_as_many_calls_are_made_as_forecast(kind: str, method: str, tmp_path: Path):
    server = await ChatServer(answer=KINDS[kind]).start()
    plan = make_plan({"models": [f"openai/x?base_url={server.url}"], "methods": [method], "limit": 110})
    [expected] = await forecast(plan, {})

    done = await Runner(plan, tmp_path / "r", Settings(cache=tmp_path / "cache.sqlite")).run()
    await server.stop()

    assert done.statuses == {"graded": 110}
    assert 0.8 * expected.least_calls <= done.spent.calls <= 1.2 * expected.usage.calls
    if kind != "wordy":
        assert done.spent.calls <= 1.2 * expected.least_calls


async def test_the_forecast_is_a_range_where_answers_may_be_asked_for_again():
    [scored] = await forecast(make_plan({"models": ["openai/x?base_url=http://a/v1"], "limit": 110}), {})
    [plain] = await forecast(make_plan({"models": ["fake/A"], "limit": 110}), {})

    assert (scored.least_calls, scored.usage.calls) == (110, 220)
    assert (plain.least_calls, plain.usage.calls) == (110, 110)


async def test_a_judge_that_replies_in_lines_is_not_forecast_to_be_asked_again():
    fields = {"models": ["fake/A"], "benchmark": "bbq_builtin", "methods": ["mabrf:preset=paper"], "limit": 11}
    [expected] = await forecast(make_plan(fields), {})

    assert expected.least_calls == 11 * 13
