"""The guard: a model's answers, checked and where need be revised, with a record of what was changed and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, cast

from evenhand.core import aio
from evenhand.core.preamble import Preamble
from evenhand.core.prompts import read_templates
from evenhand.core.types import Message
from evenhand.guards.input import checked_answer, checked_stream
from evenhand.guards.loop import Setup
from evenhand.guards.policy import GuardPolicy, InputPolicy, guard_method
from evenhand.guards.request import request_body
from evenhand.guards.types import Guarded, Segment
from evenhand.guards.upstream import BadRequest, Upstream
from evenhand.guards.upstreams import ModelUpstream, OpenAIUpstream, Upstreams, new_breaker
from evenhand.methods import GUARD_METHOD
from evenhand.models.base import Model, ModelOptions, split_spec
from evenhand.models.budget import Price
from evenhand.models.load import is_pool, load_model, reached
from evenhand.models.pool import Endpoint, single_options
from evenhand.scorers.base import Scorer, load_scorer

OPTIONS = ModelOptions(concurrency=1000, retries=2)
"""A client waits for the answer, so there are few retries and no queue of our own."""


class Guard:
    """Answers conversations through a mitigation method: `await guard(messages)`, or `guard.sync(messages)`.

    The judge is reached as the model is, with its `options`, unless it has `judge_options` or a spec that says more.
    Close it with `aclose()` or `async with`, or with `close()` or `with` where `sync` is used.
    """

    def __init__(
        self,
        model: str | Model | Upstream,
        *,
        method: str = GUARD_METHOD,
        policy: GuardPolicy | None = None,
        judge: str | Model | None = None,
        input: InputPolicy | None = None,  # noqa: A002 - the word for it in configs and records
        options: ModelOptions | None = None,
        judge_options: ModelOptions | None = None,
        prices: Mapping[str, Price] | None = None,
        seed: int = 0,
        templates: str | Path | None = None,
        preamble: Preamble | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._preamble, self._settings = preamble, settings or {}
        self.templates = read_templates(templates)
        policy = policy or GuardPolicy()
        options = options or OPTIONS
        chosen = guard_method(method, policy)
        self._scorers: dict[str, Scorer] = {}
        rail = (
            None
            if input is None
            else input.rail(None if input.judge is None else load_model(input.judge, judge_options or options))
        )
        scored = ""
        for checked in (rail, chosen):
            if checked is not None and any(each.name == "toxicity" for each in checked.evaluators):
                scorer = self._scorer(checked.thresholds.scorer)  # one that does not work is reported now
                scored = f"{scorer.name} {scorer.version}"
        judged = "the model itself" if judge is None else "a judge"
        self.checks = chosen.check_list(scored, judged, () if rail is None else rail.evaluators)
        """Which checks look at every answer, and which do not."""
        self._upstream_is_given = isinstance(model, Upstream)
        self.upstream = model if isinstance(model, Upstream) else load_upstream(model, options)
        self.policy = policy
        own = None if input is None else input.judge
        named = ((model, options), (judge, judge_options or options), (own, judge_options or options))
        reach = [reached(each, how) for each, how in named if isinstance(each, str)]
        self.prices = {spec: how.price for spec, how in reach if how.price} | dict(prices or {})
        """By the specs of model and judges."""
        self._setup = Setup(
            self.upstream,
            None if judge is None else load_model(judge, judge_options or options),
            chosen,
            policy,
            self._scorer,
            self.prices,
            seed,
            rail,
            self.checks,
        )

    def __repr__(self) -> str:
        method = self._setup.method.method.name
        return f"Guard({self.upstream.spec} through {method}, policy {self.policy.action}; {self.checks})"

    def unpriced(self) -> list[str]:
        """Return the models whose calls have no known price."""
        return [each.spec for each in self._models() if each.spec not in self.prices and not each.free]

    def dearest_token(self) -> float:
        """Return the highest known price of a token."""
        prices = [self.prices[each.spec] for each in self._models() if each.spec in self.prices]
        return max((max(each.input, each.output) / 1e6 for each in prices), default=0.0)

    def _models(self) -> list[Model]:
        judges = (self._setup.judge, self._setup.input and self._setup.input.judge)
        return [each for each in (self.upstream.model, *judges) if each is not None]

    async def __call__(self, messages: Sequence[Mapping[str, Any] | Message], **params: Any) -> Guarded:
        """The answer to a conversation; `params` are the other fields of an OpenAI request."""
        return await self.respond(request_body(messages, params))

    def sync(self, messages: Sequence[Mapping[str, Any] | Message], **params: Any) -> Guarded:
        """Answer a conversation from synchronous code, or in a notebook without `await`."""
        return aio.run_lasting(self(messages, **params))

    async def respond(self, body: Mapping[str, Any]) -> Guarded:
        """The answer to a whole chat completions request."""
        with self.templates.used():
            return await checked_answer(self._setup, self._checked(body))

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]:
        """The answer in segments, each checked before it is released; the last one carries the record."""
        return self._stream(checked_stream(self._setup, self._checked(body)))

    async def _stream(self, segments: AsyncGenerator[Segment]) -> AsyncGenerator[Segment]:
        """The segments, each made with the guard's templates; between them, the caller's own are in effect."""
        async with aclosing(segments):
            while True:
                with self.templates.used():
                    segment = await anext(segments, None)
                if segment is None:
                    return
                yield segment

    async def aclose(self) -> None:
        """Close the connections of all models, except those of an upstream that was passed in."""
        work = [each.aclose() for each in self._scorers.values()]
        if not self._upstream_is_given:
            work.append(self.upstream.aclose())
        judges = (self._setup.judge, self._setup.input and self._setup.input.judge)
        work += [each.aclose() for each in judges if each is not None]
        await asyncio.gather(*work, return_exceptions=True)

    def close(self) -> None:
        """Close from synchronous code."""
        aio.run_lasting(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        modalities: Any = body.get("modalities")
        if self._setup.method.evaluators and modalities and modalities != ["text"]:
            raise BadRequest("The guard checks words: ask for text alone.", "modalities")
        return deployed(body, self._preamble, self._settings)

    def _scorer(self, spec: str) -> Scorer:
        if spec not in self._scorers:
            with self.templates.used():
                self._scorers[spec] = load_scorer(spec)
        return self._scorers[spec]


def deployed(
    body: Mapping[str, Any], preamble: Preamble | None, settings: Mapping[str, Any] = MappingProxyType({})
) -> Mapping[str, Any]:
    """Return the request after the preamble, with the settings that it does not set itself.

    A system prompt of its own follows ours, in one message if it is text.
    """
    given = {*body, *(("max_tokens",) if "max_completion_tokens" in body else ())}
    body = {**{name: value for name, value in settings.items() if name not in given}, **body}
    messages: Any = body.get("messages")
    if preamble is None or not isinstance(messages, list) or not messages or not isinstance(messages[0], Mapping):
        return body  # refused later, with a reason
    sent, system = cast("list[Any]", messages), preamble.system
    if system and sent[0].get("role") in ("system", "developer") and isinstance(sent[0].get("content"), str):
        first = {**sent[0], "content": f"{system}\n\n{sent[0]['content']}"}
        sent, system = sent[1:], ""
    else:
        first = {"role": "system", "content": system}
    history = [{"role": each.role, "content": each.content} for each in preamble.history]
    return {**body, "messages": [*([first] if preamble.system else []), *history, *sent]}


def load_upstream(model: str | Model, options: ModelOptions) -> Upstream:
    """Return the upstream of a model: endpoints pass requests through, other models take text."""
    if isinstance(model, Model):
        return ModelUpstream(load_model(model, options))
    upstreams = load_endpoints(model, options)
    if isinstance(upstreams[0], ModelUpstream):
        return upstreams[0]
    most = reached(model, options)[1].concurrency
    endpoints = [Endpoint(str(place), 0, most, new_breaker()) for place, _ in enumerate(upstreams, 1)]
    return Upstreams(upstreams, endpoints, options.retries)


def load_endpoints(model: str, options: ModelOptions) -> list[Upstream]:
    """Return an upstream for each endpoint of a model; those do not repeat their calls."""
    bare, options = reached(model, options)
    if options.provider != "openai":
        return [ModelUpstream(load_model(bare, options))]
    found: list[Upstream] = []
    for single in single_options(options) if is_pool(options) else [replace(options, retries=0)]:
        upstream = OpenAIUpstream(split_spec(bare)[1], single)
        upstream.spec = bare
        found.append(upstream)
    return found
