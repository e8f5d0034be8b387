"""The one place where an event loop is started: async inside, synchronous at the public API."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, on uvloop where it is installed (it halves the cost of a call)."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    return uvloop.run(work)
