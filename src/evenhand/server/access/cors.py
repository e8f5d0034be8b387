"""Pages of other origins: none may call the server unless the config names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.server.access.auth import Handler

_ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Evenhand-Method",
    "Access-Control-Max-Age": "600",
}
_SHOWN = "X-Request-Id, Retry-After, X-Evenhand-Route, X-Evenhand-Action, X-Evenhand-Revised, X-Evenhand-Late"


def preflight(origins: Collection[str]) -> Middleware:
    """Answers the question that a browser asks before the request itself; it comes without a key."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if asks and _may(request, origins):
            return web.Response(status=204, headers=_ALLOWED)
        return await handler(request)

    return answer


def allow_origins(
    origins: Collection[str],
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Marks every answer to a page of these origins as readable for it."""

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Vary"] = "Origin"
        if _may(request, origins):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = _SHOWN

    return mark


def _may(request: web.Request, origins: Collection[str]) -> bool:
    origin = request.headers.get("Origin")
    return origin is not None and (origin in origins or "*" in origins)
