"""CORS: web pages of other origins may call the server only if the config names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.server.access.auth import Handler

_ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Api-Key, Content-Type, X-Evenhand-Method",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "X-Request-Id, Retry-After, X-Evenhand-Route, X-Evenhand-Action, X-Evenhand-Revised, X-Evenhand-Late"


def preflight(origins: Collection[str]) -> Middleware:
    """Return a middleware that answers preflight requests, which browsers send without a key."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if is_preflight and _is_allowed(request, origins):
            return web.Response(status=204, headers=_ALLOWED)
        return await handler(request)

    return answer


def allow_origins(
    origins: Collection[str],
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a handler that adds CORS headers to responses for these origins."""

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Vary"] = "Origin"
        if _is_allowed(request, origins):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    return mark


def _is_allowed(request: web.Request, origins: Collection[str]) -> bool:
    origin = request.headers.get("Origin")
    return origin is not None and (origin in origins or "*" in origins)
