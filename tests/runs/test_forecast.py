"""The dry run's calls are those that are made, at servers as people run them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenhand.benchmarks.base import Selection
from evenhand.cli.run import print_forecast
from evenhand.core.types import Sample
from evenhand.runs import dry
from evenhand.runs.dry import Drawn, forecast
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.request import PlannedRun
from evenhand.runs.runner import Runner
from support.runs import Workshop
from support.server import Body, ChatServer, Reply, chat, completion, reply_with
from support.thinkers import SERVERS
from support.toy import Toy


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


async def test_runs_of_one_benchmark_share_the_samples_that_are_tried(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
):
    read: list[int] = []
    samples = Toy.samples

    def counted(toy: Toy, selection: Selection) -> Iterator[Sample]:
        read.append(toy.options.size)
        return samples(toy, selection)

    monkeypatch.setattr(Toy, "samples", counted)
    plans = [
        make_plan({"benchmark": "toy", "models": [f"fake/{name}"], "benchmark_options": {"size": size}, **fields})
        for name, size, fields in (
            ("A", 24, {}),
            ("B", 24, {"methods": ["cot"]}),
            ("C", 48, {}),
            ("D", 48, {"limit": 30}),
            ("E", 48, {"seeds": [2]}),
        )
    ]
    alone = [await forecast(plan, {}) for plan in plans]
    read.clear()
    drawn: Drawn = {}

    together = [await forecast(plan, {}, drawn=drawn) for plan in plans]

    assert together == alone
    assert [found[0].samples for found in together] == [24, 24, 48, 30, 48]
    assert read == [24, 24, *[48] * 6]


def test_a_table_of_several_runs_reads_the_samples_once(workshop: Workshop, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    draw = dry._draw
    monkeypatch.setattr(dry, "_draw", lambda benchmark, *more: (read.append(benchmark.name), draw(benchmark, *more))[1])
    plans = [make_plan({"benchmark": "toy", "models": [f"fake/{name}"]}) for name in "AB"]

    print_forecast(*(PlannedRun(plan, Settings(), workshop.directory / "r") for plan in plans))

    assert read == ["toy"]
