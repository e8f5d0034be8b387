"""Counts what a request spends, also if it fails or its client leaves: `charge` adds to the meter in effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from evenhand.core.errors import ModelError
from evenhand.core.events import held
from evenhand.core.http import LateError
from evenhand.core.types import Generation, Message, Params, Usage
from evenhand.guards.upstream import UpstreamError
from evenhand.models.base import Model, WrappedModel, all_messages, estimate_tokens


class Meter:
    """The usage of all model calls of one request so far."""

    def __init__(self) -> None:
        self.usage = Usage()

    def used(self) -> held[Meter | None]:
        """Count the calls of this task, and of those that it starts, with this meter."""
        return held(_meter, self)


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


def charge(usage: Usage) -> None:
    """Add the usage of finished or abandoned calls to the request's meter."""
    if (meter := _meter.get()) is not None:
        meter.usage += usage


def has_read(error: BaseException) -> bool:
    """Whether the endpoint has read the prompt of a call without an answer: it was cancelled, or took too long."""
    late = isinstance(error, UpstreamError) and error.status == 504
    return late or isinstance(error, (asyncio.CancelledError, LateError))


class CountedModel(WrappedModel):
    """A model that reports calls whose prompts were read in vain."""

    def __init__(self, inner: Model, cancelled: Callable[[str, Usage], None]) -> None:
        super().__init__(inner)
        self._cancelled = cancelled

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        try:
            return await self.inner.generate(messages, params)
        except (asyncio.CancelledError, ModelError) as error:
            if has_read(error):
                read = sum(estimate_tokens(each.content) for each in all_messages(messages, params))
                self._cancelled(self.spec, Usage(1, prompt_tokens=read))
            raise
