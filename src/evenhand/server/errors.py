"""Error responses in OpenAI's format; the status says whether client, server or upstream is at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from evenhand.errors import EvenhandError, ModelError, UsageError
from evenhand.guards.upstream import CutReply, Unreachable, UpstreamError

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_CLIENT_ERRORS = frozenset({400, 409, 413, 415, 422, 429})
"""Statuses of a model's endpoint that are passed on, because the client can fix them."""
RETRY_SECONDS = 1.0
_FAILED = "The model endpoint of this route failed. See the server's log."
_CUT = "The model endpoint of this route sent no whole answer. See the server's log."


class RequestError(Exception):
    """A failed request, with everything that the client sees of it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        upstream: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.detail = detail or message
        """The message for the operator, which may contain hosts and ports of endpoints."""
        self.kind = kind or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.upstream = upstream
        """How the model's endpoint failed (`timeout`, `unreachable`, `cut` or its status); "" if it did not."""

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}

    def response(self) -> web.Response:
        return web.Response(
            body=orjson.dumps(self.body), status=self.status, headers=self.headers, content_type="application/json"
        )


def as_request_error(error: Exception) -> RequestError:  # noqa: PLR0911, PLR0912 - a table
    """Return the client's view of any failure, without internal details."""
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
            return RequestError(404, "There is nothing at this path. The API is under /v1.")
        case web.HTTPMethodNotAllowed():
            return RequestError(405, f"This path accepts {', '.join(sorted(error.allowed_methods))} requests only.")
        case web.HTTPException():
            return RequestError(error.status, error.reason)
        case TimeoutError():
            return RequestError(504, "The answer took longer than this server allows.", code="timeout")
        case UsageError():
            return RequestError(400, str(error))
        case ModelError():
            return RequestError(502, _FAILED, code="upstream_error", upstream="unreachable", detail=str(error))
        case EvenhandError():
            return RequestError(500, str(error))
        case _:
            return RequestError(500, "This server failed on the request. See the server's log.")


def _upstream_error(error: UpstreamError) -> RequestError:
    """Map a fault of the route (a wrong key, a wrong model name) to 502, because the client cannot fix it."""
    given = error.body.get("error")
    fields: Mapping[str, Any] = given if isinstance(given, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]
    status = error.status if error.status in (*_CLIENT_ERRORS, 503, 504) else 502
    if error.status == 408:
        status = 504
    wait = error.retry_after
    if wait is None and status in (429, 503):
        wait = RETRY_SECONDS
    return RequestError(
        status,
        _FAILED if isinstance(error, Unreachable) else _CUT if isinstance(error, CutReply) else str(error),
        kind=_text(fields.get("type")) if status in _CLIENT_ERRORS else None,
        code=_text(fields.get("code")),
        param=_text(fields.get("param")),
        retry_after=wait,
        upstream=_kind(error, status),
        detail=str(error),
    )


def _kind(error: UpstreamError, status: int) -> str:
    match error:
        case Unreachable():
            return "unreachable"
        case CutReply():
            return "cut"
        case _:
            return "timeout" if status == 504 else str(error.status)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
