"""The route table: model names → guards with their upstreams. It can be replaced while requests are in flight.

A route without checks, and a key that may switch a route's method off, get a passthrough: the model's own answers,
which skip the guard's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol

from evenhand.asking.chat import ANSWER
from evenhand.core.errors import EvenhandError, PlanError, UnknownNameError, UsageError
from evenhand.core.preamble import Preamble, read_preambles
from evenhand.core.prompts import read_templates
from evenhand.core.specs import model_spec, spec_parts
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Usage
from evenhand.guards.fields import said
from evenhand.guards.guard import Guard, deployed, load_endpoints
from evenhand.guards.meter import charge
from evenhand.guards.policy import GuardPolicy, InputPolicy
from evenhand.guards.request import raw_answer, sent_tokens, usage_in, used_by
from evenhand.guards.types import CheckList, Guarded, Segment
from evenhand.guards.upstream import Upstream, UpstreamError
from evenhand.guards.upstreams import ModelUpstream, Upstreams, new_breaker
from evenhand.models.base import Model, ModelOptions, split_spec
from evenhand.models.budget import FREE, Price, charged_in_vain
from evenhand.models.load import reached
from evenhand.models.pool import Breaker, Endpoint
from evenhand.server.chat_api.wire import BYPASSED, as_object
from evenhand.server.config import InputConfig, RouteConfig, UpstreamConfig
from evenhand.web.errors import RequestError

Breakers = Mapping[tuple[str, ...], Breaker]
"""By model, address and key variable: a reload keeps the state of upstreams that it does not change."""


class RouteUpstreams:
    """The upstream of a route, and the model of its judge."""

    def __init__(self, name: str, config: RouteConfig, breakers: Breakers) -> None:
        self.breakers: dict[tuple[str, ...], Breaker] = {}
        self.endpoints: list[Endpoint] = []
        """The state of each upstream; none for a model in this process, which has no endpoint."""
        self._title = f"The route {name}"
        self._config = config
        self.upstream = self._upstream(breakers)

    def _upstream(self, breakers: Breakers) -> Upstream:
        config = self._config
        found: list[Upstream] = []
        for each in config.upstreams or (UpstreamConfig(base_url=config.base_url, key_env=config.key_env),):
            spec, options = each.model or config.model, endpoint_options(config, each)
            upstreams = load_endpoints(spec, options)
            if config.upstreams is None and isinstance(upstreams[0], ModelUpstream):
                return upstreams[0]
            if config.upstreams and len(upstreams) > 1:
                raise UsageError("An upstream has one base_url. List them as separate upstreams.")
            for upstream in upstreams:
                key = (upstream.spec, getattr(upstream, "url", ""), each.key_env or "")
                name = each.name or str(len(found) + 1)
                if key in self.breakers:
                    raise UsageError(f"The upstream {name} has the model, address and key of another one. Remove it.")
                self.breakers[key] = breakers.get(key) or new_breaker()
                concurrency = reached(spec, options)[1].concurrency
                self.endpoints.append(Endpoint(name, each.priority, concurrency, self.breakers[key]))
                found.append(upstream)
        return self._group(found, self.endpoints, config.model)

    def judge(self) -> str | Model | None:
        """Return the judge: None if it is the route's own model, which shares its upstreams."""
        config = self._config
        own = config.judge_base_url or config.judge_key_env
        if config.judge is None or (config.judge == config.model and not own):
            return None
        if not config.upstreams or config.judge_base_url or not _has_no_address(config.judge):
            return config.judge
        found: list[Upstream] = []
        endpoints: list[Endpoint] = []
        for each, named in zip(config.upstreams, self.endpoints, strict=True):
            if not _has_no_address(each.model or config.model):
                continue
            keyed = each.model_copy(update={"key_env": config.judge_key_env or each.key_env})
            found += load_endpoints(config.judge, endpoint_options(config, keyed))
            endpoints.append(Endpoint(f"{named.name} (judge)", each.priority, named.concurrency, new_breaker()))
        return self._group(found, endpoints, config.judge, listed=False).model if found else config.judge

    def _group(
        self, upstreams: list[Upstream], endpoints: list[Endpoint], spec: str, *, listed: bool = True
    ) -> Upstreams:
        return Upstreams(
            upstreams,
            endpoints,
            self._config.retries,
            spec=model_spec(spec)[0],
            title=self._title,
            patience=math.inf if self._config.latency is None else self._config.latency / 2,
            listed=listed,
        )


def endpoint_options(config: RouteConfig, upstream: UpstreamConfig) -> ModelOptions:
    """Return how an upstream is reached; one with an address gets no key but the one that is named along with it."""
    key = upstream.key_env
    if key is None:
        key = "" if upstream.base_url else config.key_env
    return ModelOptions(
        base_url=upstream.base_url,
        concurrency=upstream.concurrency or config.concurrency,
        timeout=upstream.timeout or config.timeout,
        retries=config.retries,
        extra={"key_env": key, **config.extra},
    )


