"""Writes a stored run as logs of Inspect, one for each arm, which `inspect view` opens; no model is called."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from inspect_ai.event import ModelEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.log._log import EvalPlanStep, EvalScorer
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelConfig,
    ModelOutput,
    ModelUsage,
)

from evenhand.core.errors import StoreError, UsageError
from evenhand.core.files import draft, scratch
from evenhand.core.types import Completion, Record, Sample, Turn, Usage
from evenhand.integrations.inspect.samples import KEY, inspect_sample, plain_values, result_from, stop_reason
from evenhand.integrations.inspect.samples import chat_message as inspect_message
from evenhand.integrations.inspect.scorers import estimates_of, sample_score
from evenhand.runs.stored import ArmSource, StoredRun, open_sources
from evenhand.studies.samples import result_text

_STOPS: dict[str, Any] = {"stop": "stop", "length": "max_tokens", "filter": "content_filter", "other": "unknown"}


def export_logs(directory: Path, target: Path, *, skip_damaged: bool = False) -> list[tuple[Path, int]]:
    """Write one log for each arm, and return the files with their numbers of samples.

    `target` is a folder; for a run of one arm it may also be a file that ends in .eval or .json.
    """
    with open_sources([directory], skip_damaged=skip_damaged) as (runs, sources):
        is_file = target.suffix in (".eval", ".json")
        if is_file and len(sources) > 1:
            raise UsageError(f"{directory} has {len(sources)} arms, and each gets a log; name a folder with --out.")
        written: list[tuple[Path, int]] = []
        for source in sources:
            log = _log(runs[0], source)
            name = f"{runs[0].plan.benchmark}_{source.arm.number}_{source.arm.method.name}".replace("/", "-")
            file = target if is_file else target / f"{name}.eval"
            _write(log, file)
            written.append((file, len(log.samples or ())))
        return written


def _write(log: EvalLog, file: Path) -> None:
    """Write the log, complete or not at all; its format goes by the ending, so the draft has the same name."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with scratch(file.parent) as folder, draft(file, kept=folder / file.name) as unfinished:
            write_eval_log(log, str(unfinished))
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror or error}. Choose another --out.") from error


def _log(run: StoredRun, source: ArmSource) -> EvalLog:
    arm, store, plan = source.arm, source.store, run.plan
    created: str = store.get("created")
    benchmark = run.benchmark()
    samples: list[EvalSample] = []
    records: list[Record] = []
    for number, sample in store.samples():
        record = source.record(number, sample)
        stored = store.outcome(number, arm.number)
        if record is None or stored is None:
            continue
        records.append(record)
        turns = [turn for _, turn in store.turns(number, arm.number)]
        options = plan.benchmark_options
        samples.append(_sample(sample, plan.benchmark, options, record, stored, turns, created))
    total: int = store.get("samples")
    identity = hashlib.sha256(f"{store.get('identity')}/{arm.number}".encode()).hexdigest()[:22]
    options = store.get("options")[str(arm.number)]
    judges = {role: ModelConfig(model=model.spec) for role, model in arm.models.items() if role != "base"}
    return EvalLog(
        status="success" if len(samples) == total else "cancelled",
        eval=EvalSpec(
            eval_id=identity,
            run_id=str(store.get("identity"))[:22],
            created=created,
            task=f"evenhand/{plan.benchmark}",
            task_id=identity,
            task_version=benchmark.version,
            task_args={"seed": plan.seeds[0], "limit": plan.limit, **plan.benchmark_options},
            solver=f"evenhand/{arm.method.name}",
            solver_args=options,
            dataset=EvalDataset(name=plan.benchmark, samples=total, sample_ids=[each.id for each in samples]),
            model=arm.models["base"].spec,
            model_base_url=arm.models["base"].base_url,
            model_roles=cast(Any, judges or None),
            config=EvalConfig(limit=plan.limit),
            packages=store.get("versions"),
            scorers=[EvalScorer(name="evenhand/grade")],
            metadata={"arm": source.label, "caveats": store.get("caveats") or []},
        ),
        plan=EvalPlan(steps=[EvalPlanStep(solver=f"evenhand/{arm.method.name}", params=options)]),
        results=_results(estimates_of(benchmark, records), records, total),
        stats=EvalStats(
            started_at=created,
            completed_at=created,
            role_usage={role: _usage(usage) for role, usage in store.usage(arm.number).items()},
        ),
        samples=samples,
    )


