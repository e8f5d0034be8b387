"""`/v1alpha1/comments:analyze` in Perspective's format, answered by any scorer: clients only change the URL.

An attribute is the scorer's own name in capitals (toxicity → TOXICITY); NAME_EXPERIMENTAL is answered as NAME. Errors
under /v1alpha1 have Google's format, and users of Google's client library get a discovery document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores
from evenhand.scorers.perspective import LARGEST
from evenhand.server.errors import as_request_error
from evenhand.server.scoring_api.moderations import fault_of, no_score, read_object, scores_of
from evenhand.server.ticket import ticket_of
from evenhand.web.errors import RequestError, json_response
from evenhand.web.keys import Handler

_STATUSES: Mapping[int, tuple[int, str]] = {
    400: (400, "INVALID_ARGUMENT"),
    403: (403, "PERMISSION_DENIED"),
    404: (404, "NOT_FOUND"),
    405: (405, "UNIMPLEMENTED"),
    408: (504, "DEADLINE_EXCEEDED"),
    413: (400, "INVALID_ARGUMENT"),
    429: (429, "RESOURCE_EXHAUSTED"),
    501: (501, "UNIMPLEMENTED"),
    502: (503, "UNAVAILABLE"),
    503: (503, "UNAVAILABLE"),
    504: (504, "DEADLINE_EXCEEDED"),
}
PATH = "/v1alpha1/comments:analyze"
MOST_SPANS = 100
"""Sentences that are scored separately; the last span is the rest of a longer text."""
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n\s*")
_PLAIN = (None, "PLAIN_TEXT", "TEXT_TYPE_UNSPECIFIED")
_PROBABILITY = (None, "PROBABILITY", "SCORE_TYPE_UNSPECIFIED")
DISCOVERY_PATH = "/$discovery/rest"


class CommentError(RequestError):
    """A request that Perspective would reject, with Perspective's error type."""

    def __init__(
        self, message: str, error_type: str = "INVALID_REQUEST", extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(400, message, code=error_type)
        self.details = {
            "@type": "type.googleapis.com/google.commentanalyzer.v1alpha1.Error",
            "errorType": error_type,
            **(extra or {}),
        }


def google_errors() -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
    """Return the middleware; it wraps authentication and limits, because it must translate their errors too."""

    @web.middleware
    async def translate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/v1alpha1/"):
            return await handler(request)
        try:
            return await handler(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            ticket = ticket_of(request)
            fault = ticket.fault = as_request_error(error, ticket.id, request.path)
            if fault.status == 500:
                raise  # the outermost middleware logs it
            return google_response(fault)

    return translate


def google_response(fault: RequestError) -> web.Response:
    other = (500, "INTERNAL") if fault.status >= 500 else (400, "INVALID_ARGUMENT")
    code, status, message = *_STATUSES.get(fault.status, other), fault.message
    details: list[Mapping[str, Any]] = [fault.details] if isinstance(fault, CommentError) else []
    if fault.status == 401:
        code, status = (400, "INVALID_ARGUMENT") if fault.code else (403, "PERMISSION_DENIED")
        message = "API key not valid. Please pass a valid API key." if fault.code else f"{message} Or as ?key=KEY."
        reason = "API_KEY_INVALID" if fault.code else "API_KEY_MISSING"
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    error = {"code": code, "message": message, "status": status, "details": details}
    return json_response({"error": error}, code, fault.headers)


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
        return json_response(response(asked, whole, scored))

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
    if languages and scorer.languages and not known & set(scorer.languages):
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


def discovery_routes() -> list[web.RouteDef]:
    async def discover(request: web.Request) -> web.Response:
        return json_response(discovery_document(_origin(request)))

    return [web.get(DISCOVERY_PATH, discover)]


def discovery_document(origin: str) -> dict[str, Any]:
    """Return the document that tells Google's client library the one method and its path."""
    query = {name: {"type": "string", "location": "query"} for name in ("key", "alt", "prettyPrint")}
    method: dict[str, Any] = {
        "id": "commentanalyzer.comments.analyze",
        "path": PATH.removeprefix("/"),
        "httpMethod": "POST",
        "parameters": {},
        "parameterOrder": [],
        "request": {"$ref": "AnalyzeCommentRequest"},
        "response": {"$ref": "AnalyzeCommentResponse"},
    }
    names = ("AnalyzeCommentRequest", "AnalyzeCommentResponse")
    return {
        "kind": "discovery#restDescription",
        "id": "commentanalyzer:v1alpha1",
        "name": "commentanalyzer",
        "version": "v1alpha1",
        "protocol": "rest",
        "rootUrl": f"{origin}/",
        "servicePath": "",
        "parameters": query,
        "schemas": {name: {"id": name, "type": "object", "properties": {}} for name in names},
        "resources": {"comments": {"methods": {"analyze": method}}},
    }


def _origin(request: web.Request) -> str:
    """Return the origin as the client sees it; a proxy in front may use https."""
    scheme = request.headers.get("X-Forwarded-Proto", "")
    return f"{scheme if scheme in ('http', 'https') else request.scheme}://{request.host}"
