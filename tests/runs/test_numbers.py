"""One number cannot end a run: absurd counts, log-probabilities and scores are not given, or fail their sample."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.progress import Progress
from evenhand.core.types import Completion, Generation, Message, Params, TokenLogprob, Unscored, Usage
from evenhand.models.fake import FunctionModel
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.stored import StoredRun
from evenhand.scorers.base import SCORERS, Scorer, Scores
from support.fixtures import Connect, Serve
from support.runs import Workshop
from support.server import Body, Reply, completion, raw, reply_with

QUESTION = [Message("user", "Who?")]
TEXTS: dict[str, Any] = {"benchmark": "realtoxicity_builtin", "methods": ["default"], "limit": 2}
ABSURD: dict[str, Any] = {
    "huge": 10**30,
    "beyond 64 bits": 2**63,
    "negative": -5,
    "text": "many",
    "NaN as text": "NaN",
    "infinity as text": "Infinity",
    "list": [3],
    "true": True,
}


def with_usage(usage: Any) -> Body:
    return completion("A") | {"usage": usage}


def json_of(body: Any) -> Reply:
    """JSON as Python writes it, which has no limit on integers."""

    return raw(json.dumps(body).encode())


@pytest.mark.parametrize("count", ABSURD.values(), ids=ABSURD)
async def test_an_absurd_token_count_is_not_given(serve: Serve, connect: Connect, count: Any):
    usage = {"prompt_tokens": count, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": count}}
    server = await serve(json_of(with_usage(usage | {"total_tokens": count})))

    generation = await connect(server).generate(QUESTION, Params())

    assert generation.usage == Usage(calls=1, completion_tokens=5)


@pytest.mark.parametrize("usage", ["none", 3, [1], None])
async def test_usage_that_is_no_object_is_not_given(serve: Serve, connect: Connect, usage: Any):
    server = await serve(reply_with(with_usage(usage)))

    assert (await connect(server).generate(QUESTION, Params())).usage == Usage(calls=1)


def with_logprobs(logprob: Any, alternative: Any) -> Body:
    body = completion("A")
    top = [{"token": "A", "logprob": logprob}, {"token": "B", "logprob": alternative}]
    body["choices"][0]["logprobs"] = {"content": [{"token": "A", "logprob": logprob, "top_logprobs": top}]}
    return body


@pytest.mark.parametrize("bad", ["NaN", "-0.1", "Infinity", "-Infinity", None, True, 5000.0, [0.0]])
async def test_what_is_no_log_probability_is_not_given(serve: Serve, connect: Connect, bad: Any):
    server = await serve(reply_with(with_logprobs(bad, -0.1)), reply_with(with_logprobs(-0.1, bad)))
    model = connect(server)

    both = [await model.generate(QUESTION, Params(logprobs=2)) for _ in range(2)]

    assert [each.completions[0].logprobs for each in both] == [None, None]


async def test_nan_in_json_costs_the_log_probabilities_and_not_the_answer(serve: Serve, connect: Connect):
    server = await serve(json_of(with_logprobs(float("nan"), -0.1)))

    found = await connect(server).generate(QUESTION, Params(logprobs=2))

    assert found.completions[0].text
    assert found.completions[0].logprobs is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_token_without_a_usable_number_has_no_chance(bad: float):
    assert TokenLogprob("A", bad, (("A", bad), ("B", 0.0))).chances() == {"B": 1.0}


async def run_against(server_url: str, folder: Path) -> Progress:
    plan = make_plan({"benchmark": "toy", "models": ["openai/m"], "limit": 4}, {"base_url": server_url})
    return await Runner(plan, folder, Settings()).run()


async def test_nan_logprobs_are_not_graded_as_the_first_option(workshop: Workshop, serve: Serve):
    def answer(body: Body) -> Reply:
        if "logprobs" in body:
            return reply_with(with_logprobs("NaN", "NaN"))
        return reply_with(completion("none of them, really"))

    server = await serve(answer=answer)

    progress = await run_against(server.url, workshop.directory / "run")

    assert dict(progress.statuses) == {"unscored": 4}


async def test_a_run_survives_absurd_counts_and_can_be_read(workshop: Workshop, serve: Serve):
    counts = {"prompt_tokens": 10**30, "completion_tokens": "5", "total_tokens": 2**63}
    server = await serve(answer=lambda _body: json_of(with_usage(counts)))

    progress = await run_against(server.url, workshop.directory / "run")

    assert progress.statuses["graded"] == 4
    assert 0 < progress.spent.tokens < 10_000  # estimated, as where a server reports nothing
    run = StoredRun.open(workshop.directory / "run")
    assert sum(run.store.usage().values(), Usage()).tokens == progress.spent.tokens
    run.store.close()


async def test_counts_of_a_model_from_elsewhere_are_checked_too(workshop: Workshop):
    class Odd(FunctionModel):
        async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
            return Generation((Completion("A"),), self.spec, Usage(calls=1, prompt_tokens=2**70, completion_tokens=-1))

    workshop.plug("one", Odd(lambda _messages, _params: "A", spec="stub/one"))

    progress = await workshop.run(limit=2)

    assert progress.statuses["graded"] == 2
    assert progress.spent.prompt_tokens < 10_000


@pytest.mark.parametrize(
    "score", [float("nan"), float("inf"), -1.0, 7.0, "0.5", None, 10**400], ids=lambda each: str(each)[:9]
)
async def test_a_score_that_is_no_score_leaves_its_text_unscored(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, score: Any
):
    class Odd(Scorer):
        """Returns what a test wants."""

        name = "odd"
        version = "1"
        attributes = ("toxicity",)

        async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
            return [{"toxicity": score} for _ in texts]

    monkeypatch.setitem(SCORERS._things, "odd", Odd)
    workshop.model(lambda _messages, _params: "A kind text.")

    progress = await workshop.run(**TEXTS, scorers=["odd"])

    assert progress.done == progress.total
    run = StoredRun.open(workshop.directory / "run")
    [(reason, count)] = run.store.unscored(1, "odd@1")
    assert count == progress.total
    assert "the scorer odd gave an invalid score: toxicity is" in reason
    run.store.close()
