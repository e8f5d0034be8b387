"""The sample browser, and the answers of two arms side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from evenhand.runs.stored import open_sources
from evenhand.server.errors import RequestError
from evenhand.show.markup import Node, plain
from evenhand.show.sections.browser import sample_payload
from evenhand.studies.results import ShownOutcome, ShownSample
from evenhand.studies.show import find_sample, shown_sample
from evenhand.ui import samples, work
from evenhand.ui.desk import Desk, json, page_of
from evenhand.ui.pages import samples as sample_pages

PAIRS = 20
"""Answers on a page of two arms side by side."""
_PATIENCE = 0.1
"""Seconds for the search index, before all samples are listed without it."""


class SamplePages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

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
        """Bring the search index up to date; the first page that asks for it does the work for all."""
        if not await asyncio.to_thread(samples.is_ready, path, file):
            await self._desk.once(f"index {file}", lambda: self._desk.workers.run(samples.update_index, path, file))

    async def _get_sample(self, request: web.Request) -> web.Response:
        row = await self._desk.row(request, "run")
        path, wanted = self._desk.index.path(row), request.query.get("id", "")

        def read() -> ShownSample:
            work.check_benchmark(path)
            return find_sample(path, wanted, skip_damaged=True)

        return json(plain(sample_payload(await asyncio.to_thread(read))))

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
        work.check_benchmark(path)
        with open_sources([path], skip_damaged=True) as (found, sources):
            shown.append([shown_sample(sources, each, found[0].benchmark().group_key) for each in ids])
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
