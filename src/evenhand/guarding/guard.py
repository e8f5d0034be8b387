"""The guard: a model's answers, checked and where need be revised, with a record of what was changed and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from evenhand.guarding.policy import GuardPolicy
from evenhand.guarding.types import Guarded, Segment
from evenhand.guarding.upstream import Upstream
from evenhand.models.base import ModelOptions
from evenhand.types import Message


class Guard:
    """Answers conversations through a mitigation method; `await guard(messages)` or `guard.sync(messages)`."""

    def __init__(
        self,
        model: str | Upstream,
        *,
        method: str = "stardtox",
        policy: GuardPolicy | None = None,
        judge: str | None = None,
        options: ModelOptions | None = None,
        seed: int = 0,
    ) -> None:
        raise NotImplementedError

    async def __call__(self, messages: Sequence[Mapping[str, Any] | Message], **params: Any) -> Guarded:
        """The answer to a conversation; `params` are the other fields of an OpenAI request."""
        raise NotImplementedError

    def sync(self, messages: Sequence[Mapping[str, Any] | Message], **params: Any) -> Guarded:
        """The same without asyncio."""
        raise NotImplementedError

    async def respond(self, body: Mapping[str, Any]) -> Guarded:
        """The answer to a whole chat completions request."""
        raise NotImplementedError

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Segment]:
        """The answer in segments, each checked before it is released; the last one carries the record."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release the connections of all models."""
