"""Where the guard gets its answers: raw chat completions in OpenAI's form, whatever model makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from evenhand.errors import ModelError


class UpstreamError(ModelError):
    """The model behind the guard gave no answer; `body` is the error in OpenAI's form, and holds no key."""

    def __init__(
        self, status: int, message: str, *, kind: str = "upstream_error", retry_after: float | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": more.get("param"), "code": more.get("code")}
        }
        self.retry_after = retry_after


class UpstreamTimeout(UpstreamError):  # noqa: N818 - named for what happened
    """No answer came before the latency budget was used up."""

    def __init__(self, message: str) -> None:
        super().__init__(504, message, kind="timeout")


class Upstream(ABC):
    """Answers whole request bodies; safe to call concurrently."""

    spec: str
    name: str
    """The model's name, which takes the place of the request's `model`."""

    @abstractmethod
    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The raw chat completion; raises UpstreamError."""

    @abstractmethod
    def chat_stream(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The raw chunks of a streamed chat completion."""

    @abstractmethod
    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The raw answer to a request in the older completions form."""

    async def aclose(self) -> None:
        """Release connections and memory."""
