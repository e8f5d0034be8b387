"""Clients of a chat completions server in one lean process: `serve_load.py '{"url": …, "clients": …, "seconds": …}'`.

Each client sends its next request as soon as it has an answer, or after a pause of random length, as independent
clients do: without it, the clients of an endpoint with one fixed latency soon send all at the same moment. Bare asyncio
protocols, so that the load costs little next to what is measured. Every answer is read: it must be a completion or an
error in OpenAI's form, a stream must come to its end. With `stream`, the time until the first words is noted too; with
`long`, so many further clients stream answers of 1 MB; with `health`, one more asks /healthz. The result is the last
line printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
import uvloop

LONG = "Answer at length."
"""What a request says to which the stub answers with 1 MB."""
VARY = "Answer differently."
"""What a request says to which the stub answers with one text after the other."""
HEALTH_PAUSE = 0.02
_END_BYTES = 64
_WORDS = re.compile(rb'"content":"[^"]')


def asked(words: str = "You answer briefly.", *, stream: bool = False) -> bytes:
    messages = [
        {"role": "system", "content": words},
        {"role": "user", "content": "Two people came to the office. Who of them was late? " * 8},
    ]
    streamed = {"stream": True} if stream else {}
    return orjson.dumps({"model": "bench", "messages": messages, "temperature": 0, **streamed})


@dataclass
class Tally:
    """What all clients saw."""

    seconds: list[float] = field(default_factory=list[float])
    first: list[float] = field(default_factory=list[float])
    """Seconds until the first words of a stream."""
    statuses: Counter[int] = field(default_factory=Counter[int])
    invalid: int = 0
    lost: int = 0
    """Requests whose connection was closed before an answer came."""
    refused: int = 0
    """Connections that were not taken: nobody listens any more."""
    lost_in_flight: int = 0
    """Of the lost ones those that were sent before the signal to end."""
    in_flight_at_end: int = 0
    told_to_end: float = float("inf")


class Client(asyncio.Protocol):
    """One keep-alive connection that asks until its time is up."""

    def __init__(self, request: bytes, until: float, pause: float, tally: Tally) -> None:
        self._request = request
        self._pause = pause
        self._until = until
        self._tally = tally
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.waiting = False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask_later()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        self._note(int(head[9:12]), self._buffer[end + 4 : end + 4 + length])
        self._buffer = b""
        self._go_on(head)

    def _go_on(self, head: bytes) -> None:
        if b"connection: close" in head or time.perf_counter() >= self._until:
            assert self._transport is not None
            self._transport.close()
        else:
            self._ask_later()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.waiting:
            self._tally.lost += 1
            self._tally.lost_in_flight += self._sent < self._tally.told_to_end
        if not self.done.done():
            self.done.set_result(None)

    def _ask_later(self) -> None:
        if self._pause:
            asyncio.get_running_loop().call_later(random.uniform(0, self._pause), self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._sent = time.perf_counter()
        self.waiting = True
        self._transport.write(self._request)

    def _note(self, status: int, body: bytes) -> None:
        self.waiting = False
        self._tally.seconds.append(time.perf_counter() - self._sent)
        self._tally.statuses[status] += 1
        self._tally.invalid += not _is_openais(status, body)


class StreamClient(Client):
    """The same for streams; of an answer, only its head and its end are kept."""

    _head = b""
    _first = False

    def data_received(self, data: bytes) -> None:
        if not self._head:
            self._head = data.partition(b"\r\n\r\n")[0].lower()
        if not self._first and _WORDS.search(data):
            self._first = True
            self._tally.first.append(time.perf_counter() - self._sent)
        self._buffer = (self._buffer + data)[-_END_BYTES:]
        if not self._buffer.endswith(b"\r\n0\r\n\r\n" if b"chunked" in self._head else b"[DONE]\n\n"):
            return
        head, end = self._head, self._buffer
        self.waiting = False
        self._tally.seconds.append(time.perf_counter() - self._sent)
        self._tally.statuses[int(head[9:12])] += 1
        self._tally.invalid += b"data: [DONE]" not in end
        self._head, self._buffer, self._first = b"", b"", False
        self._go_on(head)


class HealthClient(Client):
    """The same for a path without an answer in OpenAI's form."""

    def _note(self, status: int, body: bytes) -> None:
        del body
        self.waiting = False
        self._tally.seconds.append(time.perf_counter() - self._sent)
        self._tally.statuses[status] += 1


def _is_openais(status: int, body: bytes) -> bool:
    try:
        reply: Any = orjson.loads(body)
        if status == 200:
            return isinstance(reply["choices"][0]["message"], dict) and reply["object"] == "chat.completion"
        return isinstance(reply["error"]["message"], str) and bool(reply["error"]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return False


async def load(
    url: str,
    clients: int,
    seconds: float,
    pause: float = 0.0,
    end_pid: int = 0,
    end_after: float = 0.0,
    *,
    stream: bool = False,
    long: int = 0,
    health: bool = False,
    vary: bool = False,
) -> dict[str, Any]:
    """Ask for so long; where a process id is given, tell it to end on the way."""
    parts = urlsplit(url)
    tally, long_tally, health_tally = Tally(), Tally(), Tally()
    began = time.perf_counter()
    until = began + seconds
    running: set[Client] = set()

    def posted(body: bytes) -> bytes:
        head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def keep_asking(make: Callable[[], Client], counted: Tally = tally) -> None:
        while time.perf_counter() < until:
            try:
                _, client = await asyncio.get_running_loop().create_connection(make, parts.hostname, parts.port)
            except OSError:
                counted.refused += 1
                if time.perf_counter() > tally.told_to_end:
                    return
                await asyncio.sleep(0.05)
                continue
            running.add(client)
            await client.done
            running.discard(client)

    async def end() -> None:
        await asyncio.sleep(end_after)
        tally.in_flight_at_end = sum(client.waiting for client in running)
        tally.told_to_end = time.perf_counter()
        os.kill(end_pid, signal.SIGTERM)

    kind = StreamClient if stream else Client
    request = posted(asked(VARY, stream=stream) if vary else asked(stream=stream))
    work = [keep_asking(lambda: kind(request, until, pause, tally)) for _ in range(clients)]
    long_request = posted(asked(LONG, stream=True))
    work += [keep_asking(lambda: StreamClient(long_request, until, 0, long_tally), long_tally) for _ in range(long)]
    if health:
        look = f"GET /healthz HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        work.append(keep_asking(lambda: HealthClient(look, until, HEALTH_PAUSE, health_tally), health_tally))
    await asyncio.gather(*work, *([end()] if end_pid else []))
    wall = time.perf_counter() - began
    return {
        **_summary(tally, wall),
        "long": _summary(long_tally, wall),
        "health": _summary(health_tally, wall),
    }


def _summary(tally: Tally, wall: float) -> dict[str, Any]:
    return {
        "requests": len(tally.seconds),
        "rps": len(tally.seconds) / wall,
        "p50_ms": _at(tally.seconds, 0.5),
        "p99_ms": _at(tally.seconds, 0.99),
        "most_ms": _at(tally.seconds, 1.0),
        "first_ms": _at(tally.first, 0.5),
        "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
        "invalid": tally.invalid,
        "lost": tally.lost,
        "refused": tally.refused,
        "in_flight_at_end": tally.in_flight_at_end,
        "lost_in_flight": tally.lost_in_flight,
    }


def _at(seconds: list[float], share: float) -> float:
    """A percentile in milliseconds."""
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else 0.0


def main() -> None:
    print(json.dumps(uvloop.run(load(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
