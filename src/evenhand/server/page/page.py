"""The live page over HTTP: its files, the state as JSON, and a stream of updates.

All data shown is untrusted, and safe for any browser whatever the texts contain. The page's own files contain no data
and are open; the data needs a key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from itertools import islice
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.format import finite
from evenhand.guards.types import Check, CheckList
from evenhand.server.page.board import Board, Feed, released
from evenhand.server.state.state import State as SharedState
from evenhand.server.telemetry.events import LONGEST, Event, Events
from evenhand.show.markup import clean, plain
from evenhand.web.errors import RequestError

_GLANCE = 200
"""Characters of the prompt in the list."""
TICK = 0.5
"""Seconds between two messages of a stream, for any number of requests."""
QUIET = 10.0
"""Seconds after which an idle stream sends a keep-alive message."""
MOST_WATCHERS = 50
_SCRIPTS = ("live.js", "stream.js", "list.js", "detail.js", "diff.js", "chart.js", "parts.js")
_REPORT_STYLES = ("page.css", "charts.css", "browser.css")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OPEN_PATHS = frozenset({"/", "/page/style.css", "/page/theme.js", *(f"/page/{name}" for name in _SCRIPTS)})
"""Paths without data, which are open so that the page can ask for a key."""


def totals(board: Board) -> Mapping[str, Any]:
    """Return the counts of the tiles."""
    return {
        "requests": board.requests,
        "answered": board.answered,
        "actions": dict(board.actions),
        "late": board.late,
        "errors": board.errors,
        "upstream_errors": board.upstream_errors,
        "tokens": board.tokens,
        "cost": board.cost,
        "unpriced": board.unpriced,
        "p50": board.percentile(0.5),
        "p95": board.percentile(0.95),
    }


def row(number: int, event: Event) -> Mapping[str, Any]:
    """Return one request for the list; of its texts, only the beginning of the prompt."""
    returned = {check.name: finite(check.score) for check in released(event)}
    # Hundreds of rows are made at once, so only fields that can hold untrusted text are cleaned.
    return {
        "number": number,
        "time": event.time,
        "route": clean(event.route),
        "endpoint": clean(event.endpoint),
        "action": clean(action(event)),
        "status": event.status,
        "late": event.late,
        "seconds": finite(event.stages.get("total")),
        "scores": [[clean(check.name), finite(check.score), returned.get(check.name)] for check in event.before],
        "prompt": clean(event.prompt[:_GLANCE]),
    }


def detail(number: int, event: Event) -> Mapping[str, Any]:
    """Return everything about one request."""
    texts = (event.prompt, event.first, event.text)
    return plain(
        {
            **row(number, event),
            "id": event.id,
            "key": event.key,
            "why": event.why,
            "prompt": event.prompt,
            "first": event.first,
            "text": event.text,
            "withheld": not any(texts),
            "cut_after": LONGEST if any(len(text) >= LONGEST for text in texts) else None,
            "checks": event.checks and asdict(event.checks),
            "input": event.input and {"action": event.input.action, "checks": _checks(event.input.checks)},
            "before": _checks(event.before),
            "after": _checks(event.after),
            "stream": event.stream,
            "first_segment": finite(event.first_segment),
            "stages": {name: finite(seconds) for name, seconds in event.stages.items()},
            "usage": asdict(event.usage),
            "error": event.error,
            "upstream_error": event.upstream_error,
        }
    )


def action(event: Event) -> str:
    """Return the guard's action, or `error` for a request without an answer."""
    return event.action or "error"


def _checks(checks: Iterable[Check]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": check.name,
            "score": finite(check.score),
            "limit": finite(check.limit),
            "passed": check.passed,
            "words": check.words,
            "problem": check.problem,
        }
        for check in checks
    ]


