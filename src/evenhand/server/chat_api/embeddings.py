"""`/v1/embeddings`: passed on to the model of a route.

Only numbers come back: vectors are read as floats, whatever the client asks for, and everything else is written here.
So there is nothing to check.
"""

from __future__ import annotations

import asyncio
import base64
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.types import Usage
from evenhand.guards.fields import as_mapping, as_sequence
from evenhand.guards.upstream import CutReply
from evenhand.server.chat_api.chat import body_of
from evenhand.server.chat_api.wire import Json, as_list
from evenhand.server.routes import Routes
from evenhand.server.ticket import ticket_of
from evenhand.web.errors import RequestError

MOST_INPUTS = 2048
_FORMATS = ("float", "base64")


async def answer_embeddings(request: web.Request, routes: Routes) -> web.StreamResponse:
    body = await body_of(request)
    inputs = _inputs(body.get("input"))
    form = body.get("encoding_format") or "float"
    if form not in _FORMATS:
        raise RequestError(400, "encoding_format must be float or base64.", param="encoding_format")
    ticket = ticket_of(request)
    with routes.find(body["model"]) as route:
        ticket.route = route.name
        ticket.prompt = "\n\n".join(each for each in inputs if isinstance(each, str))
        asked = {name: value for name, value in body.items() if name not in ("model", "evenhand", "stream")}
        reply, used = await route.passthrough.embed({**asked, "encoding_format": "float"})
    data = await asyncio.to_thread(_written, reply, len(inputs), route.name, form, used)
    headers = {"X-Request-Id": ticket.id, "X-Evenhand-Route": route.name}
    return web.Response(body=data, headers=headers, content_type="application/json")


def _inputs(given: Any) -> Sequence[Any]:
    """Return the texts, or lists of tokens, of which each gets one vector."""
    inputs = [given] if isinstance(given, str) or _are_tokens(given) else as_list(given)
    if not inputs or len(inputs) > MOST_INPUTS or not (_are_texts(inputs) or all(map(_are_tokens, inputs))):
        raise RequestError(
            400, f"input must be a text, a list of tokens, or a list of at most {MOST_INPUTS} of these.", param="input"
        )
    return inputs


def _are_texts(value: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in value)


def _are_tokens(value: Any) -> bool:
    tokens = as_list(value)
    return bool(tokens) and all(type(each) is int for each in tokens)


def _written(reply: Mapping[str, Any], count: int, route: str, form: str, usage: Usage) -> bytes:
    items = [as_mapping(each) for each in as_sequence(reply.get("data"))]
    if len(items) != count:
        raise CutReply(f"The upstream sent {len(items)} embeddings for {count} inputs.")
    vectors = [_vector(each.get("embedding")) for each in sorted(items, key=_index)]
    tokens = usage.prompt_tokens
    written: Json = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _in_base64(each) if form == "base64" else each}
            for index, each in enumerate(vectors)
        ],
        "model": route,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return orjson.dumps(written)


def _index(item: Mapping[str, Any]) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else 0


def _vector(value: Any) -> list[float]:
    try:
        vector = array("d", as_sequence(value)).tolist()
    except (TypeError, OverflowError):
        vector = []
    if not vector or not all(map(math.isfinite, vector)):
        raise CutReply("The upstream sent an embedding that is not a list of numbers.")
    return vector


def _in_base64(vector: Sequence[float]) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()
