"""Starts event loops (the code is async inside and synchronous at the public API) and awaits several coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to completion, on uvloop if it is installed (it halves the cost of a call)."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    return uvloop.run(work)


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; the first error cancels the others before it is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Return two results of different types; an error in one cancels the other."""
    one, two = await all_of([first, second])
    return cast(T, one), cast(U, two)


def runner() -> asyncio.Runner:
    """Return an event loop that lives across synchronous calls, for objects that hold connections."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
