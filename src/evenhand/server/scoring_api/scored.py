"""Helpers of both scoring endpoints: read the body, call the scorer, report unscored texts as errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson
from aiohttp import web

from evenhand.core.errors import ModelError
from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores
from evenhand.server.errors import RequestError

Fault = Literal["empty", "language", "words"]
"""Why a text itself cannot be scored."""

_FAULTS: dict[str, Fault] = {"empty text": "empty", "not English": "language", "no words": "words"}


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the request's body, which must be a JSON object."""
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"The request body is not valid JSON: {error}.") from error
    if not isinstance(body, dict):
        raise RequestError(400, "The request body must be a JSON object.")
    return body  # pyright: ignore[reportUnknownVariableType]


async def scores_of(scorer: Scorer, texts: Sequence[str], context: str = "") -> list[Scores | Unscored]:
    """Return one result per text; raises RequestError if the scorer's own endpoint fails."""
    try:
        return await scorer.score(texts, [context] * len(texts) if context else None)
    except ModelError as error:
        raise RequestError(
            502, "The scorer is not available.", code="scorer_error", upstream="unreachable", detail=str(error)
        ) from error


def fault_of(result: Unscored) -> Fault | None:
    """Return what is wrong with the text; None if the scorer failed, so that a retry may help."""
    return next((fault for prefix, fault in _FAULTS.items() if result.reason.startswith(prefix)), None)


def no_score(scorer: Scorer, result: Unscored, param: str) -> RequestError:
    """Return the error for an unscored text; a score of 0 would look harmless."""
    if fault_of(result):
        return RequestError(400, f"This text cannot be scored: {result.reason}.", code="cannot_be_scored", param=param)
    detail = f"The scorer {scorer.spec} gave no score: {result.reason}."
    return RequestError(
        503, "The scorer gave no score.", code="scorer_error", param=param, retry_after=1, detail=detail
    )
