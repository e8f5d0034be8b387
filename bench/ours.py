"""Evenhand doing the work of `cases.py`: the real runner with store, response cache, retries, limit and budget.

The benchmark and the method are registered with the public decorators, as a third party would do it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cases import CALLS, CRITIQUE, MAX_TOKENS, REVISE, SYSTEM, question
from stub import REPLY

from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Metric, Selection, share_metric
from evenhand.core.aio import run as run_loop
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Answer, Grade, Message, Outcome, Params, Sample, Unscored
from evenhand.methods.base import method
from evenhand.models.cache import CachedModel, ResponseCache
from evenhand.models.fake import FunctionModel
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.session import Session

_DRAFT = parse_prompt("bench/draft", f"# system\n{SYSTEM}\n\n# user\n{{{{text}}}}")
_CRITIQUE = parse_prompt("bench/critique", f"# user\n{CRITIQUE}")
_REVISE = parse_prompt("bench/revise", f"# user\n{REVISE}")


@BENCHMARKS.register("bench_cases")
class Cases(Benchmark):
    """Any number of open questions; an answer is right when it says that it cannot be told."""

    name = "bench_cases"
    version = "1"
    kind = "answer"
    headline = "right"

    def samples(self, selection: Selection) -> Iterator[Sample]:
        for number in range(selection.limit or 100):
            yield Sample(f"case-{number}", "answer", question(number), target="told", cluster=str(number % 97))

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        assert isinstance(outcome.result, Answer)
        return Grade({"right": sample.target in outcome.result.text})

    def metrics(self) -> Sequence[Metric]:
        return [share_metric("right", "Right", lambda record: bool(record.grade and record.grade["right"]))]


@method("bench_revise", kinds={"answer"})
async def revise(sample: Sample, session: Session) -> Outcome:
    """Draft, critique, revision: three calls in one conversation."""
    params = Params(temperature=0.0, max_tokens=MAX_TOKENS)
    messages = _DRAFT.render(text=sample.prompt)
    for asked, following in ((_DRAFT, _CRITIQUE), (_CRITIQUE, _REVISE)):
        generation = await session.ask(asked, messages, params, agent="answerer")
        messages += (Message("assistant", generation.text), *following.render())
    generation = await session.ask(_REVISE, messages, params, agent="answerer")
    return Outcome(Answer(generation.text))


def run_plan(url: str, samples: int, concurrency: int, scratch: Path, cache: Path | None) -> None:
    """One run of the plan in a directory of its own."""
    model = {"spec": "openai/stub", "base_url": url}
    plan = make_plan({"benchmark": "bench_cases", "methods": "bench_revise", "models": model, "limit": samples})
    settings = Settings(concurrency=concurrency, cache=cache)

    async def work() -> None:
        progress = await Runner(plan, scratch / f"run-{time.monotonic_ns()}", settings).run()
        assert progress.statuses["graded"] == samples, progress

    run_loop(work())


def call_cached(samples: int, file: Path) -> None:
    """`CachedModel.generate` alone, call after call; the model behind it answers at once."""
    params = Params(temperature=0.0, max_tokens=MAX_TOKENS)

    async def work() -> None:
        cache = ResponseCache(file)
        model = CachedModel(FunctionModel(lambda _messages, _params: REPLY), cache)
        for number in range(samples * CALLS):
            await model.generate((Message("system", SYSTEM), Message("user", question(number))), params)
        cache.close()

    run_loop(work())
