"""The list of runs, and a run's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from aiohttp import web

from evenhand.show.markup import Node, tag
from evenhand.ui import work
from evenhand.ui.desk import Desk, json, page_of
from evenhand.ui.index import Row
from evenhand.ui.pages import run, runs, start
from evenhand.ui.pages.elements import post_button, problem, progress_words


class RunPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._get_runs),
            web.get("/state.json", self._get_state),
            web.get("/run", self._get_run),
        ]

    async def _get_runs(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        rows = self._desk.index.sorted()
        given = {each.name: request.query.get(each.name, "") for each in fields(runs.Filters) if each.name != "page"}
        filters = runs.Filters(**given, page=page_of(request))
        headlines = {run_id: str(found.get("text", "")) for run_id, found in self._desk.background.found.items()}
        content = runs.content(self._desk.index.shown, rows, filters, headlines, len(self._desk.index.unread))
        return self._desk.html(request, "Runs", content, here="/")

    async def _get_state(self, _: web.Request) -> web.Response:
        await self._desk.refresh()
        live = {row.id: row for row in self._desk.index.rows.values() if row.running}
        return json(
            {
                "running": {
                    run_id: {"done": row.done, "total": row.total, "words": progress_words(row.done, row.total)}
                    for run_id, row in live.items()
                },
                "unread": len(self._desk.index.unread),
                "pending": self._desk.background.pending,
            }
        )

    async def _get_run(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        run_id = request.query.get("id", "")
        if await self._desk.index.read(run_id) is None and self._desk.jobs.is_ours(run_id):
            waiting = tag("p", "The run is starting …", class_="sentence", role="status", data_reading="1")
            return self._desk.html(request, run_id, tag("section", tag("h1", run_id), waiting, id="run"))
        row = await self._desk.row(request, "id")
        head = run.head(row, self._actions(request, row))
        said = self._desk.jobs.said(row.id)
        top: list[Node] = [head, tag("section", problem(said), id="said") if said else None]
        if row.fault or not row.done:
            return self._desk.html(request, row.name, top)
        return await self._desk.streamed(request, row.name, top, "Computing the report …", self._report([row]))

    async def _report(self, rows: Sequence[Row]) -> Node:
        paths = [self._desk.index.path(row) for row in rows]
        found = await self._desk.computed("report", rows, work.studied, paths)
        return run.report(found)

    def _actions(self, request: web.Request, row: Row) -> Node:
        if not self._desk.site.may(request, "admin"):
            return None
        token = self._desk.site.token_field(request)
        if row.running:
            return post_button("/cancel", token, "Cancel", id=row.id) if self._desk.jobs.is_ours(row.id) else None
        if row.done < row.total and not row.fault:
            return start.resume_form(token, row)
        return None
