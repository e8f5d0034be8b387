"""The web application: which address is answered by what, and what happens around every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.server.access.auth import Handler, auth_middleware
from evenhand.server.access.cors import allow_origins, preflight
from evenhand.server.chat_api.chat import answer_chat
from evenhand.server.chat_api.completions import answer_completions
from evenhand.server.chat_api.streaming import break_off
from evenhand.server.errors import RequestError, told
from evenhand.server.page import page
from evenhand.server.routes import Routes
from evenhand.server.scoring_api.perspective_errors import google_errors
from evenhand.server.scoring_api.routes import scoring_routes
from evenhand.server.server import Server
from evenhand.server.telemetry import health, metrics
from evenhand.server.ticket import GONE, SCORING, Ticket, new_ticket

_log = logging.getLogger("evenhand.server")
_TOLD = frozenset({"/v1/chat/completions", "/v1/completions", *SCORING})
"""The addresses whose requests become events."""
_COME_BACK = 2.0
"""Seconds after which a client that came too late may try again: then another process serves this address."""
_LAST_SECONDS = 0.5
"""For connections when the server closes: by then all requests are answered, or nobody waits for them any longer."""
Answer = Callable[[web.Request, Routes], Awaitable[web.StreamResponse]]
Reload = Callable[[], Awaitable[list[str]]]


def make_app(server: Server, reload: Reload) -> web.Application:
    """All addresses of a server; `reload` reads its config again."""
    keys = auth_middleware(lambda: server.auth, health.OPEN_PATHS | page.OPEN_PATHS)
    around: list[Any] = [_front(server), google_errors(), keys, server.limits.middleware()]
    if server.config.cors:
        around.insert(1, preflight(server.config.cors))
    app = web.Application(middlewares=around, client_max_size=int(server.config.limits.body_mb * 1e6))
    app.add_routes(
        [
            web.post("/v1/chat/completions", _with_routes(server, answer_chat)),
            web.post("/v1/completions", _with_routes(server, answer_completions)),
            web.get("/v1/models", _models(server)),
            web.get("/v1/models/{name:.+}", _model(server)),
            web.post("/admin/reload", _reload(reload)),
            *scoring_routes(server.scorer),
            *server.health.routes(),
            *metrics.routes(server.metrics),
        ]
    )
    if server.page is not None:
        app.add_routes(server.page.routes())
    if server.config.cors:
        app.on_response_prepare.append(allow_origins(server.config.cors))
    return app


def make_runner(server: Server, reload: Reload) -> web.AppRunner:
    """The application, to be bound to a port; when a client leaves, the work for it is cancelled."""
    return web.AppRunner(
        make_app(server, reload), access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_SECONDS
    )


def _with_routes(server: Server, answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(request, server.routes)

    return handle


def _front(server: Server) -> Middleware:
    """Around everything: every request gets an id, every failure OpenAI's form, every answer an event."""

    @web.middleware
    async def front(request: web.Request, handler: Handler) -> web.StreamResponse:
        ticket = new_ticket(request)
        if request.method != "POST":
            return await _answered(request, handler, ticket)
        status = GONE
        with server.working():
            try:
                response = await _answered(request, _closed if server.closed else handler, ticket)
                status = response.status if ticket.fault is None else ticket.fault.status
            finally:
                if request.path in _TOLD:
                    event = ticket.event(request, status, texts=server.texts)
                    # Once the answer has left: the client need not wait for those who watch.
                    asyncio.get_running_loop().call_soon(server.events.publish, event)
            if server.draining:
                response.force_close()
            return response

    return front


async def _closed(_request: web.Request) -> web.StreamResponse:
    raise RequestError(503, "This server is about to end; try again.", code="shutting_down", retry_after=_COME_BACK)


async def _answered(request: web.Request, handler: Handler, ticket: Ticket) -> web.StreamResponse:
    try:
        return await handler(request)
    except (asyncio.CancelledError, ConnectionError):
        raise  # the client is gone
    except Exception as error:
        fault = ticket.fault = told(error)
        if fault.status == 500:
            _log.exception("The request %s failed", ticket.id)
    if ticket.sending is not None:
        await break_off(ticket.sending, fault)
        return ticket.sending
    response = fault.response()
    response.headers["X-Request-Id"] = ticket.id
    return response


def _models(server: Server) -> Handler:
    async def models(_request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [_described(name) for name in server.routes.names()]})

    return models


def _model(server: Server) -> Handler:
    async def model(request: web.Request) -> web.Response:
        return _json(_described(server.routes.find(request.match_info["name"]).name))

    return model


def _described(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "evenhand"}


def _reload(reload: Reload) -> Handler:
    async def read_again(_request: web.Request) -> web.Response:
        return _json({"reloaded": True, "needs_restart": await reload()})

    return read_again


def _json(body: object) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")
