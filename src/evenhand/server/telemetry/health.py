"""Liveness (/healthz) and readiness (/readyz); both work without a key and reveal no names.

Liveness also says which checks the routes run, and which they do not.

Health checks call no model: the state of the models' endpoints is known from the last requests. A failing endpoint
does not make the server unready, because without requests its recovery would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from typing import Any, Literal

from aiohttp import web

from evenhand.guards.types import CheckList
from evenhand.server.state.state import State as SharedState
from evenhand.server.telemetry.events import CLIENT_CLOSED, Event
from evenhand.web.errors import json_response

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_HEADERS = {"Cache-Control": "no-store"}
FAILURES = 3
"""Consecutive failures after which a route counts as failing."""

State = Literal["starting", "ready", "draining"]
_REFUSED = frozenset({"400", "413", "422"})
"""Statuses with which a healthy endpoint rejects a bad request."""


class Health:
    """The server's state, and a sink that counts the failures of each route's endpoint.

    `open_upstreams` tells of each upstream whether its circuit breaker is open.
    """

    def __init__(
        self,
        open_upstreams: Callable[[], Collection[bool]] = tuple,
        shared: SharedState | None = None,
        checks: Callable[[], Iterable[CheckList]] = tuple,
    ) -> None:
        self.state: State = "starting"
        self._open_upstreams = open_upstreams
        self._shared = shared
        self._checks = checks
        self._failures: dict[str, int] = {}

    def ready(self, routes: Collection[str]) -> None:
        """Mark the server as ready with these routes, at start or after a reload."""
        self._failures = {route: self._failures.get(route, 0) for route in routes}
        self.state = "ready"

    def drain(self) -> None:
        """Mark the server as shutting down."""
        self.state = "draining"

    def __call__(self, event: Event) -> None:
        if event.route in self._failures and event.status != CLIENT_CLOSED:
            if event.upstream_error and event.upstream_error not in _REFUSED:
                self._failures[event.route] += 1
            elif event.upstream_error or event.usage.calls:  # the endpoint answered
                self._failures[event.route] = 0

    @property
    def failing(self) -> list[str]:
        """The routes whose endpoints failed their last requests."""
        return [route for route, count in self._failures.items() if count >= FAILURES]

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self._alive), web.get("/readyz", self._ready)]

    async def _alive(self, _: web.Request) -> web.Response:
        checks = [asdict(each) for each in dict.fromkeys(self._checks())]
        return json_response({"status": "alive", "checks": checks}, headers=_HEADERS)

    async def _ready(self, _: web.Request) -> web.Response:
        is_open = self._open_upstreams()
        known: dict[str, Any] = {
            "status": self.state,
            "routes": len(self._failures),
            "failing": len(self.failing),
            "upstreams": len(is_open),
            "upstreams_open": sum(is_open),
        }
        ready = self.state == "ready"
        if self._shared is not None and self._shared.is_shared:
            known["shared_state"] = "down" if self._shared.down else "up"
            ready = ready and not (self._shared.down and self._shared.required)
        return json_response(known, 200 if ready else 503, _HEADERS)
