"""The components of one server process; a reload replaces routes, keys and limits in one step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

from aiohttp import web

from evenhand.core.aio import all_of
from evenhand.core.errors import PlanError
from evenhand.core.tracing import Span
from evenhand.guards.types import CheckList
from evenhand.models.endpoints import check_no_call
from evenhand.scorers.base import load_scorer
from evenhand.server.access import Proxies
from evenhand.server.chat_api.wire import BYPASSED
from evenhand.server.config import AuditConfig, ServeConfig
from evenhand.server.limits import ServerLimits
from evenhand.server.page import LivePage
from evenhand.server.routes import Route, Routes
from evenhand.server.state.state import load_state
from evenhand.server.telemetry.audit import AuditLog, key_from
from evenhand.server.telemetry.events import KEPT, Events, load_traces
from evenhand.server.telemetry.health import Health
from evenhand.server.telemetry.logs import RequestLog
from evenhand.server.telemetry.metrics import load_metrics
from evenhand.server.ticket import Ticket
from evenhand.server.watch import Watch
from evenhand.web.errors import RequestError
from evenhand.web.keys import Auth, WrongKeys

_log = logging.getLogger("evenhand.server")
_NEEDS_RESTART = ("audit", "log", "telemetry", "cors", "scorer", "page", "state", "watch")
"""Config fields that a reload does not change."""
GRACE = 0.5
"""Seconds during shutdown in which requests that were already sent are still accepted."""


class Server:
    """All components, and the number of requests in flight.

    `worker` counts from 1 if several processes serve one port; otherwise it is 0. A reload may remove all keys only
    with `may_open`, and routes may have call/ models only with `allow_call`. `run_file` holds the state that several
    workers share if the config names no other place.
    """

    def __init__(
        self,
        config: ServeConfig,
        host: str,
        worker: int = 0,
        *,
        may_open: bool = False,
        allow_call: bool = False,
        run_file: Path | None = None,
    ) -> None:
        self.config = config
        self.host = host
        self._may_open = may_open
        self._allow_call = allow_call
        self._check_code(config)
        self.auth = Auth(config.keys, host, origins=config.cors)
        self.state = load_state(config.state, run_file)
        self.wrong_keys = WrongKeys(self.state)
        self.proxies = Proxies(config.proxies)
        self.routes = Routes(config.routes)
        self.limits = ServerLimits(config.limits, self.state)
        self.limits.quotas.prices = _token_prices(config, self.routes)
        self.scorer = load_scorer(config.scorer)
        self.health = Health(
            lambda: [is_open for *_, is_open in self._upstreams()], self.state, lambda: self.checks().values()
        )
        self.metrics = load_metrics()
        self.traces = load_traces(wanted=config.telemetry == "otel")
        self.audit = _audit(config.audit, worker)
        self.events = Events(self.health, kept=KEPT if config.page else 0)
        self.watch = None if config.watch is None else Watch(config.watch, self.scorer, worker)
        summary = None if self.watch is None else self.watch.summary
        self.page = LivePage(self.events, self.checks, worker, self.state, summary) if config.page else None
        self.in_flight = 0
        self.closed = False
        """Whether new requests are rejected."""
        self._idle = asyncio.Event()
        self._retired: list[Route] = []
        self.events.add(RequestLog(config.log.texts, only_failed=not config.log.requests))
        if self.audit is not None:
            self.events.add(self.audit)
        if self.metrics is not None:
            self.events.add(self.metrics)
            self.metrics.watch_limits(self.limits)
            self.metrics.watch_losses(self.events, self.audit)
            self.metrics.watch_upstreams(self._upstreams)
            self.metrics.watch_state(self.state)
            self.metrics.watch("wrong_keys", "Requests with a wrong API key.", lambda: self.wrong_keys.count)
            if (watch := self.watch) is not None:
                self.metrics.watch("watch_pairs", "Requests replayed for two groups.", lambda: watch.counts.pairs)
                self.metrics.watch("watch_failed", "Replays that failed.", lambda: watch.counts.failed)
                self.metrics.watch("watch_cost", "Money spent on replays today.", lambda: watch.counts.cost_today)
                self.metrics.watch("watch_differences", "Differences found; alert above 0.", lambda: len(watch.found))
        self._announce_routes()

    @property
    def draining(self) -> bool:
        return self.health.state == "draining"

    @property
    def texts(self) -> bool:
        """Whether events carry prompts and answers, because the page, the audit file or the log needs them."""
        return self.config.page or {self.config.audit.texts, self.config.log.texts} != {"none"}

    def reload(self, config: ServeConfig) -> list[str]:
        """Use a new config for new requests and return the changed fields that need a restart.

        Requests in flight finish with the old config. A config that fails to load changes nothing.
        """
        self._check_code(config)
        if self.config.keys and not config.keys and not self._may_open:
            raise PlanError(
                "It has no keys, and a reload may not open a server that has some. Add a key; to serve without keys, "
                "restart with --open."
            )
        auth = Auth(config.keys, self.host, origins=self.config.cors)
        routes = Routes(config.routes, self.routes)
        try:
            prices = _token_prices(config, routes)
        except PlanError:
            routes.retire(self.routes)
            raise
        self._retired = [each for each in self._retired if not each.is_closed] + self.routes.retire(routes)
        unchanged = {name: getattr(self.config, name) for name in _NEEDS_RESTART}
        needs_restart = [name for name, value in unchanged.items() if getattr(config, name) != value]
        self.config = config.model_copy(update=unchanged)
        self.auth, self.routes = auth, routes
        self.proxies = Proxies(config.proxies)
        self.limits.reload(config.limits)
        self.limits.quotas.prices = prices
        self._announce_routes()
        return needs_restart

    def replay(self, ticket: Ticket) -> None:
        """Offer an answered request to the watcher; one that came without its guard is not replayed."""
        with contextlib.suppress(RequestError):  # a reload may have removed the route
            route = self.routes.find(ticket.route)
            if self.watch is not None and all(each.action != BYPASSED for each in ticket.answers):
                self.watch.offer(ticket.chat, route, priced=not route.unpriced())

    def _check_code(self, config: ServeConfig) -> None:
        if not self._allow_call:
            routes = config.routes.values()
            specs = [(each.model, each.judge, each.method, each.evaluators, each.thresholds) for each in routes]
            upstreams = [upstream.model for each in routes for upstream in each.upstreams or ()]
            inputs = [(each.input.judge, each.input.evaluators, each.input.thresholds) for each in routes if each.input]
            check_no_call([*specs, *upstreams, *inputs, config.scorer], "The config")

    def _upstreams(self) -> Iterator[tuple[str, str, bool]]:
        return self.routes.upstreams()

    def checks(self) -> Mapping[str, CheckList]:
        return self.routes.checks()

    def _announce_routes(self) -> None:
        if not self.draining:
            self.health.ready(self.routes.names())
        if self.metrics is not None:
            self.metrics.set_routes(self.routes.names())

    @contextlib.contextmanager
    def working(self) -> Generator[None]:
        """Count a request that must be finished before the server may stop."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    def traced(self, request: web.Request) -> contextlib.AbstractContextManager[Span | None]:
        return contextlib.nullcontext() if self.traces is None else self.traces.request(request)

    async def drain(self, grace: float = GRACE) -> bool:
        """Report unready, reject new requests after `grace`, wait for those in flight; return whether all finished."""
        self.health.drain()
        await asyncio.sleep(grace)
        self.closed = True
        _log.info("No new requests are accepted; %d are in flight", self.in_flight)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.limits.shutdown_seconds):
                while self.in_flight:
                    self._idle.clear()
                    await self._idle.wait()
        return not self.in_flight

    async def close(self) -> None:
        """Close all connections and flush the audit file and the traces."""
        if self.watch is not None:
            await self.watch.aclose()
        await all_of(route.closed() for route in [*self._retired, *self.routes.retire()])
        await self.scorer.aclose()
        await self.state.aclose()
        if self.audit is not None:
            await asyncio.to_thread(self.audit.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)


def _token_prices(config: ServeConfig, routes: Routes) -> dict[str, float]:
    """Return what a token of each key costs at most; raises PlanError if a budget in money lacks prices."""
    return {
        name: routes.only(key.routes).token_price(name, known=bool(key.budget and key.budget.money))
        for name, key in config.keys.items()
    }


def _audit(config: AuditConfig, worker: int) -> AuditLog | None:
    """Open the audit file; each worker writes its own, because only one process may rotate a file."""
    key = key_from(config.key_env) if config.key_env else b""
    file = config.path
    if file is None:
        return None
    if worker:
        file = file.with_name(f"{file.stem}.worker{worker}{file.suffix}")
    return AuditLog(file, texts=config.texts, megabytes=config.megabytes, days=config.days, key=key)
