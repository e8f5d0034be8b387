"""`/v1/responses`: answers a request through its route's guard. Nothing is stored."""

from __future__ import annotations

from aiohttp import web

from evenhand.server.access.limits import limits_of
from evenhand.server.chat_api.chat import all_answers, body_of, chosen_guard, last_user_text, send, stream_answers
from evenhand.server.chat_api.responses.events import ResponseEvents
from evenhand.server.chat_api.responses.reply import finished_response
from evenhand.server.chat_api.responses.request import as_chat
from evenhand.server.chat_api.wire import answers_wanted, check_chat, is_set
from evenhand.server.routes import Routes
from evenhand.server.ticket import ticket_of


async def answer_responses(request: web.Request, routes: Routes) -> web.StreamResponse:
    body = await body_of(request)
    chat = as_chat(body)
    most = limits_of(request)
    check_chat(chat, most)
    answers_wanted(chat, most)
    ticket = ticket_of(request)
    with routes.find(body["model"]) as route:
        ticket.route = route.name
        ticket.prompt = last_user_text(chat["messages"])
        guard = chosen_guard(request, chat, route)
        if is_set(chat, "stream"):
            return await stream_answers(request, guard, [chat], ResponseEvents(ticket.stamp, body))
        ticket.answers = await all_answers(guard, [chat])
    return send(finished_response(ticket.stamp, body, ticket.answers[0]), ticket)
