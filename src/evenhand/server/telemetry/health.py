"""Whether the server lives (/healthz) and wants requests (/readyz); both need no key and tell no names.

No model is asked for this: what is known of the models' endpoints is how the last requests to them went. An endpoint
that fails does not make the server unready, since without requests nobody would learn that it has come back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import orjson
from aiohttp import web

from evenhand.server.telemetry.events import Event

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
FAILURES = 3
"""Requests in a row that a route's endpoint must fail before the route counts as failing."""

State = Literal["starting", "ready", "draining"]
_REFUSED = frozenset({"400", "413", "422"})
"""What an endpoint in good health says of a bad request."""


class Health:
    """The server's state, and a sink that remembers how each route's endpoint did."""

    def __init__(self) -> None:
        self.state: State = "starting"
        self._failures: dict[str, int] = {}

    def ready(self, routes: Collection[str]) -> None:
        """All routes are loaded, at start or after a reload."""
        self._failures = {route: self._failures.get(route, 0) for route in routes}
        self.state = "ready"

    def drain(self) -> None:
        """No new requests are wanted; those in flight are finished."""
        self.state = "draining"

    def __call__(self, event: Event) -> None:
        if event.route in self._failures:
            if event.upstream_error and event.upstream_error not in _REFUSED:
                self._failures[event.route] += 1
            elif event.upstream_error or event.usage.calls:  # the endpoint was asked, and answered
                self._failures[event.route] = 0

    @property
    def failing(self) -> list[str]:
        """The routes whose endpoints failed the last few times."""
        return [route for route, count in self._failures.items() if count >= FAILURES]

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self._alive), web.get("/readyz", self._ready)]

    async def _alive(self, _: web.Request) -> web.Response:
        return _json({"status": "alive"})

    async def _ready(self, _: web.Request) -> web.Response:
        known = {"status": self.state, "routes": len(self._failures), "failing": len(self.failing)}
        return _json(known, 200 if self.state == "ready" else 503)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
