"""Events as JSON for the live page, safe for any browser whatever the texts contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from evenhand.core.format import finite
from evenhand.guards.types import Check
from evenhand.server.page.board import Board, released
from evenhand.server.telemetry.events import LONGEST, Event
from evenhand.show.markup import clean, plain

_GLANCE = 200
"""Characters of the prompt in the list."""


def totals(board: Board) -> Mapping[str, Any]:
    """Return the counts of the tiles."""
    return {
        "requests": board.requests,
        "answered": board.answered,
        "actions": dict(board.actions),
        "late": board.late,
        "errors": board.errors,
        "upstream_errors": board.upstream_errors,
        "tokens": board.tokens,
        "cost": board.cost,
        "unpriced": board.unpriced,
        "p50": board.percentile(0.5),
        "p95": board.percentile(0.95),
    }


def row(number: int, event: Event) -> Mapping[str, Any]:
    """Return one request for the list; of its texts, only the beginning of the prompt."""
    returned = {check.name: finite(check.score) for check in released(event)}
    # Hundreds of rows are made at once, so only fields that can hold untrusted text are cleaned.
    return {
        "number": number,
        "time": event.time,
        "route": clean(event.route),
        "endpoint": clean(event.endpoint),
        "action": clean(action(event)),
        "status": event.status,
        "late": event.late,
        "seconds": finite(event.stages.get("total")),
        "scores": [[clean(check.name), finite(check.score), returned.get(check.name)] for check in event.before],
        "prompt": clean(event.prompt[:_GLANCE]),
    }


def detail(number: int, event: Event) -> Mapping[str, Any]:
    """Return everything about one request."""
    texts = (event.prompt, event.first, event.text)
    return plain(
        {
            **row(number, event),
            "id": event.id,
            "key": event.key,
            "why": event.why,
            "prompt": event.prompt,
            "first": event.first,
            "text": event.text,
            "withheld": not any(texts),
            "cut_after": LONGEST if any(len(text) >= LONGEST for text in texts) else None,
            "input": event.input and {"action": event.input.action, "checks": _checks(event.input.checks)},
            "before": _checks(event.before),
            "after": _checks(event.after),
            "stream": event.stream,
            "first_segment": finite(event.first_segment),
            "stages": {name: finite(seconds) for name, seconds in event.stages.items()},
            "usage": asdict(event.usage),
            "error": event.error,
            "upstream_error": event.upstream_error,
        }
    )


def action(event: Event) -> str:
    """Return the guard's action, or `error` for a request without an answer."""
    return event.action or "error"


def _checks(checks: Iterable[Check]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": check.name,
            "score": finite(check.score),
            "limit": finite(check.limit),
            "passed": check.passed,
            "words": check.words,
            "problem": check.problem,
        }
        for check in checks
    ]
