"""Spans of what happens inside a request or a run, for distributed tracing; where nothing is traced they cost nothing.

The server begins a span for a request (`server/telemetry/traces.py`), the runner one for a run (`runs/traced.py`). What
works for it, however deep, adds its own spans below: samples, checks, model calls. No span carries the text of a prompt
or an answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol, TypeVar

from evenhand.core.events import held
from evenhand.core.types import Generation, Params, Usage

Kind = Literal["internal", "client", "server"]
Value = str | int | float | bool | list[str]
T = TypeVar("T")


class Span(Protocol):
    """One traced piece of work, from its creation to `end`."""

    def child(self, name: str, kind: Kind, attributes: Mapping[str, Value]) -> Span: ...

    def set(self, attributes: Mapping[str, Value]) -> None: ...

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Something that happened during the span, e.g. the result of an evaluation."""
        ...

    def fail(self, reason: str) -> None: ...

    def end(self) -> None: ...

    @property
    def traceparent(self) -> str:
        """The span's identity as a W3C header."""
        ...


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def active(span: Span | None) -> held[Span | None]:
    """Put spans that begin here below this one."""
    return held(_current, span)


@contextmanager
def span(name: str, attributes: Mapping[str, Value]) -> Generator[Span | None]:
    """Trace a piece of work; yields None if the request is not traced."""
    if (parent := _current.get()) is None:
        yield None
        return
    made = parent.child(name, "internal", attributes)
    with _ended(made), active(made):
        yield made


class ModelCall:
    """The span of one model call, with the attributes of OpenTelemetry's conventions for generative AI."""

    def __init__(
        self,
        spec: str,
        role: str,
        params: Params | None = None,
        *,
        stream: bool = False,
        operation: Literal["chat", "embeddings"] = "chat",
    ) -> None:
        self.span: Span | None = None
        if (parent := _current.get()) is None:
            return
        provider, _, model = spec.partition("/")
        attributes: dict[str, Value | None] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.request.stream": stream or None,
            "gen_ai.request.temperature": params and params.temperature,
            "gen_ai.request.max_tokens": params and params.max_tokens,
            "evenhand.role": role,
            "evenhand.retries": 0,
        }
        given = {name: value for name, value in attributes.items() if value is not None}
        self.span = parent.child(f"{operation} {model}", "client", given)

    def used(self, usage: Usage, *finishes: str) -> None:
        if self.span is not None:
            counts = {"input": usage.prompt_tokens, "output": usage.completion_tokens}
            self.span.set({f"gen_ai.usage.{name}_tokens": count for name, count in counts.items()})
            if usage.retries:
                self.span.set({"evenhand.retries": usage.retries})
            if finishes:
                self.span.set({"gen_ai.response.finish_reasons": list(finishes)})

    @contextmanager
    def running(self) -> Generator[None]:
        """The call itself; an exception with a `generation` is an answer in a form that the caller did not expect."""
        if self.span is None:
            yield
            return
        with _ended(self.span), active(self.span):
            try:
                yield
            except Exception as error:
                if isinstance(answer := getattr(error, "generation", None), Generation):
                    self.answered(answer)
                raise

    def answered(self, generation: Generation) -> None:
        self.used(generation.usage, *(each.finish for each in generation.completions))

    def stream(self, chunks: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """The chunks of the call, until they end; what is sent for them is sent below this span."""
        return chunks if self.span is None else self._stream(self.span, chunks)

    async def _stream(self, made: Span, chunks: AsyncGenerator[T]) -> AsyncGenerator[T]:
        with _ended(made):
            async with aclosing(chunks):
                while True:
                    with active(made):  # not while the consumer works
                        try:
                            chunk = await anext(chunks)
                        except StopAsyncIteration:
                            return
                    yield chunk


def note_retries(count: int) -> None:
    """Set the retries of the current span's call."""
    if (current := _current.get()) is not None:
        current.set({"evenhand.retries": count})


def traceparent() -> str:
    """The header for requests that are sent in this span; "" without one."""
    current = _current.get()
    return "" if current is None else current.traceparent


@contextmanager
def _ended(made: Span) -> Generator[None]:
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        with contextlib.suppress(Exception):
            if getattr(error, "generation", None) is None:
                made.fail(type(error).__name__)
        raise
    finally:
        made.end()
