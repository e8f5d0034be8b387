"""`/v1alpha1/comments:analyze` in Perspective's format, answered by any scorer: clients only change the URL.

An attribute is the scorer's own name in capitals (toxicity → TOXICITY); NAME_EXPERIMENTAL is answered as NAME.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores
from evenhand.scorers.perspective import LARGEST
from evenhand.server.errors import RequestError
from evenhand.server.scoring_api.perspective_errors import CommentError
from evenhand.server.scoring_api.scored import fault_of, no_score, read_object, scores_of
from evenhand.server.ticket import ticket_of

PATH = "/v1alpha1/comments:analyze"
MOST_SPANS = 100
"""Sentences that are scored separately; the last span is the rest of a longer text."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n\s*")
_PLAIN = (None, "PLAIN_TEXT", "TEXT_TYPE_UNSPECIFIED")
_PROBABILITY = (None, "PROBABILITY", "SCORE_TYPE_UNSPECIFIED")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One requested attribute."""

    name: str
    """The attribute as the client wrote it."""
    own: str
    """The scorer's name for it."""
    threshold: float
    """Lower scores are left out of the response."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A valid request."""

    text: str
    context: str
    wanted: tuple[Wanted, ...]
    languages: tuple[str, ...]
    spans: bool
    token: str | None
    store: bool


def perspective_routes(scorer: Scorer) -> list[web.RouteDef]:
    async def analyze(request: web.Request) -> web.Response:
        asked = read_analysis(await read_object(request), scorer)
        if asked.store:
            ticket_of(request).prompt = asked.text
        spans = sentences(asked.text) if asked.spans else []
        pieces = [asked.text, *(asked.text[begin:end] for begin, end in spans)]
        whole, *sentence_scores = await scores_of(scorer, pieces, asked.context)
        if isinstance(whole, Unscored):
            raise _unscored_error(scorer, whole, asked)
        if missing := [each.name for each in asked.wanted if each.own not in whole]:  # a remote scorer may omit some
            raise no_score(scorer, Unscored(f"nothing for {', '.join(missing)}"), "requestedAttributes")
        scored = list(zip(spans, sentence_scores, strict=True)) if asked.spans else [((0, len(asked.text)), whole)]
        return _json(response(asked, whole, scored))

    return [web.post(PATH, analyze)]


def read_analysis(body: Mapping[str, Any], scorer: Scorer) -> Analysis:
    """Validate the request; errors have Perspective's wording."""
    comment = body.get("comment")
    text = _field(comment, "text")
    if not isinstance(text, str) or not text.strip():
        raise CommentError("Comment must be non-empty.", "COMMENT_EMPTY")
    if len(text.encode("utf-8", "replace")) > LARGEST:
        raise CommentError("Comment text too long.", "COMMENT_TOO_LONG")
    if _field(comment, "type") not in _PLAIN:
        raise CommentError("Currently, only 'PLAIN_TEXT' comments are supported")
    wanted = _wanted(body.get("requestedAttributes"), scorer)
    languages = _strings(body.get("languages"), "languages")
    known = {language.partition("-")[0].lower() for language in languages}
    if languages and not known & set(scorer.languages):
        raise _wrong_language(wanted[0].name, languages)
    return Analysis(
        text,
        _context(body.get("context")),
        wanted,
        tuple(languages) or scorer.languages[:1],
        spans=body.get("spanAnnotations") is True,
        token=_text_or_none(body.get("clientToken"), "clientToken"),
        store=body.get("doNotStore") is not True,
    )


def response(
    asked: Analysis, whole: Scores, spans: Sequence[tuple[tuple[int, int], Scores | Unscored]]
) -> dict[str, Any]:
    """Return the response in Perspective's format; unscored sentences have no span."""
    scores = {
        each.name: {
            "spanScores": [
                {"begin": begin, "end": end, "score": _score(result[each.own])}
                for (begin, end), result in spans
                if not isinstance(result, Unscored) and each.own in result
            ],
            "summaryScore": _score(whole[each.own]),
        }
        for each in asked.wanted
        if whole[each.own] >= each.threshold
    }
    answer: dict[str, Any] = {"attributeScores": scores, "languages": list(asked.languages)}
    return answer if asked.token is None else {**answer, "clientToken": asked.token}


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, in characters."""
    begins, ends = [0], list[int]()
    for gap in _SENTENCE_END.finditer(text):
        if len(begins) == MOST_SPANS:
            break
        ends.append(gap.start())
        begins.append(gap.end())
    ends.append(len(text))
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if text[begin:end].strip()]


def _wanted(requested: Any, scorer: Scorer) -> tuple[Wanted, ...]:
    if not isinstance(requested, dict) or not requested:
        raise CommentError("Missing requested_attributes", "NO_REQUESTED_ATTRIBUTES")
    own = {re.sub(r"\W", "_", name).upper(): name for name in scorer.attributes}
    wanted: list[Wanted] = []
    for name, options in requested.items():  # pyright: ignore[reportUnknownVariableType]
        attribute = own.get(str(name)) or own.get(str(name).removesuffix("_EXPERIMENTAL"))  # pyright: ignore[reportUnknownArgumentType]
        if attribute is None:
            raise CommentError(f"Unknown requested attribute: {name}")
        if (kind := _field(options, "scoreType")) not in _PROBABILITY:
            raise CommentError(f"Requested score type {kind} is not supported by attribute {name}")
        threshold = _field(options, "scoreThreshold") or 0
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
            raise CommentError(f"The scoreThreshold of {name} must be a number.")
        wanted.append(Wanted(str(name), attribute, float(threshold)))  # pyright: ignore[reportUnknownArgumentType]
    return tuple(wanted)


def _unscored_error(scorer: Scorer, result: Unscored, asked: Analysis) -> RequestError:
    match fault_of(result):
        case "empty":
            return CommentError("Comment must be non-empty.", "COMMENT_EMPTY")
        case "language":
            return _wrong_language(asked.wanted[0].name, [])
        case "words":
            return CommentError("Unable to detect language", "LANGUAGE_DETECTION_FAILED")
        case None:
            return no_score(scorer, result, "comment.text")


def _wrong_language(attribute: str, languages: Sequence[str]) -> CommentError:
    named = ", ".join(languages) or "that of the text"
    return CommentError(
        f"Attribute {attribute} does not support request languages: {named}",
        "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE",
        {"languageNotSupportedByAttributeError": {"requestedLanguages": list(languages), "attribute": attribute}},
    )


def _context(given: Any) -> str:
    entries: Any = _field(given, "entries")
    if not isinstance(entries, list):
        return ""
    texts = [_field(entry, "text") for entry in entries]  # pyright: ignore[reportUnknownVariableType]
    return "\n".join(text for text in texts if isinstance(text, str))


def _strings(given: Any, name: str) -> list[str]:
    items: Any = [] if given is None else given
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):  # pyright: ignore[reportUnknownVariableType]
        raise CommentError(f"{name} must be a list of strings.")
    return items  # pyright: ignore[reportUnknownVariableType]


def _text_or_none(given: Any, name: str) -> str | None:
    if given is not None and not isinstance(given, str):
        raise CommentError(f"{name} must be a string.")
    return given


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _score(value: float) -> dict[str, Any]:
    return {"value": value, "type": "PROBABILITY"}


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
