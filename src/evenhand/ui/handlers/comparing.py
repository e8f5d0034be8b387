"""Comparisons, leaderboards, and one model over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from evenhand.show.markup import Node
from evenhand.studies.results import Estimate
from evenhand.ui import work
from evenhand.ui.desk import Desk, page_of
from evenhand.ui.index import Chosen, Row
from evenhand.ui.pages import boards, compare, run
from evenhand.ui.pages.boards import Measured

MOST_RANKED = 20
"""Arms on one leaderboard; further ones have worse values."""


class ComparingPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

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
        fault = compare.fault_of(chosen)
        head = compare.head(chosen, others, baseline if baseline in keys else "", fault)
        if fault:
            return self._desk.html(request, "Comparison", head)
        rows = list({each.row.id: each.row for each in chosen}.values())
        number = {row.id: place for place, row in enumerate(rows, 1)}
        arms = [f"{number[each.row.id]}.{each.arm.number}" for each in chosen]
        wanted = next((arm for arm, each in zip(arms, chosen, strict=True) if each.key == baseline), None)

        async def content() -> Node:
            paths = [self._desk.index.path(row) for row in rows]
            found = await self._desk.computed(f"compare {arms} {wanted}", rows, work.studied, paths, arms, wanted)
            return run.report(found)

        return await self._desk.streamed(request, "Comparison", head, "Comparing the arms …", content())

    async def _get_boards(self, request: web.Request) -> web.StreamResponse:
        await self._desk.refresh()
        known: dict[str, list[Row]] = {}
        for row in self._desk.index.sorted():
            if row.benchmark:
                known.setdefault(row.benchmark, []).append(row)
        listed = [(name, len(rows), len({each for row in rows for each in row.models})) for name, rows in known.items()]
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
        models = sorted({each for row in rows for each in row.models})
        benchmarks = sorted({row.benchmark for row in rows if not model or model in row.models})
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
