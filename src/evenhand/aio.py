"""The one place where an event loop is started: async inside, synchronous at the public API; and `all_of`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, on uvloop where it is installed (it halves the cost of a call)."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    return uvloop.run(work)


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first error ends the others before it is raised, so that none goes on unseen."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Two results of different types, likewise."""
    one, two = await all_of([first, second])
    return cast(T, one), cast(U, two)


def runner() -> asyncio.Runner:
    """A loop that is kept from one synchronous call to the next, for objects that hold connections."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
