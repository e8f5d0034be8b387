"""Converts outcomes, turns, scores and samples to database rows, and samples back. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from evenhand.core.types import Answer, Outcome, Sample, Status, Turn, Usage
from evenhand.models.request import as_stored, compressed, messages_from, to_json

FINAL = -1
"""The iteration under which scores of the final result are stored."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A grade or score of the final result, or of the result after one iteration."""

    scorer: str
    iteration: int
    status: Status
    reason: str | None = None
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """An outcome ready to be stored."""

    sample: int
    arm: int
    status: Status
    reason: str | None
    seconds: float
    outcome: Outcome | None
    scores: Sequence[Scored] = ()
    readings: Iterable[str] = ()
    """How the judges of this sample were read."""


def turn_row(sample: int, arm: int, key: bytes, turn: Turn) -> tuple[Any, ...]:
    generation = turn.generation
    usage = generation.usage if generation else Usage()
    return (
        sample,
        arm,
        turn.role,
        key,
        usage.calls,
        usage.cached_calls,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.thought_tokens,
        usage.retries,
        usage.cost,
        generation.latency if generation else 0.0,
        to_json(_as_stored(turn)),
    )


def _as_stored(turn: Turn) -> Turn:
    kept = None if turn.generation is None else as_stored(turn.generation)
    return turn if kept is turn.generation else replace(turn, generation=kept)


def outcome_row(each: Finished) -> tuple[Any, ...]:
    body = None if each.outcome is None else to_json(outcome_json(each.outcome))
    result = each.outcome.result if each.outcome else None
    at_limit = isinstance(result, Answer) and result.details.get("finish") == "length"
    reading = " and ".join(sorted(each.readings)) or None
    return (each.sample, each.arm, each.status, _storable(each.reason), each.seconds, at_limit, reading, body)


def _storable(reason: str | None) -> str | None:
    """Return the reason as valid UTF-8; it may quote arbitrary output."""
    return None if reason is None else reason.encode("utf-8", "replace").decode()


def stored_form(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with its last column, the body, compressed."""
    return row if row[-1] is None else (*row[:-1], compressed(row[-1]))


def score_row(sample: int, arm: int, each: Scored) -> tuple[Any, ...]:
    body = None if each.values is None else orjson.dumps(each.values).decode()
    return (sample, arm, each.scorer, each.iteration, each.status, _storable(each.reason), body)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values. Each result names its kind, because a refusal is not an answer."""
    return {
        "result": {"type": type(outcome.result).__name__, "value": outcome.result},
        "stop": outcome.stop,
        "snapshots": [
            {
                "iteration": snapshot.iteration,
                "result": {"type": type(snapshot.result).__name__, "value": snapshot.result},
                "notes": snapshot.notes,
            }
            for snapshot in outcome.snapshots
        ],
        "notes": outcome.notes,
    }


def sample_from(value: Any) -> Sample:
    """Return a Sample from its JSON form; samples of older runs have no messages and no texts."""
    messages, texts = messages_from(value.get("messages", ())), tuple(value.get("texts", ()))
    fields: dict[str, Any] = {**value, "choices": tuple(value["choices"]), "messages": messages, "texts": texts}
    return Sample(**fields)
