"""Scorers of Inspect: the grade of our benchmarks with all their metrics, and our scorers of texts; and its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import TaskState

from evenhand.benchmarks.base import Benchmark, Selection, load_benchmark
from evenhand.core.registry import code_refused
from evenhand.core.types import Answer, Record, Refusal, SampleKind, Status, Unscored
from evenhand.integrations.inspect.samples import KEY, inspect_sample, outcome_of, own_sample, plain_errors, sample_of
from evenhand.integrations.inspect.solvers import Tools, method_solver
from evenhand.integrations.inspect.worlds import played_outcome
from evenhand.runs.pools import graded, scores_of
from evenhand.runs.store import FINAL
from evenhand.studies.tally import ALL, Tally, estimate

REASONS: Mapping[Status, str] = {
    "refused": "refusal",
    "cut": "invalid_response_format",
    "unscored": "invalid_response_format",
    "failed": "failed",
}
"""A status without a grade → the reason of an Inspect score."""
STATUSES: tuple[Status, ...] = ("graded", "refused", "cut", "unscored", "failed")


def sample_score(record: Record, answer: str | None) -> Score:
    """A record as an Inspect score: the grade's numbers, or no number and the reason.

    `graded` is in every value, so that Inspect passes samples without a grade to the metrics, which count them.
    """
    numbers = {name: value for name, value in (record.grade or {}).items() if isinstance(value, int | float)}
    is_graded = record.status == "graded"
    return Score(
        value={"graded": is_graded, **(numbers if is_graded else {})},
        answer=answer,
        explanation=record.reason,
        reason=REASONS.get(record.status),
        metadata={"status": record.status, "grade": None if record.grade is None else dict(record.grade)},
    )


def estimates_of(benchmark: Benchmark, records: Sequence[Record]) -> dict[str, float | int | None]:
    """Every metric as NAME, NAME_low and NAME_high, scaled as in reports, and how many samples have which status."""
    tally = Tally(benchmark.metrics(), benchmark.group_key)
    for record in sorted(records, key=lambda each: each.sample_id):
        tally.add(record)
    tally.finish()
    found: dict[str, float | int | None] = {}
    for each in benchmark.metrics():
        if (each.name, ALL) in tally.sums:
            made = estimate(each, ALL, tally)
            found |= {each.name: made.value, f"{each.name}_low": made.low, f"{each.name}_high": made.high}
    statuses = Counter(record.status for record in records)
    return found | {f"samples_{status}": statuses[status] for status in STATUSES}


def _benchmark(about: Mapping[str, Any]) -> Benchmark:
    """The benchmark that a sample names; a log may be a stranger's, so no code is loaded that its task has not."""
    with code_refused(f"The log names the Python code {about['benchmark']}; make its task in this process first."):
        return load_benchmark(about["benchmark"], **about["options"])


@metric(name="estimates", scores="unreduced")
def estimates() -> Metric:
    """All metrics of the benchmark, with intervals that respect its clusters."""

    def compute(scores: list[SampleScore]) -> dict[str, Any]:
        about: Any = (scores[0].sample_metadata or {}).get(KEY) if scores else None
        if about is None:
            return {}
        benchmark = _benchmark(about)
        return estimates_of(benchmark, [record for score in scores if (record := _record(score)) is not None])

    return compute


def _record(given: SampleScore) -> Record | None:
    sample = own_sample(str(given.sample_id), given.sample_metadata or {})
    about: Any = given.score.metadata or {}
    if sample is None or "status" not in about:
        return None
    status: Status = about["status"]
    return Record(sample.id, sample.cluster, status, sample.metadata, about["grade"], given.score.explanation)


@scorer(metrics=[estimates()], name="grade")
def grade(scorers: list[str] | None = None) -> Scorer:
    """The grade of a sample of our benchmarks; `scorers` rate the texts in place of the benchmark's own."""
    tools = Tools()

    async def score(state: TaskState, target: Target) -> Score:
        del target  # our own sample has it
        about = state.metadata.get(KEY)
        sample = sample_of(state)
        if about is None:
            explanation = "This is no sample of a benchmark of Evenhand, so there is no grade."
            return Score.unscored(reason="scoring_failed", explanation=explanation)
        benchmark = _benchmark(about)
        is_played = sample.kind == "task" and state.store.get(KEY) is None  # by an agent of Inspect's
        outcome = played_outcome(state, sample) if is_played else outcome_of(state, sample)
        if outcome is None:
            failed = Record(sample.id, sample.cluster, "failed", sample.metadata, None, "the solver left no answer")
            return sample_score(failed, None)
        rows = [graded(benchmark, sample, outcome, FINAL, outcome.result)]
        async with tools.used():
            for spec in benchmark.scorers if scorers is None else scorers:
                results = [(FINAL, outcome.result)]
                rows += await scores_of(tools.scorer(spec), sample, results, benchmark.scored_text)
        values: dict[str, Any] = {}
        for row in rows:
            values |= row.values or {}
        record = Record(sample.id, sample.cluster, rows[0].status, sample.metadata, values or None, rows[0].reason)
        return sample_score(record, None if isinstance(outcome.result, Unscored) else outcome.result.text)

    return score


def text_scorer(name: str) -> Callable[..., Scorer]:
    """The scorer `evenhand/NAME` of any task's answers; scorers that ask a model ask the role `judge`."""

    @scorer(metrics={"*": [mean(), stderr()]}, name=name)
    def make(**options: Any) -> Scorer:
        spec = f"{name}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else name
        tools = Tools()

        async def score(state: TaskState, target: Target) -> Score:
            del target
            outcome = outcome_of(state, sample_of(state))
            result = None if outcome is None else outcome.result
            if not isinstance(result, Answer):
                is_refusal = isinstance(result, Refusal)
                why = "the model declined to answer" if is_refusal else getattr(result, "reason", "there is no answer")
                return Score.unscored(reason="refusal" if is_refusal else "no_response", explanation=why)
            async with tools.used():
                with plain_errors():
                    loaded = tools.scorer(spec)
                (found,) = await loaded.score([result.text], [state.input_text])
            if isinstance(found, Unscored):
                return Score.unscored(reason="scoring_failed", answer=result.text, explanation=found.reason)
            return Score(value=dict(found), answer=result.text)

        return score

    return make


_SOLVERS: dict[SampleKind, str] = {"judgement": "judge", "debate": "debate"}
"""Kind of sample → the method of a task without `--solver`, where it is not `default`."""
_HOPELESS = 0.5
"""The share of failed samples that ends an evaluation: one bad sample does not."""


def benchmark_task(name: str) -> Callable[..., Task]:
    """The task `evenhand/NAME`; its arguments are the benchmark's options, `limit`, `seed` and `scorers`."""

    @task(name=name)
    def make(limit: int | None = None, seed: int = 0, scorers: str | list[str] | None = None, **options: Any) -> Task:
        with plain_errors():
            benchmark = load_benchmark(name, **options)
            samples = [inspect_sample(each, name, options) for each in benchmark.samples(Selection(limit, seed))]
        chosen = [scorers] if isinstance(scorers, str) else scorers
        return Task(
            dataset=MemoryDataset(samples, name=name),
            solver=method_solver(_SOLVERS.get(benchmark.kind, "default"))(),
            scorer=grade(scorers=chosen),
            version=benchmark.version,
            fail_on_error=_HOPELESS,
            score_on_error=True,
            metadata={"headline": benchmark.headline},
        )

    return make
