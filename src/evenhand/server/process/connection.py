"""A client's connection. Bytes that are not valid HTTP get an error in OpenAI's format and are never echoed."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from aiohttp import web

from evenhand.server.errors import RequestError
from evenhand.server.process.listening import Protocols

IDLE_SECONDS = 75.0
"""Time after which a connection without a complete request is closed."""
_UNREADABLE = "This is not a valid HTTP request: its header is malformed, too large, or names an unknown encoding."
_log = logging.getLogger("evenhand.server")


class Connection(web.RequestHandler):
    """Reads requests and passes them to the application."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to an unreadable request."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        _log.info("%s sent an invalid HTTP request (%s)", request.remote, type(exc).__name__)
        response = RequestError(status, _UNREADABLE).response()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log faults of the server; a body that the client encoded wrongly is the client's."""
        error = sys.exception()
        if isinstance(error, web.RequestPayloadError):
            _log.info("%s sent a body that cannot be decoded", self._peer())
        else:
            super().log_exception(*args, **kw)

    def _peer(self) -> str:
        peer = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else "A client"


def connections(runner: web.BaseRunner) -> Protocols:
    """Return the factory of protocols for new connections."""
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None
    return lambda: Connection(server, loop=loop, access_log=None, keepalive_timeout=IDLE_SECONDS)  # pyright: ignore[reportArgumentType]
