"""The upstream of a guard: raw chat completions in OpenAI's format, from any model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from typing import Any

from evenhand.core.errors import ModelError
from evenhand.models.base import Model

REQUEST_FAULTS = (400, 413, 415, 422)
"""Statuses with which an endpoint rejects this very request; their reason helps the client."""

UNUSED: ContextVar[list[int] | None] = ContextVar("unused", default=None)
"""Where the characters of streams are listed that ended before their first segment, if somebody wants to know."""

CHUNKS_AT_ONCE = 100
"""Chunks of a stream that are read before others get their turn; they take a few milliseconds."""


class UpstreamError(ModelError):
    """The model behind the guard gave no answer; `body` is the error in OpenAI's form, and holds no key."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "upstream_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        """What is wrong with the request, in the endpoint's own words; empty if the request is not at fault."""
        self.status = status
        self.said = status
        """The status that the endpoint sent, if it sent one."""
        self.request_at_fault = status in REQUEST_FAULTS
        self.was_read = status == 504
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        self.retry_after = retry_after


class Unreachable(UpstreamError):  # noqa: N818 - named for what happened
    """The endpoint could not be reached; the message says where it was looked for."""

    def __init__(self, message: str) -> None:
        super().__init__(502, message)


class CutReply(UpstreamError):  # noqa: N818 - named for what happened
    """The endpoint answered with less than a whole completion: what came is no answer."""

    def __init__(self, message: str) -> None:
        super().__init__(502, message)
        self.was_read = True


class UpstreamTimeout(UpstreamError):  # noqa: N818 - named for what happened
    """No answer came before the latency budget was used up."""

    def __init__(self, message: str) -> None:
        super().__init__(504, message, kind="timeout")


class BadRequest(UpstreamError):  # noqa: N818 - named for what happened
    """The request cannot be answered as it is; the message says what to change."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, message, kind="invalid_request_error", param=param, reason=message)


class Upstream(ABC):
    """Answers whole request bodies; safe to call concurrently."""

    spec: str
    name: str
    """The model's name, which takes the place of the request's `model`."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """The same model for other calls: reasoning, and evaluators if there is no judge."""

    @abstractmethod
    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The raw chat completion; raises UpstreamError."""

    @abstractmethod
    def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        """The raw chunks of a streamed chat completion, the last with its usage; raises UpstreamError.

        `held` says that no text is used before its first segment is complete, so that the chunks may come together.
        """

    @abstractmethod
    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The raw answer to a request in the older completions form."""

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The raw answer to a request for embeddings."""
        del body
        raise BadRequest("The model of this route makes no embeddings; only routes to OpenAI-compatible endpoints do.")

    async def aclose(self) -> None:
        """Release connections and memory."""
        await self.model.aclose()


def as_chunk(whole: Mapping[str, Any]) -> dict[str, Any]:
    """A whole chat completion as the only chunk of a stream."""
    choices: Any = whole.get("choices")
    if not choices:
        raise CutReply("The upstream sent no answer.")
    delta = {"index": 0, "delta": choices[0].get("message"), "finish_reason": choices[0].get("finish_reason")}
    return {**whole, "object": "chat.completion.chunk", "choices": [delta]}