class LivePage:
    """Serves the live page; `checks` returns the routes with the checks that each of them runs.

    If several processes serve one port, `worker` is the number of this one. It shows the requests of all processes if
    they have a shared state, otherwise only its own.
    """

    def __init__(
        self,
        events: Events,
        checks: Callable[[], Mapping[str, CheckList]] = dict,
        worker: int = 0,
        state: SharedState | None = None,
        watched: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._feed = Feed(events, state)
        self._watched = watched
        self._checks = checks
        self._worker = worker
        self._closed = asyncio.Event()
        self._watchers = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the page's routes; all except `OPEN_PATHS` show data."""
        return [
            *(web.get(path, _file(*content)) for path, content in _files().items()),
            web.get("/page/state", self._get_state),
            web.get("/page/events", self._get_events),
            web.get(r"/page/requests/{start:\w+}/{number:\d{1,15}}", self._get_request),
        ]

    def close(self) -> None:
        """End the streams, so that open pages do not delay shutdown."""
        self._closed.set()
        self._feed.close()

    def state(self, since: int = 0) -> Mapping[str, Any]:
        """Return all counts, and the kept requests after the first `since`."""
        view, now = self._feed.view, time.time()
        board, oldest = view.board, view.oldest
        skipped = max(0, since - oldest)
        rows = (row(oldest + i, event) for i, event in enumerate(view.recent) if i >= skipped)
        return {
            "start": view.start,
            "worker": 0 if self._feed.is_shared else self._worker,
            "now": now,
            "checks": [{"route": clean(name), **plain(asdict(each))} for name, each in self._checks().items()],
            "watch": plain(self._watched()) if self._watched else None,
            "totals": totals(board),
            "routes": [{"name": clean(name), **asdict(each)} for name, each in board.routes.items()],
            "limits": _by_clean_name(board.limits),
            "windows": [
                {"name": name, "seconds": window.seconds, "lines": _by_clean_name(window.lines(now))}
                for name, window in board.windows.items()
            ],
            "oldest": oldest,
            "kept": view.recent.maxlen,
            "rows": list(rows),
        }

    async def _get_state(self, _: web.Request) -> web.Response:
        await self._feed.refresh()
        return _json(self.state())

    async def _get_request(self, request: web.Request) -> web.Response:
        await self._feed.refresh()
        view = self._feed.view
        if request.match_info["start"] != view.start:
            refusal = _refusal(409, "Another process of this server has this request, or the server was restarted.")
            refusal.force_close()  # a new connection may reach the right process
            return refusal
        number = int(request.match_info["number"])
        place = number - view.oldest
        if not 0 <= place < len(view.recent):
            return _refusal(404, "This request is no longer kept in memory. The audit file may have it.")
        return _json(detail(number, next(islice(view.recent, place, None))))

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        if self._watchers >= MOST_WATCHERS:
            return _refusal(503, f"{MOST_WATCHERS} live pages are already open. Please close one of them.")
        headers = {**_HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        self._watchers += 1
        try:
            await self._send_updates(response)
        except ConnectionError:  # the page was closed
            pass
        finally:
            self._watchers -= 1
        return response

    async def _send_updates(self, response: web.StreamResponse) -> None:
        """Send the state, then updates; a slow reader misses requests that are no longer kept, so nothing piles up."""
        sent, quiet = None, 0.0
        while not self._closed.is_set():
            await self._feed.refresh()
            view = self._feed.view
            if sent != (view.start, view.count) or quiet >= QUIET:
                state = self.state(sent[1] if sent and sent[0] == view.start else 0)
                sent, quiet = (view.start, view.count), 0.0
                await response.write(b"data: " + orjson.dumps(state) + b"\n\n")
            quiet += TICK
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(TICK):
                await self._closed.wait()
        except TimeoutError:
            pass


def _by_clean_name(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {clean(name): value for name, value in values.items()}


def _json(content: Mapping[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json", headers=_HEADERS)


def _refusal(status: int, message: str) -> web.Response:
    response = RequestError(status, message).response()
    response.headers.update(_HEADERS)
    return response


def _file(body: bytes, content_type: str) -> Callable[[web.Request], Any]:
    async def get(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)

    return get


def _files() -> Mapping[str, tuple[bytes, str]]:
    """Return the page's files by path; the style and the theme switch are shared with the reports."""
    ours, reports = files("evenhand.server.page") / "assets", files("evenhand.show") / "assets"
    styles = [*(reports / name for name in _REPORT_STYLES), ours / "live.css"]
    script = "text/javascript"
    return {
        "/": ((ours / "page.html").read_bytes(), "text/html"),
        "/page/style.css": (b"\n".join(style.read_bytes() for style in styles), "text/css"),
        "/page/theme.js": ((reports / "page.js").read_bytes(), script),
        **{f"/page/{name}": ((ours / name).read_bytes(), script) for name in _SCRIPTS},
    }
