"""The web application: all URL paths with their handlers, and the middlewares around every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.guards.upstreams import CALLER
from evenhand.server import page
from evenhand.server.access import allow_origins, auth_middleware, caller_of, preflight
from evenhand.server.chat_api.chat import answer_chat, answer_completions
from evenhand.server.chat_api.embeddings import answer_embeddings
from evenhand.server.chat_api.messages import PATH as MESSAGES
from evenhand.server.chat_api.messages import answer_messages, error_response
from evenhand.server.chat_api.responses import answer_responses
from evenhand.server.chat_api.streaming import end_with_error
from evenhand.server.errors import ANSWERED, as_request_error, endpoint_of
from evenhand.server.limits import add_headers
from evenhand.server.routes import Routes
from evenhand.server.scoring_api import scoring_routes
from evenhand.server.scoring_api.perspective import google_errors
from evenhand.server.server import Server
from evenhand.server.telemetry import health, metrics
from evenhand.server.telemetry.events import CLIENT_CLOSED, finish_span
from evenhand.server.ticket import UNANSWERED, Ticket, new_ticket
from evenhand.web.errors import RequestError, json_response
from evenhand.web.keys import Handler

_log = logging.getLogger("evenhand.server")
_REPORTED = frozenset({*ANSWERED, *UNANSWERED})
"""The endpoints whose requests become events."""
_RETRY_SECONDS = 2.0
"""Retry-After during shutdown, when another process takes over the address."""
_CLOSE_SECONDS = 0.5
"""Time limit to close connections at shutdown; by then all requests are answered or abandoned."""
Answer = Callable[[web.Request, Routes], Awaitable[web.StreamResponse]]
_ANSWERS: Mapping[str, Answer] = {
    "/v1/chat/completions": answer_chat,
    "/v1/responses": answer_responses,
    MESSAGES: answer_messages,
    "/v1/completions": answer_completions,
    "/v1/embeddings": answer_embeddings,
}
Reload = Callable[[], Awaitable[list[str]]]


def make_app(server: Server, reload: Reload) -> web.Application:
    """Return the application with all paths; `reload` reads the config file again."""
    auth = auth_middleware(lambda: server.auth, health.OPEN_PATHS | page.OPEN_PATHS, server.wrong_keys)
    middlewares: list[Any] = [_front(server), google_errors(), auth, server.limits.middleware()]
    if server.config.cors:
        middlewares.insert(1, preflight(server.config.cors))
    app = web.Application(middlewares=middlewares)
    app.add_routes(
        [
            *_answer_routes(server),
            *_facts_routes(server, reload),
            *scoring_routes(server.scorer),
            *server.health.routes(),
            *metrics.routes(server.metrics),
        ]
    )
    if server.page is not None:
        app.add_routes(server.page.routes())
    app.on_response_prepare.append(add_headers)
    if server.config.cors:
        app.on_response_prepare.append(allow_origins(server.config.cors))
    return app


def make_runner(server: Server, reload: Reload) -> web.AppRunner:
    """Return a runner for the application; a request is cancelled when its client disconnects."""
    return web.AppRunner(
        make_app(server, reload), access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_SECONDS
    )


def _answer_routes(server: Server) -> Iterator[web.RouteDef]:
    """Yield the paths of OpenAI, and those of Azure, whose deployments are the routes."""
    for path, answer in _ANSWERS.items():
        handler = _with_routes(server, answer)
        call = path.removeprefix("/v1")
        for prefix in ("/v1", "/openai/v1", "/openai/deployments/{route:.+}"):
            yield web.post(prefix + call, handler)
        if call == "/responses":
            yield web.post(f"/openai{call}", handler)


def _with_routes(server: Server, answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        CALLER.set(caller.name)
        return await answer(request, server.routes.only(caller.routes))

    return handle


def _front(server: Server) -> Middleware:
    """Return the outermost middleware: request ids, errors in OpenAI's format, and one event per request."""

    @web.middleware
    async def front(request: web.Request, handler: Handler) -> web.StreamResponse:
        server.proxies.note_client(request)
        ticket = new_ticket(request)
        if request.method != "POST":
            return await _respond(request, handler, ticket)
        status = CLIENT_CLOSED
        with server.working(), ticket.meter.used(), server.traced(request) as span:
            try:
                response = await _respond(request, _closed if server.closed else handler, ticket)
                status = response.status if ticket.fault is None else ticket.fault.status
            finally:
                if endpoint_of(request.path) in _REPORTED:
                    event = ticket.event(request, status, texts=server.texts)
                    if span is not None:
                        finish_span(span, event)
                    # Published after the answer is sent, so that the client does not wait for the sinks.
                    asyncio.get_running_loop().call_soon(server.events.publish, event)
                    if server.watch is not None and ticket.answers and not server.draining:
                        server.replay(ticket)
            if server.draining:
                response.force_close()
            return response

    return front


async def _closed(_request: web.Request) -> web.StreamResponse:
    raise RequestError(
        503, "This server is shutting down. Try again.", code="shutting_down", retry_after=_RETRY_SECONDS
    )


async def _respond(request: web.Request, handler: Handler, ticket: Ticket) -> web.StreamResponse:
    try:
        return await handler(request)
    except (asyncio.CancelledError, ConnectionError):
        raise  # the client has disconnected
    except Exception as error:
        fault = ticket.fault = as_request_error(error, ticket.id, request.path)
        if fault.status == 500:
            _log.exception("The request %s failed", ticket.id)
    if ticket.sending is not None:
        await end_with_error(ticket.sending, ticket.failure(fault))
        return ticket.sending
    response = error_response(fault) if endpoint_of(request.path) == MESSAGES else fault.response()
    response.headers["X-Request-Id"] = ticket.id
    return response


def _facts_routes(server: Server, reload: Reload) -> list[web.RouteDef]:
    """Return the paths of the models that a client may use, and of the server's own affairs."""

    async def models(request: web.Request) -> web.Response:
        names = server.routes.only(caller_of(request).routes).names()
        return json_response({"object": "list", "data": [_model_object(name) for name in names]})

    async def model(request: web.Request) -> web.Response:
        routes = server.routes.only(caller_of(request).routes)
        return json_response(_model_object(routes.find(request.match_info["name"]).name))

    async def reloaded(_request: web.Request) -> web.Response:
        return json_response({"reloaded": True, "needs_restart": await reload()})

    async def spent(_request: web.Request) -> web.Response:
        return json_response(await server.state.spent())

    return [
        *(web.get(path, models) for path in ("/v1/models", "/openai/models", "/openai/v1/models")),
        web.get("/v1/models/{name:.+}", model),
        web.post("/admin/reload", reloaded),
        web.get("/admin/spent", spent),
    ]


def _model_object(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "evenhand"}
