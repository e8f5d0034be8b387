"""The stub endpoint as an attacker: replies of very many JSON values, and streams of very many pieces."""

from __future__ import annotations

import orjson
from stub import RESPONSE, Endpoint, main

VALUES = 10_000_000
"""Of the reply, about 30 MB."""


def _whole(kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: "
    return head + str(len(body)).encode() + b"\r\n\r\n" + body


def _pieces(count: int) -> bytes:
    """A stream of one tool call, whose arguments come in so many pieces."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "say", "arguments": "some words "}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    lines = [b"data: " + orjson.dumps(chunk) + b"\n\n"] * count + [b"data: " + orjson.dumps(end) + b"\n\n"]
    return _whole(b"text/event-stream", b"".join(lines) + b"data: [DONE]\n\n")


class Attacker(Endpoint):
    """Answers as the request names it: VALUES, or PIECES and a number."""

    def response(self, body: bytes) -> bytes:
        if b"VALUES" in body:
            return _whole(b"application/json", b'{"choices": [' + b"{}," * VALUES + b"{}]}")
        if b"PIECES" in body:
            return _pieces(int(body.split(b"PIECES ")[1].split(b'"')[0]))
        return RESPONSE


if __name__ == "__main__":
    main(Attacker)
