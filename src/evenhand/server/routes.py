"""The route table: model names → guards. It can be replaced while requests are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType

from evenhand.core.errors import EvenhandError, PlanError, UnknownNameError, UsageError
from evenhand.core.prompts import read_templates
from evenhand.core.specs import model_spec, spec_parts
from evenhand.guards.guard import Guard
from evenhand.guards.input_policy import InputPolicy
from evenhand.guards.policy import GuardPolicy
from evenhand.models.base import reached
from evenhand.models.budget import Price
from evenhand.server.chat_api.passthrough import Answerer, Passthrough
from evenhand.server.chat_api.wire import BYPASSED
from evenhand.server.config import InputConfig, RouteConfig
from evenhand.server.errors import RequestError
from evenhand.server.upstreams import RouteUpstreams, judge_options


class Route:
    """One guard with a count of its users; `with route:` keeps it open until its last request has ended."""

    def __init__(self, name: str, config: RouteConfig, before: Route | None = None) -> None:
        self.name = name
        self.config = config
        self.upstreams = RouteUpstreams(name, config, {} if before is None else before.upstreams.breakers)
        self._guard = _guard(config, self.upstreams)
        price = self._guard.prices.get(self._guard.upstream.spec)
        self.passthrough = Passthrough(self._guard.upstream, price, BYPASSED)
        """For keys that may switch the method off."""
        self.guard: Answerer = self._guard
        if self.method == "default" and not config.evaluators and config.latency is None and not config.input:
            self.guard = Passthrough(self._guard.upstream, price, "passed" if config.policy == "flag" else "unchecked")
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def method(self) -> str:
        """The name of the method, without options."""
        return spec_parts(self.config.method)[0]

    def unpriced(self) -> list[str]:
        """Return the models whose calls have no known price."""
        return self._guard.unpriced()

    def dearest_token(self) -> float:
        """Return the highest price of a token."""
        return self._guard.dearest_token()

    @property
    def is_closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    def has_current_templates(self) -> bool:
        """Whether its folder of templates still holds what the guard was made with."""
        try:
            return read_templates(self.config.templates) == self._guard.templates
        except UsageError:
            return False

    def retire(self) -> None:
        """Close the guard as soon as no request uses it."""
        self._retired = True
        self._close_if_unused()

    async def closed(self) -> None:
        """Wait until a retired route is closed."""
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
            self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        await self._guard.aclose()
        await self.upstreams.upstream.aclose()


class Routes:
    """An immutable route table; a reload makes a new one, which takes over the unchanged routes."""

    def __init__(self, configs: Mapping[str, RouteConfig], before: Routes | None = None) -> None:
        kept = {} if before is None else before._routes
        new: list[Route] = []
        self._routes: dict[str, Route] = {}
        for name, config in configs.items():
            if name in kept and kept[name].config == config and kept[name].has_current_templates():
                self._routes[name] = kept[name]
                continue
            try:
                self._routes[name] = Route(name, config, kept.get(name))
            except EvenhandError as error:
                for each in new:
                    each.retire()
                raise PlanError(f"The route {name} cannot be used: {error}") from error
            new.append(self._routes[name])

    def find(self, name: str) -> Route:
        """Return the route with this name; only names of the config are accepted, never a URL."""
        route = self._routes.get(name)
        if route is None:
            message = str(UnknownNameError("model", name[:100], self._routes))
            raise RequestError(404, message, code="model_not_found", param="model")
        return route

    def only(self, names: Collection[str] | None) -> Routes:
        """Return the routes that a client may use; None means all of them."""
        if names is None:
            return self
        some = Routes({})
        some._routes = {name: route for name, route in self._routes.items() if name in names}
        return some

    def token_price(self, key: str, *, known: bool) -> float:
        """Return the highest price of a token; raises PlanError if all must be known and one is not."""
        for name, route in self._routes.items():
            for spec in route.unpriced() if known else ():
                raise PlanError(
                    f"The key {key} has a budget in money, so the route {name} needs the price of {spec}. Add price "
                    "(judge_price for a judge), or limit the key to other routes."
                )
        return max((route.dearest_token() for route in self._routes.values()), default=0.0)

    def names(self) -> list[str]:
        return list(self._routes)

    def upstreams(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the route, the name and whether the circuit breaker is open, for every upstream."""
        for name, route in self._routes.items():
            for endpoint in route.upstreams.endpoints:
                yield name, endpoint.name, endpoint.breaker.is_open

    def retire(self, successor: Routes | None = None) -> list[Route]:
        """Retire and return all routes that the successor does not keep; each closes when its requests have ended."""
        kept = () if successor is None else successor._routes.values()
        retired = [route for route in self._routes.values() if route not in kept]
        for route in retired:
            route.retire()
        return retired


def _guard(config: RouteConfig, upstreams: RouteUpstreams) -> Guard:
    policy = GuardPolicy(
        config.policy,
        blocked_text=config.blocked_text,
        latency=config.latency,
        evaluators=config.evaluators,
        thresholds=config.thresholds,
        unchecked=config.unchecked,
        tool_arguments=config.tool_arguments,
    )
    return Guard(
        upstreams.upstream,
        method=config.method,
        policy=policy,
        judge=upstreams.judge(),
        input=_input_policy(config.input),
        judge_options=judge_options(config),
        prices=_prices(config),
        templates=config.templates,
    )


def _input_policy(config: InputConfig | None) -> InputPolicy | None:
    if config is None:
        return None
    fields = config.model_dump()
    return InputPolicy(fields.pop("policy"), **fields)


def _prices(config: RouteConfig) -> dict[str, Price]:
    bare, how = reached(config.model)
    given = ((config.model, config.price), (config.judge, config.judge_price))
    known = {model_spec(spec)[0]: Price(each.input, each.output) for spec, each in given if spec and each}
    return {bare: how.price, **known} if how.price else known
