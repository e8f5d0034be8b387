"""`evenhand ui`: the web application over a folder of runs.

Its handlers read what a page shows, and the modules in `pages` write it: the list of runs and a run's page, the sample
browser, comparisons and leaderboards, what starts, cancels and resumes runs, and what is done with them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiohttp import web

from evenhand.core.errors import EvenhandError
from evenhand.runs.stored import open_sources
from evenhand.show.browser import sample_payload
from evenhand.show.markup import Node, plain, tag
from evenhand.studies.results import Estimate, ShownOutcome, ShownSample
from evenhand.studies.samples import find_sample, shown_sample
from evenhand.ui import offers, samples, work
from evenhand.ui.desk import Desk, page_of
from evenhand.ui.index import Chosen, RunRow
from evenhand.ui.pages import boards, link, post_button, problem, progress_words, runs, start
from evenhand.ui.pages import samples as sample_pages
from evenhand.ui.pages.boards import Measured
from evenhand.web.errors import RequestError, json_response
from evenhand.web.keys import KeyConfig
from evenhand.web.site import Site

PAIRS = 20
"""Answers on a page of two arms side by side."""
_PATIENCE = 0.1
"""Seconds for the search index, before all samples are listed without it."""
MOST_RANKED = 20
"""Arms on one leaderboard; further ones have worse values."""


class _Pages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def _asked(self, request: web.Request) -> tuple[Any, RunRow, Path]:
        """Return what an admin has posted about a run, the run, and its folder."""
        self._desk.site.require(request, "admin")
        form = await request.post()
        row = self._desk.posted(form)
        return form, row, self._desk.index.path(row)


class RunPages(_Pages):
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
        return json_response(
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
        if self._desk.jobs.left_nothing(run_id):
            again = tag("a", "Start it again.", href="/start")
            gone = tag("p", "Cancelled before any answer; nothing was kept. ", again, class_="sentence", role="status")
            return self._desk.html(request, run_id, tag("section", tag("h1", run_id), gone, id="run"))
        known = await self._desk.index.read(run_id)
        is_shown = known is not None and not known.fault and (known.running or 0 < known.done == known.total)
        if not is_shown and self._desk.jobs.is_ours(run_id):
            waiting = tag("p", "The run is starting …", class_="sentence", role="status", data_reading="1")
            return self._desk.html(request, run_id, tag("section", tag("h1", run_id), waiting, id="run"))
        row = await self._desk.row(request, "id")
        head = runs.head(row, self._actions(request, row))
        said = self._desk.jobs.said(row.id)
        top: list[Node] = [head, tag("section", problem(said), id="said") if said else None]
        if row.done and not row.running and not row.fault and self._desk.site.may(request, "admin"):
            metric = str(self._desk.background.found.get(row.id, {}).get("headline", ""))
            top.append(start.actions(self._desk.site.token_field(request), row, metric))
        if row.fault or not row.done:
            return self._desk.html(request, row.name, top)
        return await self._desk.streamed(request, row.name, top, "Computing the report …", self._report([row]))

    async def _report(self, rows: Sequence[RunRow]) -> Node:
        paths = [self._desk.index.path(row) for row in rows]
        found = await self._desk.computed("report", rows, work.studied, paths)
        return runs.report(found)

    def _actions(self, request: web.Request, row: RunRow) -> Node:
        if not self._desk.site.may(request, "admin"):
            return None
        token = self._desk.site.token_field(request)
        if row.running:
            return post_button("/cancel", token, "Cancel", id=row.id) if self._desk.jobs.is_ours(row.id) else None
        if row.done < row.total and not row.fault:
            return start.resume_form(token, row)
        return None


class SamplePages(_Pages):
    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/samples", self._get_samples),
            web.get("/sample.json", self._get_sample),
            web.get("/answers", self._get_answers),
        ]

    async def _get_samples(self, request: web.Request) -> web.StreamResponse:
        row = await self._desk.row(request, "run")
        query = _query(request)
        path = self._desk.index.path(row)
        file = samples.index_file(self._desk.cache, path)
        update = asyncio.ensure_future(self._indexed(path, file))
        update.add_done_callback(lambda task: None if task.cancelled() else task.exception())  # not every page waits
        await asyncio.wait([update], timeout=_PATIENCE)
        if not update.done() and query.is_plain and "at" not in request.query:
            listing = await asyncio.to_thread(samples.plain_list, path, query.page)
            shown = sample_pages.content(row, listing, replace(query, sort="plan"), "", reading=True)
            return self._desk.html(request, "Samples", shown, scripts=("live.js", "browser.js"))

        async def content() -> Node:
            await update
            opened, asked = request.query.get("at", ""), query
            if opened and (place := await asyncio.to_thread(samples.place_of, file, query, opened)):
                asked = replace(query, page=place)
            listing = await asyncio.to_thread(samples.listed, file, asked)
            return sample_pages.content(row, listing, asked, opened, reading=False)

        title = f"Samples of {row.name}"
        return await self._desk.streamed(
            request, title, None, "Reading the samples …", content(), scripts=("browser.js",)
        )

    async def _indexed(self, path: Path, file: Path) -> None:
        """Update the search index; the first page that needs it does the work for the others."""
        if not await asyncio.to_thread(samples.is_ready, path, file):
            await self._desk.once(f"index {file}", lambda: self._desk.workers.run(samples.update_index, path, file))

    async def _get_sample(self, request: web.Request) -> web.Response:
        row = await self._desk.row(request, "run")
        path, wanted = self._desk.index.path(row), request.query.get("id", "")
        found = await asyncio.to_thread(find_sample, path, wanted, skip_damaged=True)
        return json_response(plain(sample_payload(found)))

    async def _get_answers(self, request: web.Request) -> web.StreamResponse:
        chosen = await self._desk.chosen(request)
        if len(chosen) != 2 or chosen[0].row.benchmark != chosen[1].row.benchmark:
            raise RequestError(400, "Choose two arms of one benchmark to see their answers side by side.")
        every, number = bool(request.query.get("all")), page_of(request)

        async def content() -> Node:
            places = [(self._desk.index.path(each.row), each.arm.number) for each in chosen]
            indexes = [samples.index_file(self._desk.cache, path) for path, _ in places]
            for (path, _), file in zip(places, indexes, strict=True):
                await self._indexed(path, file)
            arms = [(file, arm) for file, (_, arm) in zip(indexes, places, strict=True)]
            found, shared = await asyncio.to_thread(samples.differing, *arms)
            differing = len(found)
            if every:
                found = await asyncio.to_thread(samples.shared, *arms)
            ids = found[PAIRS * (number - 1) : PAIRS * number]
            pairs = await asyncio.to_thread(_pairs, places, ids)
            return sample_pages.side_by_side(
                chosen, pairs, differing=differing, shared=shared, every=every, page=number, size=PAIRS
            )

        return await self._desk.streamed(request, "Answers side by side", None, "Reading the answers …", content())


def _pairs(
    places: Sequence[tuple[Path, int]], ids: Sequence[str]
) -> list[tuple[ShownSample, ShownOutcome | None, ShownOutcome | None]]:
    """Read samples with the outcomes of two arms, which may be in different runs."""
    shown: list[list[ShownSample]] = []
    for path, _ in places:
        with open_sources([path], skip_damaged=True) as (found, sources):
            shown.append([shown_sample(sources, each, found[0].group_key()) for each in ids])
    first, second = (f"1.{arm}" for _, arm in places)
    return [(one, _of_arm(one, first), _of_arm(other, second)) for one, other in zip(*shown, strict=True)]


def _of_arm(sample: ShownSample, arm: str) -> ShownOutcome | None:
    return next((each for each in sample.outcomes if each.arm == arm), None)


def _query(request: web.Request) -> samples.Query:
    given = request.query
    return samples.Query(
        text=given.get("text", "")[:500],
        group=given.get("group", ""),
        status=given.get("status", ""),
        arm=given.get("arm", ""),
        differs=bool(given.get("differs")),
        sort=given.get("sort", "") or "judges",
        page=page_of(request),
    )


class ComparingPages(_Pages):
    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/compare", self._get_compare),
            web.get("/boards", self._get_boards),
            web.get("/board", self._get_board),
            web.get("/history", self._get_history),
        ]

    async def _get_compare(self, request: web.Request) -> web.StreamResponse:
        chosen = await self._desk.chosen(request)
        baseline = request.query.get("baseline", "")
        keys = {each.key for each in chosen}
        benchmark = chosen[0].row.benchmark if chosen else ""
        others = [
            Chosen(row, arm)
            for row in self._desk.index.sorted()
            if row.benchmark == benchmark and row.done
            for arm in row.arms
            if f"{row.id}::{arm.number}" not in keys
        ][:500]
        fault = boards.fault_of(chosen)
        head = boards.comparison_head(chosen, others, baseline if baseline in keys else "", fault)
        if fault:
            return self._desk.html(request, "Comparison", head)
        rows = list({each.row.id: each.row for each in chosen}.values())
        number = {row.id: place for place, row in enumerate(rows, 1)}
        arms = [f"{number[each.row.id]}.{each.arm.number}" for each in chosen]
        wanted = next((arm for arm, each in zip(arms, chosen, strict=True) if each.key == baseline), None)

        async def content() -> Node:
            paths = [self._desk.index.path(row) for row in rows]
            found = await self._desk.computed(f"compare {arms} {wanted}", rows, work.studied, paths, arms, wanted)
            return runs.report(found)

        return await self._desk.streamed(request, "Comparison", head, "Comparing the arms …", content())

    async def _get_boards(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        known: dict[str, list[RunRow]] = {}
        for row in self._desk.index.sorted():
            if row.benchmark:
                known.setdefault(row.benchmark, []).append(row)
        listed = [
            (name, len(rows), len({each for row in rows for each in row.answering})) for name, rows in known.items()
        ]
        content = boards.boards(sorted(listed), self._desk.background.pending)
        return self._desk.html(request, "Leaderboards", content, here="/boards", scripts=("live.js",))

    async def _get_board(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        benchmark = request.query.get("benchmark", "")
        sets = _sets(self._measured(benchmark))
        chosen = request.query.get("samples", "")
        arms = next((each for each in sets if each[0].samples == chosen), sets[0] if sets else [])
        head = boards.board_head(
            benchmark, sets, arms[0].samples if arms else "", self._desk.background.pending_of(benchmark)
        )
        if not arms:
            return self._desk.html(request, benchmark, head, here="/boards", scripts=("live.js",))

        async def content() -> Node:
            shown = arms[:MOST_RANKED]
            ranks = await self._ranks(shown)
            order = sorted(shown, key=lambda arm: list(ranks).index(arm.key))
            return boards.board_table(order, ranks, len(arms) - len(shown))

        return await self._desk.streamed(
            request, benchmark, head, "Comparing all pairs …", content(), here="/boards", scripts=("live.js",)
        )

    async def _ranks(self, arms: Sequence[Measured]) -> dict[str, tuple[int | None, Estimate | None]]:
        rows = list({arm.row.id: arm.row for arm in arms}.values())
        number = {row.id: place for place, row in enumerate(rows, 1)}
        ids = {f"{number[arm.row.id]}.{arm.number}": arm.key for arm in arms}
        paths = [self._desk.index.path(row) for row in rows]
        found = await self._desk.computed(f"ranks {sorted(ids)}", rows, work.ranked, paths, list(ids))
        return {
            ids[each["id"]]: (each["rank"], None if each["estimate"] is None else Estimate(**each["estimate"]))
            for each in found
        }

    async def _get_history(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        model, benchmark = request.query.get("model", ""), request.query.get("benchmark", "")
        rows = [row for row in self._desk.index.sorted() if not row.fault]
        models = sorted({each for row in rows for each in row.answering})
        benchmarks = sorted({row.benchmark for row in rows if not model or model in row.answering})
        arms = [arm for arm in self._measured(benchmark) if arm.model == model]
        content = boards.history(
            models, benchmarks, model, benchmark, arms, self._desk.background.pending_of(benchmark), page_of(request)
        )
        return self._desk.html(request, "Over time", content, here="/history", scripts=("live.js",))

    def _measured(self, benchmark: str) -> list[Measured]:
        """Return all arms of a benchmark that were computed, newest first."""
        found = self._desk.background.found
        rows = [row for row in self._desk.index.sorted() if row.benchmark == benchmark and row.id in found]
        return [arm for row in rows if found[row.id].get("arms") for arm in boards.measured_from(row, found[row.id])]


def _sets(arms: Sequence[Measured]) -> list[list[Measured]]:
    """Return the newest arm of every model and method by set of samples, the largest set of arms first."""
    newest: dict[tuple[Any, ...], Measured] = {}
    for arm in arms:
        newest.setdefault((arm.samples, arm.scorers, arm.what), arm)
    sets: dict[tuple[Any, ...], list[Measured]] = {}
    for arm in newest.values():
        sets.setdefault((arm.samples, arm.scorers), []).append(arm)
    ordered = sorted(sets.values(), key=lambda each: (len(each), each[0].row.created), reverse=True)
    return [sorted(each, key=_badness) for each in ordered]


def _badness(arm: Measured) -> float:
    value = arm.value.value if arm.value else None
    if value is None:
        return float("inf")
    return {"higher": -value, "zero": abs(value)}.get(arm.headline.better or "", value)


class StartPages(_Pages):
    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/start", self._get_start),
            web.post("/start", self._post_start),
            web.post("/cancel", self._post_cancel),
            web.post("/resume", self._post_resume),
        ]

    async def _get_start(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        content = await asyncio.to_thread(start.form, self._desk.site.token_field(request), start.StartForm())
        return self._desk.html(request, "Start", content, here="/start")

    async def _post_start(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        given = await request.post()
        token, asked = self._desk.site.token_field(request), start.StartForm()
        try:
            asked = start.StartForm.of(given, self._desk.index.folder)
            arguments = await asyncio.to_thread(asked.arguments, self._desk.index.folder)
            if given.get("step") == "start":
                run_id = await self._desk.jobs.start(asked.folder_name(), arguments)
                raise web.HTTPSeeOther(link("/run", id=run_id))
            found = await self._desk.jobs.forecast(arguments)
        except EvenhandError as error:
            content = await asyncio.to_thread(start.form, token, asked, str(error))
            return self._desk.html(request, "Start", content, here="/start", status=400)
        return self._desk.html(request, "Start", start.confirm(token, asked, found), here="/start")

    async def _post_cancel(self, request: web.Request) -> web.StreamResponse:
        self._desk.site.require(request, "admin")
        run_id = str((await request.post()).get("id", ""))
        await self._desk.jobs.cancel(run_id)
        raise web.HTTPSeeOther(link("/run", id=run_id))

    async def _post_resume(self, request: web.Request) -> web.StreamResponse:
        form, row, path = await self._asked(request)
        await asyncio.to_thread(offers.check_resume, path)
        await self._desk.jobs.resume(row.id, offers.check_budget(str(form.get("budget", ""))))
        raise web.HTTPSeeOther(link("/run", id=row.id))


class ActionPages(_Pages):
    """What is done with a run that is there, each by the command of the same name; no model is called."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/gate", self._post_gate),
            web.post("/annotate", self._post_annotate),
            web.post("/evidence", self._post_evidence),
            web.get("/evidence.zip", self._get_evidence),
        ]

    async def _post_gate(self, request: web.Request) -> web.StreamResponse:
        form, row, path = await self._asked(request)
        limits = [f"--fail-if={each.strip()}" for each in str(form.get("fail_if", "")).split(",") if each.strip()]
        code, out = await self._desk.jobs.finished("gate", str(path), *limits, fine=tuple(_GATE))
        return self._desk.html(request, "Gate", start.done(row, f"The gate {_GATE[code]}", out))

    async def _post_annotate(self, request: web.Request) -> web.StreamResponse:
        form, row, path = await self._asked(request)
        out = self._desk.index.folder / "ratings" / _stamped(row)
        raters = str(form.get("raters", "")).strip()[:300] or "2"
        arguments = ["annotate", "export", str(path), f"--out={out}", f"--raters={raters}"]
        if kept := start.keep_file(form, "rubric", self._desk.index.folder):
            arguments.append(f"--rubric={offers.uploaded(self._desk.index.folder, kept)}")
        _, said = await self._desk.jobs.finished(*arguments)
        served = ("annotate", "ui", str(out), "--port=0", f"--host={self._desk.site.host}")
        said += await self._desk.jobs.serve(f"ratings {out.name}", "Keep the links private", *served)
        return self._desk.html(request, "Ratings", start.done(row, "People can rate it now", said))

    async def _post_evidence(self, request: web.Request) -> web.StreamResponse:
        _, row, path = await self._asked(request)
        out = self._desk.index.folder / "evidence" / _stamped(row)
        _, said = await self._desk.jobs.finished("evidence", "pack", str(path), f"--out={out}", "--no-pdf")
        address = link("/evidence.zip", pack=out.name)
        load = tag("a", "Download the pack", href=address, class_="button primary", download=True)
        return self._desk.html(request, "Evidence", start.done(row, "The evidence is packed", said, load))

    async def _get_evidence(self, request: web.Request) -> web.StreamResponse:
        packs, name = self._desk.index.folder / "evidence", request.query.get("pack", "")
        if name not in {each.name for each in packs.glob("*") if each.is_dir()}:
            raise RequestError(404, "There is no such pack; make it on the page of the run.")
        file = await asyncio.to_thread(shutil.make_archive, str(packs / name), "zip", packs, name)
        return web.FileResponse(file, headers={"Content-Disposition": f'attachment; filename="{name}.zip"'})


_GATE = {0: "passes", 5: "fails", 6: "cannot tell"}
"""What the exit codes of `evenhand gate` mean."""


def _stamped(row: RunRow) -> str:
    return f"{row.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


_PAGES = (RunPages, SamplePages, ComparingPages, StartPages, ActionPages)


class Workbench(Desk):
    """The desk with its site."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", keys: Mapping[str, KeyConfig] | None = None) -> None:
        super().__init__(folder)
        ours, reports = files("evenhand.ui") / "assets", files("evenhand.show") / "assets"
        browser = b"\n".join((reports / name).read_bytes() for name in ("dom.js", "browser.js"))
        assets = {"live.js": (ours / "live.js").read_bytes(), "browser.js": browser}
        routes = [route for pages in _PAGES for route in pages(self).routes()]
        self.site = Site(routes, host=host, keys=keys, assets=assets)
