"""Counts what a request spends, also if it fails or its client leaves: `charge` adds to the meter in effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial

from evenhand.core.events import held
from evenhand.core.types import Generation, Message, Params, Usage
from evenhand.models.base import Model, WrappedModel, all_messages, estimate_tokens
from evenhand.models.budget import charged_in_vain


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


class CountedModel(WrappedModel):
    """A model that reports the prompts that were read in vain."""

    def __init__(self, inner: Model, cancelled: Callable[[str, Usage], None]) -> None:
        super().__init__(inner)
        self._cancelled = cancelled

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        def prompt() -> int:
            return sum(estimate_tokens(each.content) for each in all_messages(messages, params))

        with charged_in_vain(prompt, partial(self._cancelled, self.spec), cancelled=True):
            return await self.inner.generate(messages, params)
