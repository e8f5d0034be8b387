"""Starts, cancels and resumes runs."""

from __future__ import annotations

import asyncio

from aiohttp import web

from evenhand.core.errors import EvenhandError
from evenhand.server.errors import RequestError
from evenhand.ui import offers
from evenhand.ui.desk import Desk
from evenhand.ui.pages import start
from evenhand.ui.pages.elements import link


class StartPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/start", self._get_start),
            web.post("/start", self._post_start),
            web.post("/cancel", self._post_cancel),
            web.post("/resume", self._post_resume),
        ]

    async def _get_start(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        content = await asyncio.to_thread(start.form, self._desk.site.token_field(request), start.Asked())
        return self._desk.html(request, "Start", content, here="/start")

    async def _post_start(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        given = await request.post()
        asked = start.Asked.of(given)
        token = self._desk.site.token_field(request)
        try:
            arguments = await asyncio.to_thread(asked.arguments)
            if given.get("step") == "start":
                run_id = await self._desk.jobs.start(asked.folder_name(), arguments)
                raise web.HTTPSeeOther(link("/run", id=run_id))
            forecast = await self._desk.jobs.forecast(arguments)
        except EvenhandError as error:
            content = await asyncio.to_thread(start.form, token, asked, str(error))
            return self._desk.html(request, "Start", content, here="/start", status=400)
        return self._desk.html(request, "Start", start.confirm(token, asked, forecast), here="/start")

    async def _post_cancel(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        run_id = str((await request.post()).get("id", ""))
        await self._desk.jobs.cancel(run_id)
        raise web.HTTPSeeOther(link("/run", id=run_id) if self._desk.index.get(run_id) else "/")

    async def _post_resume(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        form = await request.post()
        row = self._desk.index.get(str(form.get("id", "")))
        if row is None:
            raise RequestError(404, "There is no such run.")
        await asyncio.to_thread(offers.check_resume, self._desk.index.path(row))
        await self._desk.jobs.resume(row.id, offers.check_budget(str(form.get("budget", ""))))
        raise web.HTTPSeeOther(link("/run", id=row.id))
