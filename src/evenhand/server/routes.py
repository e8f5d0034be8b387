"""Routes: a model name of clients → a guard; a table that can be exchanged while requests are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType

from evenhand.errors import EvenhandError, PlanError, UnknownNameError
from evenhand.guards.guard import Guard
from evenhand.guards.policy import GuardPolicy
from evenhand.models.base import ModelOptions
from evenhand.models.budget import Price
from evenhand.server.chat_api.bare import Answering, Bare
from evenhand.server.chat_api.wire import BYPASSED
from evenhand.server.config import RouteConfig
from evenhand.server.errors import RequestError
from evenhand.specs import spec_parts


class Route:
    """One guard and who uses it: `with route:` keeps it open until the last of its requests has ended."""

    def __init__(self, name: str, config: RouteConfig) -> None:
        self.name = name
        self.config = config
        self._guard = _guard(config)
        self.bare = Bare(self._guard.upstream, _prices(config).get(config.model), BYPASSED)
        """For keys that may switch the method off."""
        self.guard: Answering = self._guard
        if self.method == "default" and not config.evaluators and config.latency is None:
            self.guard = Bare(self._guard.upstream, _prices(config).get(config.model))
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def method(self) -> str:
        """The name of its method, without options."""
        return spec_parts(self.config.method)[0]

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
            self._closing = asyncio.ensure_future(self._guard.aclose())


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
        judge_options=_judge_options(config, options),
        prices=_prices(config),
    )


def _judge_options(config: RouteConfig, model: ModelOptions) -> ModelOptions:
    """As the model is reached; but to an endpoint of the judge's own goes neither the model's key nor its options."""
    if config.judge_base_url is not None:
        return replace(model, base_url=config.judge_base_url, extra={"key_env": config.judge_key_env or ""})
    if config.judge_key_env is not None:
        return replace(model, extra={**model.extra, "key_env": config.judge_key_env})
    return model


def _prices(config: RouteConfig) -> dict[str, Price]:
    given = ((config.model, config.price), (config.judge, config.judge_price))
    return {spec: Price(each.input, each.output) for spec, each in given if spec and each}
