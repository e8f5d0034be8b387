"""The events of a streamed response, numbered and in OpenAI's order.

Text is sent as it is released. Function calls and refusals are checked at the end of an answer, so each is sent in one
piece then. A stream that fails ends in `error` and `response.failed`: clients know one or the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from evenhand.guards.types import Guarded, Segment
from evenhand.server.chat_api.responses.reply import (
    finished_response,
    message_item,
    output_items,
    text_part,
    unfinished_response,
)
from evenhand.server.chat_api.wire import Json, Stamp
from evenhand.server.errors import RequestError

_EMPTY: dict[str, Json] = {"output_text": text_part(""), "refusal": {"type": "refusal", "refusal": ""}}


class ResponseEvents:
    """The stream of one response; a `StreamFormat`."""

    def __init__(self, stamp: Stamp, body: Json) -> None:
        self._stamp = stamp
        self._body = body
        self._sent = 0
        self._text = ""
        self._output: list[Json] = []

    def segment(self, index: int, segment: Segment) -> Iterator[bytes]:
        del index
        if not self._sent:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=unfinished_response(self._stamp, self._body, "in_progress"))
        if segment.text:
            if not self._text:
                yield self._added(0, message_item(self._stamp, [], "in_progress"))
                yield self._part_event("response.content_part.added", 0, part=_EMPTY["output_text"])
            self._text += segment.text
            yield self._part_event("response.output_text.delta", 0, delta=segment.text, logprobs=[])
        if segment.final is not None:
            self._output = output_items(self._stamp, segment.final, self._text)
            for place, item in enumerate(self._output):
                yield from self._message(item) if item["type"] == "message" else self._call(place, item)

    def end(self, answers: Sequence[Guarded]) -> Iterator[bytes]:
        response = finished_response(self._stamp, self._body, answers[0], self._output)
        yield self._event(f"response.{response['status']}", response=response)

    def failure(self, fault: RequestError) -> Iterator[bytes]:
        error: Json = fault.body["error"]
        told = {name: error[name] for name in ("code", "message", "param")}
        yield self._event("error", **told, error=error)
        code = "rate_limit_exceeded" if fault.status == 429 else "server_error"
        parts = [message_item(self._stamp, [text_part(self._text)], "incomplete")] if self._text else []
        response = unfinished_response(self._stamp, self._body, "failed")
        response |= {"error": {"code": code, "message": error["message"]}, "output": self._output or parts}
        yield self._event("response.failed", response=response)

    def _message(self, item: Json) -> Iterator[bytes]:
        """Yield the rest of the message: its text is sent, a refusal is not."""
        if not self._text:
            yield self._added(0, {**item, "status": "in_progress", "content": []})
        for index, part in enumerate(item["content"]):
            is_text = part["type"] == "output_text"
            if not (is_text and self._text):
                yield self._part_event("response.content_part.added", index, part=_EMPTY[part["type"]])
            if is_text:
                yield self._part_event("response.output_text.done", index, text=part["text"], logprobs=[])
            else:
                yield self._part_event("response.refusal.delta", index, delta=part["refusal"])
                yield self._part_event("response.refusal.done", index, refusal=part["refusal"])
            yield self._part_event("response.content_part.done", index, part=part)
        yield self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, place: int, item: Json) -> Iterator[bytes]:
        yield self._added(place, {**item, "status": "in_progress", "arguments": ""})
        where: Json = {"item_id": item["id"], "output_index": place}
        yield self._event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        done: Json = {"name": item["name"], "arguments": item["arguments"]}
        yield self._event("response.function_call_arguments.done", **where, **done)
        yield self._event("response.output_item.done", output_index=place, item=item)

    def _added(self, place: int, item: Json) -> bytes:
        return self._event("response.output_item.added", output_index=place, item=item)

    def _part_event(self, kind: str, index: int, **fields: Any) -> bytes:
        return self._event(kind, item_id=f"msg_{self._stamp.id}", output_index=0, content_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._sent, **fields})
        self._sent += 1
        return f"event: {kind}\ndata: ".encode() + data + b"\n\n"
