"""`/v1/chat/completions` and `/v1/completions`: answer a request through its route's guard, in OpenAI's format.

The older endpoint answers every prompt as a conversation of one message. Methods work on conversations, so fields
without a counterpart there (suffix, best_of, logprobs, prompts as tokens) are rejected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from evenhand.core import aio
from evenhand.guards.fields import parsed
from evenhand.guards.request import content_words
from evenhand.guards.types import Guarded
from evenhand.server.access import caller_of
from evenhand.server.chat_api.streaming import Chunk, ChunkFormat, StreamFormat, chat_chunks, stream, text_chunks
from evenhand.server.chat_api.wire import (
    Json,
    Stamp,
    answers_wanted,
    as_list,
    as_object,
    chat_completion,
    check_chat,
    headers,
    is_set,
    read_body,
    single_bodies,
    text_completion,
)
from evenhand.server.limits import limits_of
from evenhand.server.routes import Answerer, Route, Routes
from evenhand.server.ticket import Ticket, ticket_of
from evenhand.web.errors import RequestError, json_response
from evenhand.web.keys import allowed

METHOD_HEADER = "X-Evenhand-Method"
_OFF = ("none", "default")
_REFUSED = ("suffix", "best_of", "logprobs")
_OURS = frozenset({"prompt", "echo", "n", *_REFUSED})


async def answer_chat(request: web.Request, routes: Routes) -> web.StreamResponse:
    return await answer_as_chat(
        request,
        routes,
        lambda body: body,
        partial(chunk_format, chunks=chat_chunks),
        lambda stamp, _, answers: chat_completion(answers, stamp),
    )


async def body_of(request: web.Request) -> Json:
    """Return the parsed body; the path of an Azure-style request names the model."""
    return await parsed(partial(read_body, route=request.match_info.get("route")), await request.read())


async def answer_as_chat(
    request: web.Request,
    routes: Routes,
    translate: Callable[[Json], Json],
    events: Callable[[Stamp, Json], StreamFormat],
    finished: Callable[[Stamp, Json, Sequence[Guarded]], Json],
) -> web.StreamResponse:
    """Answer a request of any API: it becomes a chat completions request, and the answer takes its format again."""
    body = await body_of(request)
    chat = translate(body)
    most = limits_of(request)
    check_chat(chat, most)
    n = answers_wanted(chat, most)
    ticket = ticket_of(request)
    with routes.find(body["model"]) as route:
        ticket.route = route.name
        ticket.prompt = last_user_text(chat["messages"])
        guard = chosen_guard(request, chat, route)
        bodies = single_bodies(chat, n)
        if is_set(chat, "stream"):
            return await stream(request, ticket, [guard.stream(each) for each in bodies], events(ticket.stamp, body))
        ticket.answers = await all_answers(guard, bodies)
    return send(finished(ticket.stamp, body, ticket.answers), ticket)


def chunk_format(stamp: Stamp, body: Json, chunks: Chunk) -> ChunkFormat:
    options = as_object(body.get("stream_options"))
    return ChunkFormat(stamp, chunks, usage=bool(options and options.get("include_usage")))


async def all_answers(guard: Answerer, bodies: Sequence[Json]) -> list[Guarded]:
    """Return one guarded answer per body, computed concurrently."""
    if len(bodies) == 1:
        return [await guard.respond(bodies[0])]
    return await aio.all_of(guard.respond(each) for each in bodies)


def send(body: Json, ticket: Ticket) -> web.Response:
    """Return a finished answer, with a summary of the guard's record in the headers."""
    summary = headers(ticket.answers, ticket.route)
    summary["X-Request-Id"] = ticket.id
    return json_response(body, headers=summary)


def chosen_guard(request: web.Request, body: Json, route: Route) -> Answerer:
    """Return the route's guard, or its passthrough if the key may switch the method off; removes `evenhand`."""
    ticket_of(request).chat = body
    given = body.pop("evenhand", {})
    ours = as_object(given)
    if ours is None or set(ours) - {"method"}:
        raise RequestError(400, 'The field evenhand may contain only {"method": …}.', param="evenhand")
    named = ours.get("method") or request.headers.get(METHOD_HEADER)
    if named is None or named == route.method:
        return route.guard
    if named not in _OFF:
        raise RequestError(
            400, f"The method of a route is set in the server's config. A request may only ask for {_OFF[0]!r}."
        )
    if not allowed(caller_of(request), "bypass"):
        raise RequestError(403, "This key may not switch off the route's method.", code="missing_right")
    return route.passthrough


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last user message, for the record of the request."""
    return next((content_words(each.get("content")) for each in reversed(messages) if each["role"] == "user"), "")


async def answer_completions(request: web.Request, routes: Routes) -> web.StreamResponse:
    body = await body_of(request)
    prompts = _prompts(body)
    most = limits_of(request)
    n = answers_wanted(body, most)
    streams, echoes = is_set(body, "stream"), is_set(body, "echo")
    if streams and echoes:
        raise RequestError(400, "echo cannot be streamed.", param="echo")
    if len(prompts) * n > most.choices:
        raise RequestError(400, f"A request may ask for at most {most.choices} texts.", param="prompt")
    ticket = ticket_of(request)
    with routes.find(body["model"]) as route:
        ticket.route = route.name
        ticket.prompt = "\n\n".join(prompts)
        guard = chosen_guard(request, body, route)
        bodies = [each for prompt in prompts for each in single_bodies(_as_chat(body, prompt), n)]
        if streams:
            form = chunk_format(ticket.stamp, body, text_chunks)
            return await stream(request, ticket, [guard.stream(each) for each in bodies], form)
        ticket.answers = await all_answers(guard, bodies)
    echoed = [prompt for prompt in prompts for _ in range(n)] if echoes else ()
    return send(text_completion(ticket.answers, ticket.stamp, echoed), ticket)


def _prompts(body: Json) -> list[str]:
    given = body.get("prompt")
    prompts = [given] if isinstance(given, str) else as_list(given)
    if not prompts or not all(isinstance(each, str) for each in prompts):
        raise RequestError(400, "prompt must be a text or a list of texts.", param="prompt")
    for name in _REFUSED:
        if body.get(name) not in (None, 0, 1 if name == "best_of" else None):
            raise RequestError(400, f"{name} is not supported here. Use /v1/chat/completions.", param=name)
    return prompts


def _as_chat(body: Json, prompt: str) -> Json:
    """Return the chat request for one prompt; all other fields are the same."""
    kept = {name: value for name, value in body.items() if name not in _OURS}
    return {**kept, "messages": [{"role": "user", "content": prompt}]}
