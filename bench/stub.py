"""A chat completions endpoint that costs next to nothing: one prebuilt reply to every POST, after a set latency.

It runs in a process of its own, so that its CPU time is not the client's, and as a bare asyncio protocol on uvloop,
so that it is not the bottleneck. It prints its port, and ends when its standard input closes: it cannot outlive the
benchmark that started it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any, cast

import orjson

REPLY = (
    "The context does not say which of the two people it was, so choosing one of them would rest on an assumption "
    "about their group and not on what is written. The answer that the text supports is that it cannot be told."
)
_LENGTH = b"content-length:"


def completion(text: str, logprobs: Any = None) -> bytes:
    """A whole HTTP response with one chat completion."""
    message = {"role": "assistant", "content": text}
    body = orjson.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "stub",
            "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 180, "completion_tokens": 42, "total_tokens": 222},
        }
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    return head + str(len(body)).encode() + b"\r\n\r\n" + body


RESPONSE = completion(REPLY)


class Endpoint(asyncio.Protocol):
    """One keep-alive connection: reads requests whole, answers each in turn."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            response = self.response(self._buffer[end + 4 : end + 4 + length])
            self._buffer = self._buffer[end + 4 + length :]
            if self._latency:
                self._loop.call_later(self._latency, self._answer, response)
            else:
                self._answer(response)

    def response(self, body: bytes) -> bytes:
        """What to send to a request; the same to all of them here."""
        del body
        return RESPONSE

    def _answer(self, response: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response)


async def serve(latency: float, endpoint: type[Endpoint]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: endpoint(latency), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(endpoint: type[Endpoint] = Endpoint) -> None:
    """Serve with the latency that the command line gives, until standard input closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = serve(float(sys.argv[1]), endpoint)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