def _results(estimates: dict[str, float | int | None], records: Sequence[Record], total: int) -> EvalResults:
    metrics = {
        name: EvalMetric(name=name, value=value, group="estimates")
        for name, value in estimates.items()
        if value is not None
    }
    is_graded = sum(record.status == "graded" for record in records)
    failed = sum(record.status == "failed" for record in records)
    score = EvalScore(
        name="grade",
        scorer="grade",
        scored_samples=is_graded,
        unscored_samples=len(records) - is_graded,
        metrics=metrics,
    )
    return EvalResults(total_samples=total, completed_samples=len(records) - failed, scores=[score])


def _sample(
    sample: Sample,
    benchmark: str,
    options: dict[str, Any],
    record: Record,
    stored: tuple[Any, str | None, float, Any],
    turns: Sequence[Turn],
    created: str,
) -> EvalSample:
    status, reason, seconds, body = stored
    made = inspect_sample(sample, benchmark, options)
    answer = None
    model = next((turn.generation.model for turn in turns if turn.generation), "")
    output = ModelOutput()
    asked = [ChatMessageUser(content=made.input)] if isinstance(made.input, str) else list(made.input)
    messages = list(asked)
    if body is not None:
        answer = result_text(body["result"])
        stop = stop_reason(result_from(body["result"]))
        output = ModelOutput.from_content(model, answer, stop_reason=stop)
        messages = [*asked, ChatMessageAssistant(content=answer)]
    return EvalSample(
        id=sample.id,
        epoch=1,
        input=made.input,
        choices=made.choices,
        target=made.target,
        messages=messages,
        output=output,
        scores={"grade": sample_score(record, answer)},
        metadata=made.metadata or {},
        store={} if body is None else {KEY: plain_values(body)},
        events=[_event(sample.id, number, turn, created) for number, turn in enumerate(turns)],
        model_usage=_by_model(turns),
        started_at=created,
        total_time=seconds,
        error=EvalError(message=reason or "", traceback="", traceback_ansi="") if status == "failed" else None,
    )


def _event(sample_id: str, number: int, turn: Turn, created: str) -> ModelEvent:
    """One recorded call; runs store no time of day, so all have that of the run."""
    params, generation = turn.params, turn.generation
    output = ModelOutput()
    if generation is not None:
        choices = [_choice(each) for each in generation.completions]
        output = ModelOutput(
            model=generation.model, choices=choices, usage=_usage(generation.usage), time=generation.latency
        )
    return ModelEvent(
        uuid=hashlib.sha256(f"{sample_id}/{number}".encode()).hexdigest()[:22],
        timestamp=datetime.fromisoformat(created),
        working_start=0.0,
        model=generation.model if generation else "",
        role=turn.role,
        input=[inspect_message(each) for each in turn.messages],
        tools=[],
        tool_choice="none",
        config=GenerateConfig(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_tokens,
            seed=params.seed,
            stop_seqs=list(params.stop) or None,
            num_choices=params.n if params.n > 1 else None,
        ),
        output=output,
        error=turn.error,
        cache="read" if generation and generation.cached else None,
        metadata={"agent": turn.agent, "prompt": turn.prompt_id, "prompt_hash": turn.prompt_hash},
    )


def _choice(completion: Completion) -> ChatCompletionChoice:
    content: Any = completion.text
    if completion.thought:
        content = [ContentReasoning(reasoning=completion.thought), ContentText(text=completion.text)]
    return ChatCompletionChoice(
        message=ChatMessageAssistant(content=content), stop_reason=_STOPS.get(completion.finish, "unknown")
    )


def _by_model(turns: Sequence[Turn]) -> dict[str, ModelUsage]:
    found: dict[str, Usage] = {}
    for generation in (turn.generation for turn in turns if turn.generation):
        found[generation.model] = found.get(generation.model, Usage()) + generation.usage
    return {model: _usage(usage) for model, usage in found.items()}


def _usage(usage: Usage) -> ModelUsage:
    return ModelUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.tokens,
        reasoning_tokens=usage.thought_tokens or None,
        total_cost=usage.cost or None,
    )
