"""Routes: a model name of clients → a guard; a table that can be exchanged while requests are in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from evenhand.errors import EvenhandError, PlanError, UnknownNameError
from evenhand.guarding.guard import Guard
from evenhand.guarding.policy import GuardPolicy
from evenhand.guarding.types import Guarded, Segment
from evenhand.guarding.upstream import Upstream
from evenhand.models.base import ModelOptions
from evenhand.models.budget import Price
from evenhand.serve.config import RouteConfig
from evenhand.serve.errors import RequestError
from evenhand.serve.wire import BYPASSED


class Answering(Protocol):
    """What answers requests: a guard, or the bare model."""

    async def respond(self, body: Mapping[str, Any]) -> Guarded: ...

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]: ...


class Bare:
    """The model as it is, for keys that may switch the method off; its answers are marked as such."""

    def __init__(self, upstream: Upstream, prices: Mapping[str, Price]) -> None:
        self._guard = Guard(upstream, method="default", policy=GuardPolicy("flag", evaluators=()), prices=prices)

    async def respond(self, body: Mapping[str, Any]) -> Guarded:
        return replace(await self._guard.respond(body), action=BYPASSED)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]:
        async with contextlib.aclosing(self._guard.stream(body)) as segments:
            async for segment in segments:
                final = segment.final and replace(segment.final, action=BYPASSED)
                yield replace(segment, final=final)


class Route:
    """One guard and who uses it: `with route:` keeps it open until the last of its requests has ended."""

    def __init__(self, name: str, config: RouteConfig) -> None:
        self.name = name
        self.config = config
        self.guard = _guard(config)
        self._bare: Bare | None = None
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def method(self) -> str:
        """The name of its method, without options."""
        return self.config.method.partition(":")[0]

    @property
    def bare(self) -> Bare:
        """Made when the first key asks for it."""
        if self._bare is None:
            self._bare = Bare(self.guard.upstream, _prices(self.config))
        return self._bare

    @property
    def is_closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    def retire(self) -> None:
        """No new requests will come; close once those in flight have ended."""
        self._retired = True
        self._close_if_unused()

    async def closed(self) -> None:
        """Until a retired route is closed."""
        if self._closing is not None:
            await self._closing

    def __enter__(self) -> Route:
        self._users += 1
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._users -= 1
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._users and self._closing is None:
            self._closing = asyncio.ensure_future(self.guard.aclose())


class Routes:
    """The table. It never changes; a new config makes a new one, which takes over the routes that stay as they are."""

    def __init__(self, configs: Mapping[str, RouteConfig], before: Routes | None = None) -> None:
        kept = {} if before is None else before._routes
        made: list[Route] = []
        self._routes: dict[str, Route] = {}
        for name, config in configs.items():
            if name in kept and kept[name].config == config:
                self._routes[name] = kept[name]
                continue
            try:
                self._routes[name] = Route(name, config)
            except EvenhandError as error:
                for each in made:
                    each.retire()
                raise PlanError(f"The route {name} cannot be used: {error}") from error
            made.append(self._routes[name])

    def find(self, name: str) -> Route:
        """The route that a request names: a name of the config, never an address."""
        route = self._routes.get(name)
        if route is None:
            words = str(UnknownNameError("model", name[:100], self._routes))
            raise RequestError(404, words, code="model_not_found", param="model")
        return route

    def names(self) -> list[str]:
        return list(self._routes)

    def retire(self, successor: Routes | None = None) -> list[Route]:
        """Close all routes that the successor does not go on using, each when its requests have ended."""
        kept = () if successor is None else successor._routes.values()
        gone = [route for route in self._routes.values() if route not in kept]
        for route in gone:
            route.retire()
        return gone


def _guard(config: RouteConfig) -> Guard:
    policy = GuardPolicy(
        config.policy,
        blocked_text=config.blocked_text,
        latency=config.latency,
        evaluators=config.evaluators,
        thresholds=config.thresholds,
    )
    options = ModelOptions(
        base_url=config.base_url,
        concurrency=config.concurrency,
        timeout=config.timeout,
        retries=config.retries,
        extra={"key_env": config.key_env, **config.extra},
    )
    return Guard(
        config.model,
        method=config.method,
        policy=policy,
        judge=config.judge,
        options=options,
        prices=_prices(config),
    )


def _prices(config: RouteConfig) -> dict[str, Price]:
    given = ((config.model, config.price), (config.judge, config.judge_price))
    return {spec: Price(each.input, each.output) for spec, each in given if spec and each}
