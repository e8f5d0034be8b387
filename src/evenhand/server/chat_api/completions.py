"""`/v1/completions`, the older endpoint: every prompt is answered as a conversation of one message.

Methods work on conversations, so fields without a counterpart there (suffix, best_of, logprobs, prompts as tokens) are
rejected by name.
"""

from __future__ import annotations

from aiohttp import web

from evenhand.server.access.limits import limits_of
from evenhand.server.chat_api.chat import all_answers, body_of, chosen_guard, chunk_format, send, stream_answers
from evenhand.server.chat_api.streaming import text_chunks
from evenhand.server.chat_api.wire import (
    Json,
    answers_wanted,
    as_list,
    is_set,
    single_bodies,
    text_completion,
)
from evenhand.server.errors import RequestError
from evenhand.server.routes import Routes
from evenhand.server.ticket import ticket_of

_REFUSED = ("suffix", "best_of", "logprobs")
_OURS = frozenset({"prompt", "echo", "n", *_REFUSED})


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
            return await stream_answers(request, guard, bodies, chunk_format(ticket, body, text_chunks))
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
