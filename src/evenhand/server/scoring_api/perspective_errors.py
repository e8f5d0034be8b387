"""Errors in Google's format for all paths under /v1alpha1, as clients of Perspective expect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from evenhand.server.access.auth import Handler
from evenhand.server.errors import RequestError, as_request_error
from evenhand.server.ticket import ticket_of

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
    return web.Response(
        body=orjson.dumps({"error": error}), status=code, headers=fault.headers, content_type="application/json"
    )
