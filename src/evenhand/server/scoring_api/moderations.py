"""`/v1/moderations` in OpenAI's format, answered by any scorer with the attribute toxicity.

Scores are returned under the scorer's own names (toxicity, insult, …) and under OpenAI's categories:

    harassment              insult
    harassment/threatening  threat
    hate                    identity_attack
    hate/threatening        the smaller of identity_attack and threat
    sexual                  sexually_explicit
    violence                threat

A category that the scorer scores itself is used directly. A category without a score is null, not zero. A category is
true, and the text flagged, from 0.5 on.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from aiohttp import web

from evenhand.core.errors import ModelError
from evenhand.core.language import REASON
from evenhand.core.types import Unscored
from evenhand.guards.fields import parsed
from evenhand.scorers.base import Scorer, Scores
from evenhand.server.chat_api.wire import parse_object
from evenhand.server.limits import limits_of
from evenhand.server.ticket import ticket_of
from evenhand.web.errors import RequestError, json_response

Fault = Literal["empty", "language", "words"]
"""Why a text itself cannot be scored."""

_FAULTS: dict[str, Fault] = {"empty text": "empty", REASON: "language", "no words": "words"}
PATH = "/v1/moderations"
LONGEST_TEXT = 1_000_000
"""Characters of a text."""
FLAGGED_FROM = 0.5
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "harassment": ("insult",),
    "harassment/threatening": ("threat",),
    "hate": ("identity_attack",),
    "hate/threatening": ("identity_attack", "threat"),
    "sexual": ("sexually_explicit",),
    "violence": ("threat",),
}
_CATEGORIES = (
    *_ATTRIBUTES,
    "violence/graphic",
    "sexual/minors",
    "self-harm",
    "self-harm/intent",
    "self-harm/instructions",
    "illicit",
    "illicit/violent",
)


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the request's body, which must be a JSON object."""
    return await parsed(parse_object, await request.read())


async def scores_of(scorer: Scorer, texts: Sequence[str], context: str = "") -> list[Scores | Unscored]:
    """Return one result per text; raises RequestError if the scorer's own endpoint fails."""
    for each in texts:
        if len(each) > LONGEST_TEXT:
            raise RequestError(400, f"A text may have at most {LONGEST_TEXT:,} characters.", code="cannot_be_scored")
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


def moderation_routes(scorer: Scorer) -> list[web.RouteDef]:
    async def moderate(request: web.Request) -> web.Response:
        if "toxicity" not in scorer.attributes:
            raise RequestError(
                501, f"The scorer of this server, {scorer.spec}, does not score toxicity. Configure another one."
            )
        texts = texts_of((await read_object(request)).get("input"), limits_of(request).inputs)
        ticket_of(request).prompt = "\n\n".join(texts)
        results = [
            moderation(_usable(scorer, result, place)) for place, result in enumerate(await scores_of(scorer, texts))
        ]
        return json_response({"id": f"modr-{secrets.token_hex(12)}", "model": scorer.id, "results": results})

    return [web.post(PATH, moderate)]


def texts_of(given: Any, most: int) -> list[str]:
    """Return the texts of the field `input`: a string, a list of strings, or the parts of one text."""
    if isinstance(given, str):
        return [given]
    items: list[Any] = given if isinstance(given, list) else []  # pyright: ignore[reportUnknownVariableType]
    if not items:
        raise RequestError(400, "input must be a text, a list of texts or a list of text parts.", param="input")
    if len(items) > most:
        raise RequestError(400, f"input may have at most {most:,} texts, not {len(items):,}.", param="input")
    if all(isinstance(item, str) for item in items):
        return items
    return ["\n".join(_part(item, place) for place, item in enumerate(items))]


def _part(item: Any, place: int) -> str:
    match item:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image_url"}:
            message = "Images are not supported. Send text only."
        case _:
            message = 'Write a part of the input as {"type": "text", "text": "…"}.'
    raise RequestError(400, message, param=f"input[{place}]")


def _usable(scorer: Scorer, result: Scores | Unscored, place: int) -> Scores:
    if isinstance(result, Unscored):
        raise no_score(scorer, result, f"input[{place}]")
    return result


def moderation(scores: Scores) -> dict[str, Any]:
    """Return the scores of one text in OpenAI's format."""
    values: dict[str, float | None] = {name: _category(name, scores) for name in _CATEGORIES}
    values |= scores
    categories = {name: None if value is None else value >= FLAGGED_FROM for name, value in values.items()}
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": values,
        "category_applied_input_types": {name: [] if value is None else ["text"] for name, value in values.items()},
    }


def _category(name: str, scores: Scores) -> float | None:
    attributes = _ATTRIBUTES.get(name, ())
    if not attributes or not all(each in scores for each in attributes):
        return None
    return min(scores[each] for each in attributes)