def judge_options(config: RouteConfig) -> ModelOptions:
    """Return the model's options, but send neither its key nor its extra options to a separate judge endpoint."""
    model = endpoint_options(config, UpstreamConfig(base_url=config.base_url, key_env=config.key_env))
    if config.judge_base_url is not None:
        return replace(model, base_url=config.judge_base_url, extra={"key_env": config.judge_key_env or ""})
    if config.judge_key_env is not None:
        return replace(model, extra={**model.extra, "key_env": config.judge_key_env})
    return model


def _has_no_address(spec: str) -> bool:
    """Whether a model is reached at the address of an upstream, because its spec names none."""
    bare, options = model_spec(spec)
    return split_spec(bare)[0] == "openai" and "base_url" not in options


class Answerer(Protocol):
    """Answers requests: a guard or a passthrough."""

    async def respond(self, body: Mapping[str, Any]) -> Guarded: ...

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]: ...


class Passthrough:
    """Answers with the upstream's own answers; `action` is recorded as the reason why they were not checked."""

    def __init__(
        self,
        upstream: Upstream,
        price: Price | None,
        action: Any,
        preamble: Preamble | None,
        settings: Mapping[str, Any],
    ) -> None:
        self._upstream = upstream
        self._preamble, self._settings = preamble, settings
        self._price = price or (FREE if upstream.model.free else None)
        self._action = action
        prices = {upstream.spec: self._price} if self._price else {}
        policy = GuardPolicy("flag", evaluators=())
        self._guard = Guard(
            upstream, method="default", policy=policy, prices=prices, preamble=preamble, settings=settings
        )

    async def respond(self, body: Mapping[str, Any]) -> Guarded:
        began = perf_counter()
        body = deployed(body, self._preamble, self._settings)
        reply, used = await self._asked(ModelCall(self._upstream.spec, ANSWER), self._upstream.chat, body)
        choice = as_object(reply["choices"][0])
        if choice is None:
            raise UpstreamError(502, "The upstream sent no answer.")
        answer = raw_answer(choice, reply)
        took = perf_counter() - began
        return Guarded(
            answer.text,
            answer.message,
            answer.finish,
            self._action,
            first=said(answer.message),
            usage=used,
            stages={"answer": took, "total": took},
            upstream=reply,
        )

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]:
        async with contextlib.aclosing(self._guard.stream(body)) as segments:
            async for segment in segments:
                yield replace(segment, final=segment.final and replace(segment.final, action=self._action))

    async def embed(self, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Usage]:
        """Return the upstream's raw embeddings, and their usage with its cost."""
        call = ModelCall(self._upstream.spec, ANSWER, operation="embeddings")
        return await self._asked(call, self._upstream.embeddings, body)

    async def _asked(
        self, call: ModelCall, ask: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]], body: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Usage]:
        """Return the upstream's reply and its usage, which is counted, also of a call that ends in vain."""

        def priced(used: Usage) -> None:
            charge(self._priced(used))

        with call.running(), charged_in_vain(lambda: sent_tokens(body), priced, cancelled=True):
            reply = await ask(body)
            call.used(usage_in(reply))
        used = self._priced(used_by(reply, body))
        charge(used)
        return reply, used

    def _priced(self, usage: Usage) -> Usage:
        return replace(usage, cost=self._price.of(usage) if self._price else None)


class Route:
    """One guard with a count of its users; `with route:` keeps it open until its last request has ended."""

    def __init__(self, name: str, config: RouteConfig, before: Route | None = None) -> None:
        self.name = name
        self.config = config
        self.upstreams = RouteUpstreams(name, config, {} if before is None else before.upstreams.breakers)
        preamble = next(iter(read_preambles([config.system] if config.system else [], config.history)), None)
        self._guard = _guard(config, self.upstreams, preamble)
        price = self._guard.prices.get(self._guard.upstream.spec)
        self.passthrough = Passthrough(self._guard.upstream, price, BYPASSED, preamble, config.settings())
        """For keys that may switch the method off."""
        self.guard: Answerer = self._guard
        if self.method == "default" and not config.evaluators and config.latency is None and not config.input:
            action = "passed" if config.policy == "flag" else "unchecked"
            self.guard = Passthrough(self._guard.upstream, price, action, preamble, config.settings())
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def checks(self) -> CheckList:
        """Which checks look at every answer."""
        return self._guard.checks

    @property
    def method(self) -> str:
        """The name of the method, without options."""
        return spec_parts(self.config.method)[0]

    def unpriced(self) -> list[str]:
        """Return the models whose calls have no known price."""
        return self._guard.unpriced()

    def dearest_token(self) -> float:
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

    def checks(self) -> dict[str, CheckList]:
        return {name: route.checks for name, route in self._routes.items()}

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


def _guard(config: RouteConfig, upstreams: RouteUpstreams, preamble: Preamble | None) -> Guard:
    named = {each.name: getattr(config, each.name) for each in fields(GuardPolicy) if each.name != "action"}
    return Guard(
        upstreams.upstream,
        method=config.method,
        policy=GuardPolicy(config.policy, **named),
        judge=upstreams.judge(),
        input=_input_policy(config.input),
        judge_options=judge_options(config),
        prices=_prices(config),
        templates=config.templates,
        preamble=preamble,
        settings=config.settings(),
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
