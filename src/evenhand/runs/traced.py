"""What a run leaves outside its store: spans for OpenTelemetry (no texts), and its samples and calls in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evenhand.core import otel
from evenhand.core.events import event, log
from evenhand.core.tracing import Span, Value, active
from evenhand.core.types import Status, Turn
from evenhand.runs.plan import Plan
from evenhand.runs.rows import FINAL, Finished, Scored

RESULT = "gen_ai.evaluation.result"
"""The event of OpenTelemetry's conventions for generative AI."""


@asynccontextmanager
async def traced_run(plan: Plan, directory: Path, *, wanted: bool) -> AsyncGenerator[None]:
    """The span of a run, exported if that is wanted or the environment names a collector."""
    telemetry = otel.load_telemetry(wanted=wanted)
    if telemetry is None:
        yield
        return
    models = sorted({model.spec for model in plan.every_model()})
    root = telemetry.root(
        f"evaluate {plan.benchmark}",
        "internal",
        {
            "evenhand.benchmark": plan.benchmark,
            "evenhand.run": directory.name,
            "evenhand.models": models,
            "evenhand.methods": [method.name for method in plan.methods],
        },
    )
    try:
        with active(root):
            yield
    except BaseException as error:
        root.fail(type(error).__name__)
        raise
    finally:
        root.end()
        await asyncio.to_thread(telemetry.close)


def told(span: Span | None, benchmark: str, finished: Finished) -> None:
    """Tell a sample's span how it ended, with an event for each score, or one with the status if there is no grade."""
    if span is None:
        return
    span.set({"evenhand.status": finished.status})
    if finished.status == "failed":
        span.fail("failed")
    final = [row for row in finished.scores if row.iteration == FINAL]
    if finished.status != "graded":
        span.event(RESULT, {"gen_ai.evaluation.name": benchmark, "gen_ai.evaluation.score.label": finished.status})
    for name, value in _scores(benchmark, final):
        label: dict[str, Value] = {}
        if isinstance(value, bool):
            label = {"gen_ai.evaluation.score.label": "yes" if value else "no"}
        span.event(
            RESULT,
            {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(value), **label},
        )


def _scores(benchmark: str, rows: Sequence[Scored]) -> list[tuple[str, float | bool]]:
    """`BENCHMARK/VALUE` of a grade's yes-or-no values and fractions, `SCORER/ATTRIBUTE` of scores of texts."""
    found: list[tuple[str, float | bool]] = []
    for row in rows:
        scorer = row.scorer.partition("@")[0]
        found += [
            (f"{benchmark if row is rows[0] else scorer}/{name}", value)
            for name, value in (row.values or {}).items()
            if isinstance(value, bool | float)
        ]
    return found


_UNGRADED: Mapping[Status, str] = {"failed": "failure", "unscored": "unscored", "cut": "cut"}
"""The names of the events of samples that are neither graded nor refused."""


def log_sample(status: Status, reason: str | None, seconds: float) -> None:
    """Log how a sample ended."""
    name = _UNGRADED.get(status, "sample")
    level = logging.INFO if status in _UNGRADED else logging.DEBUG
    event(name, f"{status}: {reason}" if reason else status, level=level, status=status, seconds=round(seconds, 3))


def log_call(turn: Turn) -> None:
    """Log a call with its texts, at the level DEBUG."""
    if not log.isEnabledFor(logging.DEBUG):  # the texts of every call cost as much as storing it
        return
    generation = turn.generation
    fields: dict[str, Any] = {"agent": turn.agent, "role": turn.role, "prompt": turn.prompt_id, "error": turn.error}
    if generation is not None:
        fields |= {
            "model": generation.model,
            "tokens": generation.usage.tokens,
            "seconds": round(generation.latency, 3),
        }
        fields["cached"] = generation.cached
    texts = {"messages": [asdict(each) for each in turn.messages], "reply": generation.text if generation else None}
    event("call", turn.error or "answered", level=logging.DEBUG, texts=texts, **fields)
