"""A failed request, with everything that the client sees of it, in OpenAI's format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
LONGEST_RETRY = 86_400.0
"""Seconds; the longest Retry-After."""


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")


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
        self.id = ""
        """The request's id; clients get it if there is more in the log than they may see."""
        self.detail = detail or message
        """The message for the operator, which may contain hosts and ports of endpoints."""
        self.kind = kind or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.upstream = upstream
        """How the model's endpoint failed (`timeout`, `unreachable`, `cut` or its status); "" if it did not."""

    @property
    def message(self) -> str:
        said = str(self)
        return said if self.detail == said else f"{said} The server's log has the reason, under the id {self.id}."

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(math.ceil(min(max(1.0, self.retry_after), LONGEST_RETRY)))}

    def response(self) -> web.Response:
        return json_response(self.body, self.status, self.headers)
