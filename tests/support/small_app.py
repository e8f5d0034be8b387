"""A small server around single parts of the guard's server: real sockets, real middlewares, no guard."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from evenhand.server.errors import as_request_error
from evenhand.server.ticket import Ticket, new_ticket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef], *middlewares: Callable[..., Awaitable[web.StreamResponse]], size: int = 1_000_000
) -> AsyncIterator[tuple[str, list[Ticket]]]:
    """The address of a server with these routes, and what it noted of its requests."""
    tickets: list[Ticket] = []

    @web.middleware
    async def front(request: web.Request, handler: Handler) -> web.StreamResponse:
        tickets.append(ticket := new_ticket(request))
        try:
            return await handler(request)
        except Exception as error:
            return as_request_error(error, ticket.id).response()

    app = web.Application(middlewares=[front, *middlewares], client_max_size=size)
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", tickets
    finally:
        await runner.cleanup()
