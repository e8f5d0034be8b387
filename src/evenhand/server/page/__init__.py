"""The live page: its figures, its files, the state as JSON, and a stream of updates.

All data shown is untrusted, and safe for any browser whatever the texts contain. The page's own files contain no data
and are open; the data needs a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from itertools import islice
from time import monotonic
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.format import finite
from evenhand.core.types import Usage
from evenhand.guards.types import Check, CheckList, InputRecord
from evenhand.guards.upstreams import Tried
from evenhand.server.state.state import State
from evenhand.server.state.types import SILENT_SECONDS, SharedStoreError
from evenhand.server.telemetry.events import KEPT, LONGEST, Event, Events, OtherAnswer, shortened
from evenhand.show.markup import clean, plain
from evenhand.web.errors import RequestError, json_response

BARS = 60
"""Time steps per window."""
WINDOWS = {"5 minutes": 5, "hour": 60, "day": 24 * 60}
"""Seconds per time step of each window."""
_LATEST = 1_000
"""Number of latest requests in the latency percentiles."""
_UNGUARDED = frozenset({"", "scored", "embedded", "bypassed"})
_COUNTS = ("requests", "late", "upstream_errors", "errors", "tokens", "cost", "unpriced")
PUBLISH_SECONDS = 0.5
"""How long requests may take to appear on the pages of other processes."""
FRESH_SECONDS = 0.4
"""All watchers of a process share one look at the state in this time."""


@dataclass(slots=True)
class RouteCount:
    """Counts of one route."""

    requests: int = 0
    answered: int = 0
    """Answers that went through the guard."""
    revised: int = 0
    blocked: int = 0
    failing: int = 0
    """Answers that were returned although they fail: no revision passed."""
    errors: int = 0


@dataclass(slots=True)
class RunningMean:
    """A running mean."""

    total: float = 0.0
    n: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.n += 1

    @property
    def value(self) -> float | None:
        return round(self.total / self.n, 4) if self.n else None


_NOTHING = RunningMean()


@dataclass(slots=True)
class TimeStep:
    """Mean scores of one time step by evaluator, of first answers (`before`) and returned answers (`after`)."""

    index: int
    before: dict[str, RunningMean] = field(default_factory=dict[str, RunningMean])
    after: dict[str, RunningMean] = field(default_factory=dict[str, RunningMean])


class Window:
    """Mean scores over the last time steps."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._steps: deque[TimeStep] = deque(maxlen=BARS)

    def add(self, time: float, before: Iterable[Check], after: Iterable[Check]) -> None:
        index = int(time // self.seconds)
        # A request that ended out of order counts in the latest step.
        if not self._steps or index > self._steps[-1].index:
            self._steps.append(TimeStep(index))
        step = self._steps[-1]
        for means, checks in ((step.before, before), (step.after, after)):
            for check in checks:
                score = finite(check.score)
                if score is not None:
                    means.setdefault(check.name, RunningMean()).add(score)

    def as_fields(self) -> list[dict[str, Any]]:
        return [asdict(step) for step in self._steps]

    def add_fields(self, steps: Iterable[Mapping[str, Any]]) -> None:
        """Add the time steps of another process."""
        known = {step.index: step for step in self._steps}
        for given in steps:
            step = known.setdefault(given["index"], TimeStep(given["index"]))
            for means, others in ((step.before, given["before"]), (step.after, given["after"])):
                for name, other in others.items():
                    mean = means.setdefault(name, RunningMean())
                    mean.total += other["total"]
                    mean.n += other["n"]
        self._steps = deque(sorted(known.values(), key=lambda step: step.index), maxlen=BARS)

    def lines(self, now: float) -> Mapping[str, Any]:
        """Return the means by evaluator, oldest step first; None for steps without scores. The last step is now."""
        last = int(now // self.seconds)
        # An event with a time in the future counts as now.
        known = {min(step.index, last): step for step in self._steps}
        steps = [known.get(index, TimeStep(index)) for index in range(last - BARS + 1, last + 1)]
        names = sorted({name for step in steps for name in (*step.before, *step.after)})
        return {
            name: {
                "before": [step.before.get(name, _NOTHING).value for step in steps],
                "after": [step.after.get(name, _NOTHING).value for step in steps],
                "n": [step.before.get(name, _NOTHING).n for step in steps],
            }
            for name in names
        }


class Board:
    """A sink that keeps counts and means, never texts."""

    def __init__(self, latest: int | None = _LATEST) -> None:
        self.requests = 0
        self.late = 0
        self.upstream_errors = 0
        self.errors = 0
        self.tokens = 0
        self.cost = 0.0
        self.unpriced = 0
        """Requests of unknown cost."""
        self.actions: Counter[str] = Counter()
        self.routes: dict[str, RouteCount] = {}
        self.limits: dict[str, float] = {}
        """The latest limit of each evaluator."""
        self.windows = {name: Window(seconds) for name, seconds in WINDOWS.items()}
        self._seconds: deque[float] = deque(maxlen=latest)

    @classmethod
    def sum_of(cls, boards: Iterable[Mapping[str, Any]]) -> Board:
        """Return the counts of several processes together, each as `as_fields` gives them."""
        whole = cls(latest=None)
        for board in boards:
            whole._add(board)
        return whole

    def as_fields(self) -> dict[str, Any]:
        """Return all counts as JSON can hold them."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "actions": self.actions,
            "routes": {name: asdict(route) for name, route in self.routes.items()},
            "limits": self.limits,
            "windows": {name: window.as_fields() for name, window in self.windows.items()},
            "seconds": list(self._seconds),
        }

    def _add(self, board: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + board[name])
        self.actions.update(board["actions"])
        self.limits |= board["limits"]
        self._seconds.extend(board["seconds"])
        for name, counts in board["routes"].items():
            route = self.routes.setdefault(name, RouteCount())
            for field_name, count in counts.items():
                setattr(route, field_name, getattr(route, field_name) + count)
        for name, steps in board["windows"].items():
            self.windows[name].add_fields(steps)

    def __call__(self, event: Event) -> None:
        self.requests += 1
        self.actions[event.action] += 1
        self.late += event.late
        self.upstream_errors += bool(event.upstream_error)
        self.errors += event.status >= 400
        self.tokens += event.usage.tokens
        if event.usage.cost is None:
            self.unpriced += 1
        else:
            self.cost += event.usage.cost
        self._count_route(event)
        self._measure(event)

    def _count_route(self, event: Event) -> None:
        route = self.routes.setdefault(event.route, RouteCount())
        route.requests += 1
        route.answered += event.action not in _UNGUARDED
        route.revised += event.action == "revised"
        route.blocked += event.action in ("blocked", "input-blocked")
        route.failing += event.action in ("tried", "unrevised")
        route.errors += event.status >= 400

    def _measure(self, event: Event) -> None:
        if event.action in _UNGUARDED:
            return
        seconds = finite(event.stages.get("total")) or 0.0
        self._seconds.append(seconds)
        for check in event.before:
            if (limit := finite(check.limit)) is not None:
                self.limits[check.name] = limit
        for window in self.windows.values():
            for answer in (event, *event.others):
                window.add(event.time + seconds, answer.before, released(answer))

    @property
    def answered(self) -> int:
        """Answers that went through the guard."""
        return sum(n for action, n in self.actions.items() if action not in _UNGUARDED)

    def percentile(self, fraction: float) -> float | None:
        """Return a percentile of the latest latencies; None before the first answer."""
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else None


def released(answer: Event | OtherAnswer) -> tuple[Check, ...]:
    """Return the checks of the returned text; for an unchanged answer, those of the first answer."""
    if answer.after or answer.action in ("revised", "tried", "blocked", *_UNGUARDED):
        return answer.after
    return answer.before


@dataclass(slots=True)
class BoardView:
    """The counts, and the latest requests; they are numbered from 0, and the last one is `count` - 1."""

    start: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Differs if requests are counted anew."""
    count: int = 0
    recent: deque[Event] = field(default_factory=lambda: deque[Event](maxlen=KEPT))
    board: Board = field(default_factory=Board)

    @property
    def oldest(self) -> int:
        return self.count - len(self.recent)


class Feed:
    """A sink that keeps the view of this process, and shares it with the others if there is a shared state."""

    def __init__(self, events: Events, state: State | None = None) -> None:
        self._own = BoardView(recent=events.recent)
        self._all = BoardView()
        self._state = state if state is not None and state.is_shared else None
        self._news: deque[str] = deque(maxlen=KEPT)
        self._has_news = asyncio.Event()
        self._publishing: asyncio.Task[None] | None = None
        self._fresh_until = 0.0
        events.add(self)

    def __call__(self, event: Event) -> None:
        self._own.board(event)
        self._own.count += 1
        if self._state is not None:
            self._news.append(_to_json(shortened(event)))
            self._has_news.set()
            if self._publishing is None:
                self._publishing = asyncio.ensure_future(self._publish(self._state))

    @property
    def is_shared(self) -> bool:
        """Whether the view is of all processes."""
        return self._state is not None and not self._state.down

    @property
    def view(self) -> BoardView:
        return self._all if self.is_shared else self._own

    async def refresh(self) -> None:
        """Bring the view up to date with the other processes."""
        if self._state is None or monotonic() < self._fresh_until:
            return
        self._fresh_until = monotonic() + FRESH_SECONDS
        try:
            shown = await self._state.read(self._all.count)
            if shown.start != self._all.start:
                self._all = BoardView(shown.start)
                shown = await self._state.read(0)
        except SharedStoreError:
            return
        self._all.recent.extend(map(_from_json, shown.events))
        self._all.count = shown.count
        self._all.board = Board.sum_of(json.loads(board) for board in shown.boards)

    def close(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        if self._state is not None and self._news:
            self._send(self._state)

    async def _publish(self, state: State) -> None:
        """Publish what is new, and from time to time that this process is alive."""
        while True:
            self._send(state)
            await asyncio.sleep(PUBLISH_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SILENT_SECONDS / 3):
                    await self._has_news.wait()

    def _send(self, state: State) -> None:
        if not state.down:
            state.publish(self._own.start, list(self._news), json.dumps(self._own.board.as_fields()))
            self._news.clear()
            self._has_news.clear()


def _to_json(event: Event) -> str:
    # The standard library's JSON keeps lone surrogates and infinite numbers, which clients and models may send.
    return json.dumps(asdict(event))


def _from_json(text: str) -> Event:
    """Return the event; fields that another version of the program added are left out."""
    known = _known(Event, json.loads(text))
    for name in ("before", "after"):
        known[name] = tuple(Check(**_known(Check, each)) for each in known[name])
    if given := known["input"]:
        checks = tuple(Check(**_known(Check, each)) for each in given["checks"])
        known["input"] = InputRecord(given["action"], tuple(given["why"]), checks)
    if given := known.get("checks"):
        known["checks"] = CheckList(*(tuple(given[each.name]) for each in fields(CheckList)))
    known["others"] = ()
    known["tried"] = tuple(Tried(**each) for each in known["tried"])
    known["why"] = tuple(known["why"])
    known["usage"] = Usage(**_known(Usage, known["usage"]))
    return Event(**known)


def _known(kind: type[Event] | type[Check] | type[Usage], values: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


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
OPEN_PATHS = frozenset({"/", *(f"/page/{name}" for name in ("style.css", "theme.js", "dom.js", *_SCRIPTS))})
"""Paths without data, which are open so that the page can ask for a key."""


def totals(board: Board) -> Mapping[str, Any]:
    counts = {name: getattr(board, name) for name in (*_COUNTS, "answered")}
    actions = dict(board.actions)
    return {**counts, "actions": actions, "p50": board.percentile(0.5), "p95": board.percentile(0.95)}


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
    return [{**asdict(check), "score": finite(check.score), "limit": finite(check.limit)} for check in checks]


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
        state: State | None = None,
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
        return json_response(self.state(), headers=_HEADERS)

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
        return json_response(detail(number, next(islice(view.recent, place, None))), headers=_HEADERS)

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        if self._watchers >= MOST_WATCHERS:
            return _refusal(503, f"{MOST_WATCHERS} live pages are already open. Please close one of them.")
        headers = {**_HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        self._watchers += 1
        try:
            with contextlib.suppress(ConnectionError):  # the page was closed
                await self._send_updates(response)
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._closed.wait()


def _by_clean_name(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {clean(name): value for name, value in values.items()}


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
        "/page/dom.js": ((reports / "dom.js").read_bytes(), script),
        **{f"/page/{name}": ((ours / name).read_bytes(), script) for name in _SCRIPTS},
    }
