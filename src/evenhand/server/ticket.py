"""The state of one request while it is processed; at its end it becomes an event for all sinks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from time import time as now
from typing import Any

from aiohttp import web

from evenhand.guards.checks import check_severity
from evenhand.guards.fields import said
from evenhand.guards.meter import Meter
from evenhand.guards.types import Check, Guarded, Segment
from evenhand.guards.upstreams import TRIED, Tried
from evenhand.server.access import caller_of
from evenhand.server.chat_api.wire import Stamp, worst
from evenhand.server.errors import endpoint_of
from evenhand.server.telemetry.events import Event, OtherAnswer
from evenhand.web.errors import RequestError
from evenhand.web.keys import address_of

UNANSWERED: Mapping[str, str] = {
    "/v1/moderations": "scored",
    "/v1alpha1/comments:analyze": "scored",
    "/v1/embeddings": "embedded",
}
"""Endpoints that give no text, and the action of their events."""
_NO_ANSWER = Guarded("", {}, "stop", "passed")


@dataclass(slots=True)
class Ticket:
    """One request; the handlers fill in its fields."""

    id: str = field(default_factory=lambda: secrets.token_hex(12))
    time: float = field(default_factory=now)
    began: float = field(default_factory=perf_counter)
    route: str = ""
    prompt: str = ""
    stream: bool = False
    first_segment: float | None = None
    answers: Sequence[Guarded] = ()
    begun: dict[int, list[Segment]] = field(default_factory=dict[int, list[Segment]])
    """What was sent of answers that have not ended, by their numbers."""
    sending: web.StreamResponse | None = None
    """The stream, once it has started."""
    failure: Callable[[RequestError], Iterable[bytes]] = lambda _: ()
    """The events with which a started stream ends if it fails."""
    fault: RequestError | None = None
    tried: list[Tried] = field(default_factory=list[Tried])
    """The calls of upstreams."""
    meter: Meter = field(default_factory=Meter)
    chat: Mapping[str, Any] | None = None
    """The request as a chat completions request, once its route is known."""

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.id, int(self.time), self.route)

    def event(self, request: web.Request, status: int, *, texts: bool) -> Event:
        """Return the event for the sinks; of several answers it shows the worst, and the usage of all."""
        cut = [_cut(each) for each in self.begun.values()]
        shown = worst(self.answers) if self.answers else cut.pop(0) if cut else _NO_ANSWER
        endpoint = endpoint_of(request.path)
        return Event(
            id=self.id,
            time=self.time,
            route=self.route,
            endpoint=endpoint,
            key=caller_of(request).name,
            client=address_of(request),
            status=status,
            action=shown.action if self.answers else UNANSWERED.get(endpoint, "") if status == 200 else "",
            why=shown.why,
            prompt=self.prompt if texts else "",
            first=shown.first if texts else "",
            text=_said(shown) if texts else "",
            input=shown.input,
            checks=shown.checks if self.answers else None,
            before=shown.before,
            after=shown.after,
            others=(
                *(_other(each, each.action, texts=texts) for each in self.answers if each is not shown),
                *(_other(each, "", texts=texts) for each in cut),
            ),
            late=any(each.late for each in self.answers),
            stream=self.stream,
            first_segment=self.first_segment,
            stages={**shown.stages, "total": perf_counter() - self.began},
            usage=self.meter.usage,
            error=self.fault.detail if self.fault else "; ".join(dict.fromkeys(_errors(self.answers))),
            upstream_error=self.fault.upstream if self.fault else "",
            tried=tuple(self.tried),
        )


def _other(answer: Guarded, action: str, *, texts: bool) -> OtherAnswer:
    shown = (answer.first, _said(answer)) if texts else ("", "")
    return OtherAnswer(action, answer.why, *shown, answer.before, answer.after)


def _said(answer: Guarded) -> str:
    return said(answer.message) or answer.text


def _cut(segments: Sequence[Segment]) -> Guarded:
    """An answer that broke off, because the model's endpoint failed or the client left: what was sent of it."""
    worst: dict[str, Check] = {}
    for check in (check for each in segments for check in each.checks):
        worst[check.name] = max(worst.get(check.name, check), check, key=check_severity)
    return replace(_NO_ANSWER, text="".join(each.text for each in segments), after=tuple(worst.values()))


def _errors(answers: Sequence[Guarded]) -> Iterator[str]:
    """Yield what clients do not see of answers that were given all the same: why calls and checks failed."""
    for answer in answers:
        yield from answer.errors
        for check in (*(answer.input.checks if answer.input else ()), *answer.before, *answer.after):
            if check.problem and not check.passed:
                yield f"{check.name}: {check.problem}"


_TICKET = web.RequestKey("ticket", Ticket)


def new_ticket(request: web.Request) -> Ticket:
    ticket = request[_TICKET] = Ticket()
    TRIED.set(ticket.tried)
    return ticket


def ticket_of(request: web.Request) -> Ticket:
    return request[_TICKET]
