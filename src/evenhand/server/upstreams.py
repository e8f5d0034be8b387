"""The upstreams of a route, from its config, and their state for metrics and health checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from evenhand.core.errors import UsageError
from evenhand.core.specs import model_spec
from evenhand.guards.guard import load_endpoints
from evenhand.guards.model_upstream import ModelUpstream
from evenhand.guards.upstream import Upstream
from evenhand.guards.upstreams import Upstreams, new_breaker
from evenhand.models.base import Model, ModelOptions, reached, split_spec
from evenhand.models.failover import Breaker, Endpoint
from evenhand.server.config import RouteConfig, UpstreamConfig

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
