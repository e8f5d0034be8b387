"""Several upstreams that stand in for each other, as one: failover, circuit breakers and a retry budget.

A request that fails before any of its text is used goes to the next upstream. Once text was passed on, a broken stream
is an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from evenhand.core.errors import ModelError
from evenhand.guards.fields import as_mapping, first_choice, text_of
from evenhand.guards.segments import first_end
from evenhand.guards.upstream import CutReply, Unreachable, Upstream, UpstreamError
from evenhand.models.base import Model
from evenhand.models.failover import Attempt, Breaker, Endpoint, Failover, NoEndpointError
from evenhand.models.pool import PoolModel

T = TypeVar("T")
Chunk = dict[str, Any]

FAILURES, FAILING_SECONDS = 5, 1.0
"""A circuit breaker opens after so many failures in a row, if no call has succeeded for that time."""
_BUSY = (429, 503, 504)
_log = logging.getLogger("evenhand.guards")


@dataclass(frozen=True, slots=True)
class Tried:
    """One call of an upstream."""

    upstream: str
    failed: bool = False


TRIED: ContextVar[list[Tried] | None] = ContextVar("tried", default=None)
"""Where the calls of the current request are listed, if somebody wants to know."""


def new_breaker() -> Breaker:
    return Breaker(FAILURES, FAILING_SECONDS)


class Upstreams(Upstream):
    """Sends each request to the best of its upstreams; `endpoints` are their names, limits and states, in order.

    Log lines begin with `title`. Calls are listed in TRIED if `listed`.
    """

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        endpoints: Sequence[Endpoint],
        retries: int,
        *,
        spec: str = "",
        title: str = "",
        patience: float = math.inf,
        listed: bool = True,
    ) -> None:
        self.spec = spec or upstreams[0].spec
        self.name = upstreams[0].name
        self.endpoints = endpoints
        self._upstreams = upstreams
        self._title = title or self.spec
        self._listed = listed
        self._failover = Failover(endpoints, retries, patience=patience, report=self._report)
        self._model = PoolModel([each.model for each in upstreams], failover=self._failover)
        self._model.spec = self.spec

    @property
    def model(self) -> Model:
        return self._model

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: upstream.chat(body))

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: upstream.completions(body))

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: _embedded(upstream, body))

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        (opening, chunks), attempt = await self._begun(lambda upstream: _opened(upstream, body, held=held))
        with attempt:
            async with aclosing(chunks):
                for chunk in opening:
                    yield chunk
                async for chunk in chunks:
                    yield chunk

    async def _whole(self, use: Callable[[Upstream], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        reply, attempt = await self._begun(use)
        attempt.end()
        return reply

    async def _begun(self, use: Callable[[Upstream], Awaitable[T]]) -> tuple[T, Attempt]:
        try:
            return await self._failover.begin(lambda place: use(self._upstreams[place]))
        except NoEndpointError as error:
            raise UpstreamError(503, f"{self._title}: {error}", retry_after=error.wait) from error

    def _report(self, attempt: Attempt, error: BaseException | None, changed: bool) -> None:
        endpoint, tried = attempt.endpoint, TRIED.get()
        if tried is not None and self._listed and (attempt.answered or isinstance(error, ModelError)):
            tried.append(Tried(endpoint.name, isinstance(error, ModelError) and not error.request_at_fault))
        if changed and endpoint.breaker.is_open:
            reason = endpoint.breaker.error
            _log.warning(
                "%s: the upstream %s fails and gets no requests for now: %s", self._title, endpoint.name, reason
            )
        elif changed:
            _log.info("%s: the upstream %s works again", self._title, endpoint.name)


async def _embedded(upstream: Upstream, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return await upstream.embeddings(body)
    except UpstreamError as error:
        # Endpoints that make no embeddings say so with many statuses; they may answer chats all the same.
        error.request_at_fault |= error.status not in _BUSY and not isinstance(error, (Unreachable, CutReply))
        raise


async def _opened(
    upstream: Upstream, body: Mapping[str, Any], *, held: bool
) -> tuple[list[Chunk], AsyncGenerator[Chunk]]:
    """Return the chunks up to the first text, or if `held` to the first whole segment, and the stream of the others."""
    chunks = upstream.chat_stream(body)
    opening: list[Chunk] = []
    text = ""
    try:
        async for chunk in chunks:
            opening.append(chunk)
            delta = as_mapping(first_choice(chunk).get("delta"))
            if held:
                text += text_of(delta.get("content"))
                if first_end(text):
                    break
            elif any(value for name, value in delta.items() if name != "role"):
                break
    except BaseException:
        await chunks.aclose()
        raise
    return opening, chunks
