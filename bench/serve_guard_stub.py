"""The stub endpoint with streams: a word in each chunk, or about 1 MB of sentences if the request says LONG.

If it says VARY, whole answers are paragraphs of our docs, one after the other.
All chunks are sent at once after the latency, so that whatever a client waits longer is what the server adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, repeat
from pathlib import Path

import orjson
from serve_load import LONG, VARY
from stub import REPLY, RESPONSE, Endpoint, completion, main

SENTENCE = "Neither of the two people was said to be late, so the text leaves that open. "


def stream_of(pieces: Iterable[str]) -> bytes:
    """A whole streamed chat completion with these pieces of text."""
    chunks = [_chunk({"content": piece}) for piece in pieces]
    body = b"".join([*chunks, _chunk({}, "stop"), b"data: [DONE]\n\n"])
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "
    return head + str(len(body)).encode() + b"\r\n\r\n" + body


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "stub", "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


STREAM = stream_of(f"{word} " for word in REPLY.split())
LONG_STREAM = stream_of(repeat(SENTENCE, 1_000_000 // len(SENTENCE)))


def paragraphs() -> list[str]:
    """The paragraphs of the docs, in the order of their files."""
    texts = [file.read_text(encoding="utf-8") for file in sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))]
    found = [each for text in texts for each in text.split("\n\n") if 200 <= len(each) <= 800]
    return [each for each in found if each[0].isalpha()]


VARIED = cycle([completion(each) for each in paragraphs()])


class Streaming(Endpoint):
    """Answers whole or as a stream, as the request wants it."""

    def response(self, body: bytes) -> bytes:
        if b'"stream":true' not in body:
            return next(VARIED) if VARY.encode() in body else RESPONSE
        return LONG_STREAM if LONG.encode() in body else STREAM


if __name__ == "__main__":
    main(Streaming)
