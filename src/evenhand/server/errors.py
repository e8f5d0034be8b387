"""The paths of the API, and error responses in OpenAI's format; the status says who is at fault.

Clients never see addresses, keys or texts of the model's endpoint. They get a sentence of our own with the request's
id, under which the log has the reason. Only if their request is at fault, they get the endpoint's reason, cleaned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from aiohttp import web

from evenhand.core.errors import EvenhandError, ModelError
from evenhand.guards.upstream import CutReply, Unreachable, UpstreamError
from evenhand.server.telemetry.logs import redacted
from evenhand.web.errors import RequestError

ANSWERED = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions", "/v1/embeddings")
"""Paths whose requests go to the model of a route."""
SERVED = (*ANSWERED, "/v1/models", "/v1/moderations", "/v1alpha1/comments:analyze")
_CALLS = "|".join(each.removeprefix("/v1") for each in ANSWERED)
_AZURE = re.compile(rf"/openai(?:/v1|/deployments/.+?)?({_CALLS}|/models)")
_LONGEST = 100


def endpoint_of(path: str) -> str:
    """Translate an Azure-style path to the path under /v1; return any other path unchanged."""
    azure = _AZURE.fullmatch(path)
    return f"/v1{azure[1]}" if azure else path


def not_served(path: str) -> str:
    """Return the message for an unknown path: how to change the base URL, or the nearest path, and all paths."""
    shown = f"{path[:_LONGEST]} is not served."
    if f"/v1{path}" in SERVED:
        return f"{shown} Add /v1 to the base URL."
    if path.removeprefix("/v1") in SERVED:
        return f"{shown} The base URL has /v1 twice."
    if path.startswith("/v1/responses/"):
        return f"{shown} Responses are not stored, so they cannot be fetched, continued or deleted."
    near = get_close_matches(path[:_LONGEST], SERVED, n=1, cutoff=0.8)
    return " ".join([shown, *(f"Did you mean {each}?" for each in near), f"This server has {', '.join(SERVED)}."])


def wrong_method(method: str, path: str, accepted: Iterable[str]) -> str:
    return f"{path[:_LONGEST]} accepts {', '.join(sorted(accepted))} requests only, not {method}."


_CLIENT_ERRORS = frozenset({400, 409, 413, 415, 422, 429})
"""Statuses of a model's endpoint that are passed on, because the client can fix them."""
RETRY_SECONDS = 1.0
_FAILED = "The model endpoint of this route failed."
_CUT = "The model endpoint of this route sent no whole answer."
_MESSAGES: Mapping[int, str] = {
    **dict.fromkeys(_CLIENT_ERRORS, "The model endpoint of this route rejects the request."),
    429: "The model endpoint of this route accepts no more requests for now. Try again later.",
    503: "The model endpoint of this route is overloaded or down. Try again later.",
    504: "The model endpoint of this route did not answer in time.",
}
_LONGEST_REASON = 300
_ADDRESSES = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>]{1,2000}"
    r"|(?<![\w.-])(?:(?![0-9]+\.)[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?::[0-9]{1,5})?(?![\w-])"  # a host with dots
    r"|(?<![\w.-])[A-Za-z][A-Za-z0-9-]{0,62}:[0-9]{2,5}(?!\w)"  # a host with a port
    r"|\blocalhost\b"
    r"|(?<![\w.])/(?:[\w.@+-]{1,255}/)+[\w.@+-]{0,255}"  # a path
)
_CODE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+){0,9}")
"""Types and codes of errors, as all endpoints write them; hosts and paths have other signs."""
_PLACE = r"(?:\[[0-9]{1,6}\])?"
_PARAMETER = re.compile(rf"[a-z][a-z_]{{0,40}}{_PLACE}(?:\.(?:[a-z_]{{1,40}}|[0-9]{{1,6}}){_PLACE}){{0,8}}")
_PARAMETERS = frozenset({"messages", "model", "tools", "tool_choice", "functions", "function_call", "response_format"})
"""Fields of a request whose parts are named with dots; a host looks alike."""


def as_request_error(error: Exception, request_id: str, path: str = "") -> RequestError:
    """Return the client's view of any failure, without internal details."""
    fault = _request_error(error, path)
    fault.id = request_id
    return fault


def _request_error(error: Exception, path: str) -> RequestError:  # noqa: PLR0911 - a table
    match error:
        case RequestError():
            return error
        case UpstreamError():
            return _upstream_error(error)
        case RecursionError():
            return RequestError(400, "The request is nested too deeply.")
        case web.RequestPayloadError():
            return RequestError(400, "The request's body does not match the encoding or length in its headers.")
        case web.HTTPRequestEntityTooLarge():
            return RequestError(413, "The request is larger than this server accepts.", code="request_too_large")
        case web.HTTPNotFound():
            return RequestError(404, not_served(path), code="unknown_url")
        case web.HTTPMethodNotAllowed():
            return RequestError(
                405, wrong_method(error.method, path, error.allowed_methods), code="method_not_supported"
            )
        case web.HTTPException():
            return RequestError(error.status, error.reason)
        case TimeoutError():
            return RequestError(504, "The answer took longer than this server allows.", code="timeout")
        case ModelError():
            return RequestError(502, _FAILED, code="upstream_error", upstream="unreachable", detail=str(error))
        case EvenhandError():
            return RequestError(500, "This server failed on the request.", detail=str(error))
        case _:
            return RequestError(500, "This server failed on the request.", detail=type(error).__name__)


def _upstream_error(error: UpstreamError) -> RequestError:
    """Map a fault of the route (a wrong key, a wrong model name) to 502, because the client cannot fix it."""
    fields: Mapping[str, Any] = error.body["error"]
    status = error.status if error.status in (*_CLIENT_ERRORS, 503, 504) else 502
    if error.status == 408:
        status = 504
    wait = error.retry_after
    if wait is None and status in (429, 503):
        wait = RETRY_SECONDS
    return RequestError(
        status,
        _CUT if isinstance(error, CutReply) else cleaned(error.reason) or _MESSAGES.get(status, _FAILED),
        kind=_code(fields["type"]) if status in _CLIENT_ERRORS else None,
        code=_code(fields["code"]) if status in _CLIENT_ERRORS else "upstream_error",
        param=_parameter(fields["param"]),
        retry_after=wait,
        upstream=_kind(error, status),
        detail=str(error),
    )


def cleaned(reason: str) -> str:
    """Return one short line without addresses, paths, keys and personal data."""
    line = " ".join(redacted(reason[: 10 * _LONGEST_REASON]).split())
    return _ADDRESSES.sub("[address]", line)[:_LONGEST_REASON]


def _code(value: Any) -> str | None:
    """Return a type or code of the endpoint's error; None if it could be anything else."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) and redacted(value) == value else None


def _parameter(value: Any) -> str | None:
    """Return the name of a field of the request; None if it could be a host or a path."""
    if not isinstance(value, str) or not _PARAMETER.fullmatch(value):
        return None
    return value if "." not in value or re.split(r"[.\[]", value)[0] in _PARAMETERS else None


def _kind(error: UpstreamError, status: int) -> str:
    match error:
        case Unreachable():
            return "unreachable"
        case CutReply():
            return "cut"
        case _:
            return "timeout" if status == 504 else str(error.said)
