"""What happens during a run, as records of the standard logger `evenhand`, and how many calls are under way.

A record has the attribute `event` (`retry`, `drop`, `cut`, `failure`, …) and `fields`, which name the arm and the
sample. Texts of prompts and replies are in `texts`, apart from the fields, so that a log can leave them out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class held(Generic[T]):  # noqa: N801 - reads as a statement: `with held(ROLE, "judge"):`
    """A context variable has this value in the block, and in tasks that are begun there."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


log = logging.getLogger("evenhand")
log.addHandler(logging.NullHandler())

_place: ContextVar[Mapping[str, Any]] = ContextVar("place", default={})  # noqa: B039 - never changed in place


def event(
    name: str, message: str, *, level: int = logging.INFO, texts: Mapping[str, Any] | None = None, **fields: Any
) -> None:
    """Log one event, with the arm and the sample that it belongs to."""
    if log.isEnabledFor(level):
        extra = {"event": name, "fields": {**_place.get(), **fields}, "texts": texts or {}}
        log.log(level, message, extra=extra)


def set_place(**fields: Any) -> None:
    """Name the arm and the sample of all further events of this task."""
    _place.set(fields)


def place() -> Mapping[str, Any]:
    """Return the arm and the sample of this task."""
    return _place.get()


@dataclass(slots=True)
class Activity:
    """The model calls of a run that are under way."""

    calls: int = 0
    held: int = 0
    """Calls that wait for a free slot, or for their next try."""
    retries: int = 0

    @property
    def in_flight(self) -> int:
        return self.calls - self.held


_activity: ContextVar[Activity | None] = ContextVar("activity", default=None)
_call: ContextVar[Activity | None] = ContextVar("call", default=None)


def counted_activity() -> Activity:
    """Count the calls of this task, and of those that it starts, from now on."""
    activity = Activity()
    _activity.set(activity)
    return activity


def live_calls() -> int:
    """Return how many calls of this run are under way and do not wait."""
    activity = _activity.get()
    # A call may wait for several answers at once.
    return 0 if activity is None else max(0, activity.in_flight)


@contextlib.contextmanager
def calling() -> Generator[None]:
    """A model call is under way."""
    activity = _activity.get()
    if activity is None:
        yield
        return
    token = _call.set(activity)
    activity.calls += 1
    try:
        yield
    finally:
        activity.calls -= 1
        _call.reset(token)


@contextlib.contextmanager
def holding() -> Generator[None]:
    """The model call waits before it is sent (again)."""
    activity = _call.get()
    if activity is None:
        yield
        return
    activity.held += 1
    try:
        yield
    finally:
        activity.held -= 1


def retried(reason: str, wait: float) -> None:
    """The model call failed and is tried again after `wait` seconds."""
    if (activity := _call.get()) is not None:
        activity.retries += 1
    event("retry", f"tried again in {wait:.1f} s: {reason}", reason=reason, wait=round(wait, 3))


IN_VAIN: ContextVar[Callable[[Any], Awaitable[object]] | None] = ContextVar("in_vain", default=None)
"""Called with the error of each failed attempt that the endpoint bills, before it is repeated."""


async def repeated(error: Any) -> None:
    """An attempt that failed with this `ModelError` is made again now."""
    if (error.was_read or error.spent) and (in_vain := IN_VAIN.get()) is not None:
        await in_vain(error)
