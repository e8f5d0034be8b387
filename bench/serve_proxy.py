"""The least that a proxy on aiohttp can do: `serve_proxy.py UPSTREAM` passes bodies on, and prints its port."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def serve(upstream: str) -> None:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar())

    async def pass_on(request: web.Request) -> web.Response:
        body = await request.read()
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{upstream}/chat/completions", data=body, headers=headers) as reply:
            return web.Response(body=await reply.read(), status=reply.status, content_type="application/json")

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", pass_on)])
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
