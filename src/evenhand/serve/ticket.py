"""What is known of a request while it is worked on; at its end it becomes the event that all sinks see."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from time import time as now

from aiohttp import web

from evenhand.guarding.types import Guarded
from evenhand.serve.auth import client_of
from evenhand.serve.errors import RequestError
from evenhand.serve.events import Event
from evenhand.serve.wire import Stamp, spent, worst

GONE = 499
"""The status of a request whose client left before its answer; nobody is sent it."""
SCORING = frozenset({"/v1/moderations", "/v1alpha1/comments:analyze"})
"""Addresses where texts are scored, not answered."""


@dataclass(slots=True)
class Ticket:
    """One request; the handlers fill in what they learn."""

    id: str = field(default_factory=lambda: secrets.token_hex(12))
    time: float = field(default_factory=now)
    began: float = field(default_factory=perf_counter)
    route: str = ""
    prompt: str = ""
    stream: bool = False
    first_segment: float | None = None
    answers: Sequence[Guarded] = ()
    sending: web.StreamResponse | None = None
    """The stream that has begun."""
    fault: RequestError | None = None

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.id, int(self.time), self.route)

    def event(self, request: web.Request, status: int, *, texts: bool) -> Event:
        """As the sinks see it; of several answers the worst is shown, what all took is summed."""
        event = Event(
            id=self.id,
            time=self.time,
            route=self.route,
            endpoint=request.path,
            key=client_of(request).name,
            status=status,
            action="scored" if status == 200 and request.path in SCORING else "",
            prompt=self.prompt if texts else "",
            stream=self.stream,
            first_segment=self.first_segment,
            stages={"total": perf_counter() - self.began},
        )
        if self.fault is not None:
            event = replace(event, error=self.fault.message, upstream_error=self.fault.upstream)
        if not self.answers:
            return event
        shown = worst(self.answers)
        return replace(
            event,
            action=shown.action,
            why=shown.why,
            first=shown.first if texts else "",
            text=shown.text if texts else "",
            before=shown.before,
            after=shown.after,
            late=any(each.late for each in self.answers),
            stages={**shown.stages, **event.stages},
            usage=spent(self.answers),
        )


_TICKET = web.RequestKey("ticket", Ticket)


def new_ticket(request: web.Request) -> Ticket:
    ticket = request[_TICKET] = Ticket()
    return ticket


def ticket_of(request: web.Request) -> Ticket:
    return request[_TICKET]
