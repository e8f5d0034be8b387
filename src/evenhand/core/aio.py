"""Starts event loops (the code is async inside and synchronous at the public API) and awaits several coroutines.

`facade` makes a public function of a synchronous one that calls `run`: it works in scripts and in notebooks, where an
event loop runs already, and has an async form.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from evenhand.core.errors import UsageError, python_words
from evenhand.core.events import held

T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")


class Facade(Protocol[P, T]):
    """A public function: `f(…)` returns when it is done, `await f.async_(…)` leaves the event loop free meanwhile."""

    async_: Callable[P, Coroutine[Any, Any, T]]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T: ...


def facade(function: Callable[P, T]) -> Facade[P, T]:
    """Make a synchronous function that calls `run` use one lasting loop, or the loop of its awaiting caller.

    Its errors name arguments in place of flags.
    """
    worded = python_words()(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if _place.get() is not None:  # called by another façade
            return worded(*args, **kwargs)
        with held(_place, _Place(lasting_loop())):
            return worded(*args, **kwargs)

    @wraps(function)
    async def async_(*args: P.args, **kwargs: P.kwargs) -> T:
        place = _Place(asyncio.get_running_loop())
        with held(_place, place):
            inside = copy_context()
        # A thread of its own: with the loop's shared ones, a few of these calls could wait for each other forever.
        threads = ThreadPoolExecutor(1, thread_name_prefix=function.__name__)
        try:
            return await place.loop.run_in_executor(threads, partial(inside.run, worded, *args, **kwargs))
        except asyncio.CancelledError:
            await place.cancel()
            raise
        finally:
            threads.shutdown(wait=False)

    made: Any = call
    made.async_ = async_
    return cast("Facade[P, T]", made)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to completion: in a façade on its loop, elsewhere in this thread."""
    place = _place.get()
    if place is not None:
        return place.run(work)
    with runner() as own:
        return own.run(work)


def run_lasting(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the lasting loop, for objects that hold connections between synchronous calls."""
    return _Place(lasting_loop()).run(work)


class _Place:
    """A loop in another thread, and the work that a façade has on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelled = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is self.loop:  # pyright: ignore[reportPrivateUsage]
            work.close()
            raise UsageError("This call would wait for the event loop that it is made in; await its async form.")
        if self._cancelled:
            work.close()
            raise asyncio.CancelledError
        started, ended = Future[asyncio.Task[T]](), Future[None]()

        def start() -> None:
            task = self.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: ended.set_result(None))
            started.set_result(task)
            if self._cancelled:
                task.cancel()

        self.loop.call_soon_threadsafe(start)  # in the context of this thread, e.g. with its templates
        try:
            _wait(ended)
        except BaseException:  # Ctrl-C: let the work close what it has open, e.g. the store of a run
            self.loop.call_soon_threadsafe(started.result().cancel)
            ended.result()
            raise
        return started.result().result()

    async def cancel(self) -> None:
        """Cancel the work of the façade, and what it would begin next."""
        self._cancelled = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _wait(ended: Future[None]) -> None:
    """Wait in this thread; in a task, only until it is cancelled, which is how `asyncio.run` tells of Ctrl-C."""
    task = None if asyncio._get_running_loop() is None else asyncio.current_task()  # pyright: ignore[reportPrivateUsage]
    while True:
        with suppress(TimeoutError):
            return ended.result(None if task is None else _LOOK_UP)
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


_LOOK_UP = 0.1
"""Seconds after which a call that blocks a task looks whether that was cancelled."""
_place: ContextVar[_Place | None] = ContextVar("place", default=None)
_lasting: list[tuple[threading.Thread, asyncio.AbstractEventLoop]] = []
_lock = threading.Lock()


def lasting_loop() -> asyncio.AbstractEventLoop:
    """The loop of a background thread that lives as long as the process."""
    with _lock:
        if not _lasting or not _lasting[0][0].is_alive():  # the thread is gone in a forked process
            loop = runner().get_loop()
            thread = threading.Thread(target=_run_forever, args=[loop], name="evenhand", daemon=True)
            thread.start()
            _lasting[:] = [(thread, loop)]
        return _lasting[0][1]


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # A SystemExit in a task ends `run_forever`; the task's caller gets it, and the loop goes on for others.
        with suppress(BaseException):
            loop.run_forever()


def runner() -> asyncio.Runner:
    """Return an event loop, on uvloop if it is installed (it halves the cost of a call)."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = [*tasks]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; the first error cancels the others before it is raised."""
    coroutines = [*work]
    if len(coroutines) == 1:
        return [await coroutines[0]]
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await cancelled(tasks)
        raise


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Return two results of different types; an error in one cancels the other."""
    one, two = await all_of([first, second])
    return cast(T, one), cast(U, two)
