"""Streams answers as server-sent events in OpenAI's format; the last chunk of each answer has the guard's record."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol

import orjson
from aiohttp import web

from evenhand.guards.types import Guarded, Segment
from evenhand.server.chat_api.wire import Json, Stamp, record, usage_of
from evenhand.server.ticket import Ticket
from evenhand.web.errors import RequestError

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
Chunk = Callable[[Stamp, int, Segment, bool], list[Json]]
"""(stamp, answer number, segment, whether it is the answer's first) → chunks."""


class StreamFormat(Protocol):
    """How one stream is written, as server-sent events."""

    def segment(self, index: int, segment: Segment) -> Iterable[bytes]: ...

    def end(self, answers: Sequence[Guarded]) -> Iterable[bytes]: ...

    def failure(self, fault: RequestError) -> Iterable[bytes]:
        """The end of a stream whose status is sent, and which is no whole answer."""
        ...


class ChunkFormat:
    """Chunks that end with `[DONE]`, or with an error and without it."""

    def __init__(self, stamp: Stamp, chunks: Chunk, *, usage: bool) -> None:
        self._stamp = stamp
        self._chunks = chunks
        self._usage = usage
        self._started: set[int] = set()

    def segment(self, index: int, segment: Segment) -> Iterable[bytes]:
        for chunk in self._chunks(self._stamp, index, segment, index not in self._started):
            yield event({**chunk, "usage": None} if self._usage else chunk)
        self._started.add(index)

    def end(self, answers: Sequence[Guarded]) -> Iterable[bytes]:
        if self._usage:
            empty = self._chunks(self._stamp, 0, Segment(""), False)[0]
            yield event({**empty, "choices": [], "usage": usage_of(answers)})
        yield b"data: [DONE]\n\n"

    def failure(self, fault: RequestError) -> Iterable[bytes]:
        yield event(fault.body)


class _Events(web.StreamResponse):
    """A stream whose first events are there when it starts, so that its headers are sent with them."""

    _send_headers_immediately = False


async def stream(
    request: web.Request, ticket: Ticket, streams: Sequence[AsyncGenerator[Segment]], form: StreamFormat
) -> web.StreamResponse:
    """Send all segments as they are released; a failure before the first segment gets its own HTTP status."""
    ticket.stream = True
    finished: dict[int, Guarded] = {}
    end = b""
    async with contextlib.aclosing(_merged(streams)) as segments:
        first = await anext(segments)
        ticket.first_segment = time.perf_counter() - ticket.began
        response = _Events(headers=_HEADERS | {"X-Request-Id": ticket.id, "X-Evenhand-Route": ticket.route})
        await response.prepare(request)
        ticket.sending, ticket.failure = response, form.failure
        async for index, segment in _with_first(first, segments):
            if segment.final is None:
                ticket.begun.setdefault(index, []).append(segment)
            else:
                ticket.begun.pop(index, None)
                finished[index] = segment.final
                ticket.answers = [finished[each] for each in sorted(finished)]
            events = b"".join(form.segment(index, segment))
            if len(finished) == len(streams):
                end += events
            elif events:
                await response.write(events)
    await response.write_eof(end + b"".join(form.end(ticket.answers)))
    return response


async def end_with_error(response: web.StreamResponse, events: Iterable[bytes]) -> None:
    """End a started stream with these events."""
    with contextlib.suppress(ConnectionError):
        await response.write_eof(b"".join(events))


def chat_chunks(stamp: Stamp, index: int, segment: Segment, first: bool) -> list[Json]:
    """Return chat completion chunks; tool calls are sent at the end."""
    delta: Json = {"role": "assistant", "content": segment.text} if first else {"content": segment.text}
    sent = [_chat(stamp, index, delta)] if first or segment.text or segment.final is None else []
    if segment.final is not None:
        calls: Any = segment.final.message.get("tool_calls") or ()
        if calls:
            sent.append(_chat(stamp, index, {"tool_calls": [{"index": i, **each} for i, each in enumerate(calls)]}))
        if called := segment.final.message.get("function_call"):
            sent.append(_chat(stamp, index, {"function_call": called}))
        if refusal := segment.final.message.get("refusal"):
            sent.append(_chat(stamp, index, {"refusal": refusal}))
        sent.append({**_chat(stamp, index, {}, segment.final.finish), "evenhand": record([segment.final])})
    return sent


def text_chunks(stamp: Stamp, index: int, segment: Segment, first: bool) -> list[Json]:
    del first
    sent = [_text(stamp, index, segment.text)] if segment.text or segment.final is None else []
    if segment.final is not None:
        sent.append({**_text(stamp, index, "", segment.final.finish), "evenhand": record([segment.final])})
    return sent


def _chat(stamp: Stamp, index: int, delta: Json, finish: str | None = None) -> Json:
    return {
        "id": f"chatcmpl-{stamp.id}",
        "object": "chat.completion.chunk",
        "created": stamp.created,
        "model": stamp.route,
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


def _text(stamp: Stamp, index: int, text: str, finish: str | None = None) -> Json:
    return {
        "id": f"cmpl-{stamp.id}",
        "object": "text_completion",
        "created": stamp.created,
        "model": stamp.route,
        "choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": finish}],
    }


def event(chunk: Json) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def named_event(kind: str, **fields: Any) -> bytes:
    """An event of the formats whose events have a type."""
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind, **fields}) + b"\n\n"


async def _with_first(
    first: tuple[int, Segment], rest: AsyncIterator[tuple[int, Segment]]
) -> AsyncIterator[tuple[int, Segment]]:
    yield first
    async for each in rest:
        yield each


async def _merged(streams: Sequence[AsyncGenerator[Segment]]) -> AsyncGenerator[tuple[int, Segment]]:
    """Yield the segments of several answers as they arrive, with the number of the answer."""
    if len(streams) == 1:
        async with contextlib.aclosing(streams[0]) as only:
            async for segment in only:
                yield 0, segment
        return
    queue: asyncio.Queue[tuple[int, Segment] | Exception | None] = asyncio.Queue(len(streams))
    pumps = [asyncio.ensure_future(_pump(index, each, queue)) for index, each in enumerate(streams)]
    try:
        running = len(pumps)
        while running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int, stream: AsyncGenerator[Segment], queue: asyncio.Queue[tuple[int, Segment] | Exception | None]
) -> None:
    try:
        async with contextlib.aclosing(stream):
            async for segment in stream:
                await queue.put((index, segment))
        await queue.put(None)
    except Exception as error:
        await queue.put(error)
