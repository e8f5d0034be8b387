"""What the live page shows: the requests of this process, or of all processes that share their state."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from time import monotonic
from typing import Any

from evenhand.core.types import Usage
from evenhand.guards.types import Check
from evenhand.server.page.board import Board
from evenhand.server.state.state import State
from evenhand.server.state.types import SILENT_SECONDS, StoreError
from evenhand.server.telemetry.events import KEPT, Event, Events, shortened

PUBLISH_SECONDS = 0.5
"""How long requests may take to appear on the pages of other processes."""
FRESH_SECONDS = 0.4
"""All watchers of a process share one look at the state in this time."""


@dataclass(slots=True)
class View:
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
        self._own = View(recent=events.recent)
        self._all = View()
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
    def view(self) -> View:
        return self._all if self.is_shared else self._own

    async def refresh(self) -> None:
        """Bring the view up to date with the other processes."""
        if self._state is None or monotonic() < self._fresh_until:
            return
        self._fresh_until = monotonic() + FRESH_SECONDS
        try:
            shown = await self._state.read(self._all.count)
            if shown.start != self._all.start:
                self._all = View(shown.start)
                shown = await self._state.read(0)
        except StoreError:
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
            try:
                async with asyncio.timeout(SILENT_SECONDS / 3):
                    await self._has_news.wait()
            except TimeoutError:
                pass

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
    known["why"] = tuple(known["why"])
    known["usage"] = Usage(**_known(Usage, known["usage"]))
    return Event(**known)


def _known(kind: type[Event] | type[Check] | type[Usage], values: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
