"""A client's connection: what is not even HTTP is refused in OpenAI's form too, and nothing of it is repeated."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from evenhand.server.errors import RequestError
from evenhand.server.process.listening import Protocols

IDLE_SECONDS = 75.0
"""After which a connection is closed on which no request, or only the beginning of one, has come."""
_UNREADABLE = "This is no HTTP request, or its head is malformed, too large, or names an encoding unknown here."
_log = logging.getLogger("evenhand.server")


class Connection(web.RequestHandler):
    """Reads requests one after the other and hands them to the application."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what could not be read as a request."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        _log.info("What %s sent is no HTTP request (%s)", request.remote, type(exc).__name__)
        response = RequestError(status, _UNREADABLE).response()
        response.force_close()
        return response


def connections(runner: web.BaseRunner) -> Protocols:
    """What a listener gives to every new connection."""
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None
    return lambda: Connection(server, loop=loop, access_log=None, keepalive_timeout=IDLE_SECONDS)  # pyright: ignore[reportArgumentType]
