"""`/v1/chat/completions`: a request, through its route's guard, to an answer in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from evenhand import aio
from evenhand.guards.conversation import content_words
from evenhand.guards.types import Guarded
from evenhand.server.access.auth import allowed, client_of
from evenhand.server.chat_api.bare import Answering
from evenhand.server.chat_api.streaming import Chunk, chat_chunks, stream
from evenhand.server.chat_api.wire import (
    Json,
    answers_wanted,
    as_object,
    chat_completion,
    check_chat,
    headers,
    is_set,
    read_body,
    single_bodies,
)
from evenhand.server.errors import RequestError
from evenhand.server.routes import Route, Routes
from evenhand.server.ticket import Ticket, ticket_of

METHOD_HEADER = "X-Evenhand-Method"
_OFF = ("none", "default")


async def answer_chat(request: web.Request, routes: Routes) -> web.StreamResponse:
    body = read_body(await request.read())
    check_chat(body)
    n = answers_wanted(body)
    ticket = ticket_of(request)
    with routes.find(body["model"]) as route:
        ticket.route = route.name
        ticket.prompt = last_words(body["messages"])
        guard = chosen_guard(request, body, route)
        bodies = single_bodies(body, n)
        if is_set(body, "stream"):
            return await stream_answers(request, guard, bodies, chat_chunks)
        ticket.answers = await all_answers(guard, bodies)
    return send(chat_completion(ticket.answers, ticket.stamp), ticket)


async def stream_answers(
    request: web.Request, guard: Answering, bodies: Sequence[Json], chunks: Chunk
) -> web.StreamResponse:
    ticket = ticket_of(request)
    ticket.stream = True
    options = as_object(bodies[0].get("stream_options"))
    usage = bool(options and options.get("include_usage"))
    streams = [guard.stream(each) for each in bodies]
    return await stream(request, ticket, streams, chunks, usage=usage)


async def all_answers(guard: Answering, bodies: Sequence[Json]) -> list[Guarded]:
    """One guarded answer per body, side by side."""
    if len(bodies) == 1:
        return [await guard.respond(bodies[0])]
    return await aio.all_of(guard.respond(each) for each in bodies)


def send(body: Json, ticket: Ticket) -> web.Response:
    """A finished answer, with the record in short as headers."""
    told = headers(ticket.answers, ticket.route)
    told["X-Request-Id"] = ticket.id
    return web.Response(body=orjson.dumps(body), headers=told, content_type="application/json")


def chosen_guard(request: web.Request, body: Json, route: Route) -> Answering:
    """The route's guard, or the bare model for a key that may switch the method off; our field leaves the body."""
    given = body.pop("evenhand", {})
    ours = as_object(given)
    if ours is None or set(ours) - {"method"}:
        raise RequestError(400, 'The field evenhand may hold {"method": …} and nothing else.', param="evenhand")
    named = ours.get("method") or request.headers.get(METHOD_HEADER)
    if named is None or named == route.method:
        return route.guard
    if named not in _OFF:
        raise RequestError(
            400, f"The method of a route is in the server's config; a request may only ask for {_OFF[0]!r}."
        )
    if not allowed(client_of(request), "bypass"):
        raise RequestError(403, "This key may not switch off the route's method.", code="missing_right")
    return route.bare


def last_words(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the user said last, as text, for the record of the request."""
    return next((content_words(each.get("content")) for each in reversed(messages) if each["role"] == "user"), "")
