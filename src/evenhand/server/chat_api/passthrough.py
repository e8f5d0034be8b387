"""The unguarded model, for routes without checks and for keys that may switch a route's method off.

Answers are not checked, so requests skip the guard's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

from evenhand.asking.chat import ANSWER
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Usage
from evenhand.guards.guard import Guard
from evenhand.guards.meter import charge
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.request import raw_answer, usage_in
from evenhand.guards.types import Guarded, Segment
from evenhand.guards.upstream import Upstream, UpstreamError
from evenhand.models.budget import FREE, Price
from evenhand.models.fake import estimate_tokens
from evenhand.server.chat_api.wire import as_object


class Answerer(Protocol):
    """Answers requests: a guard or a passthrough."""

    async def respond(self, body: Mapping[str, Any]) -> Guarded: ...

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Segment]: ...


class Passthrough:
    """Answers with the upstream's own answers; `action` is recorded as the reason why they were not checked."""

    def __init__(self, upstream: Upstream, price: Price | None, action: Any) -> None:
        self._upstream = upstream
        self._price = price or (FREE if upstream.model.free else None)
        self._action = action
        prices = {upstream.spec: self._price} if self._price else {}
        self._guard = Guard(upstream, method="default", policy=GuardPolicy("flag", evaluators=()), prices=prices)

    async def respond(self, body: Mapping[str, Any]) -> Guarded:
        began = perf_counter()
        call = ModelCall(self._upstream.spec, ANSWER)
        try:
            with call.running():
                reply = await self._upstream.chat(body)
                call.used(usage_in(reply))
        except asyncio.CancelledError:  # the endpoint has read the prompt
            charge(self._priced(Usage(prompt_tokens=estimate_tokens(str(body.get("messages"))))))
            raise
        choice = as_object(reply["choices"][0])
        if choice is None:
            raise UpstreamError(502, "The upstream sent no answer.")
        used = self._priced(usage_in(reply))
        charge(used)
        answer = raw_answer(choice, reply)
        took = perf_counter() - began
        return Guarded(
            answer.text,
            answer.message,
            answer.finish,
            self._action,
            first=answer.text or answer.refusal,
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
        with call.running():
            reply = await self._upstream.embeddings(body)
            call.used(usage_in(reply))
        used = self._priced(usage_in(reply))
        charge(used)
        return reply, used

    def _priced(self, usage: Usage) -> Usage:
        return replace(usage, cost=self._price.of(usage) if self._price else None)
