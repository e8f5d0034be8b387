"""One client doing the work in this process, and what that took: `clients.py NAME '{"url": …, "samples": …}'`.

Imports and a short warm-up (first-use caches, thread pools) come before the clock starts, for every client alike; CPU
time is that of the whole process with its threads.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import peers
from cases import CALLS

WARM_UP = 20

Client = Callable[[int], None]
"""Does the work for so many samples."""


def on_loop(work: Callable[[int], Coroutine[Any, Any, None]], samples: int) -> None:
    """On uvloop, where it is installed, as Evenhand runs."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work(samples))
    else:
        uvloop.run(work(samples))


def make(name: str, url: str, concurrency: int, scratch: Path, **options: Any) -> Client:
    if name in ("evenhand", "cached"):
        import ours

        def cache(samples: int) -> Path:
            # One for each number of samples: the warm-up leaves nothing behind, a second run finds everything.
            return scratch / f"cache-{samples}.sqlite"

        if name == "cached":
            return lambda samples: ours.call_cached(samples, cache(samples))
        return lambda samples: ours.run_plan(url, samples, concurrency, scratch, cache(samples))
    if name == "aiohttp":
        return partial(on_loop, lambda samples: peers.raw_aiohttp(url, samples, concurrency, scratch))
    if name == "openai":
        return partial(on_loop, lambda samples: peers.openai_sdk(url, samples, concurrency))
    if name == "inspect":
        return lambda samples: peers.inspect_ai(url, samples, scratch, **options)
    raise SystemExit(f"there is no client {name!r}")


def measure(client: Client, samples: int) -> dict[str, Any]:
    """CPU and wall time of the work, per call and in all, and the process's peak memory."""
    cpu, wall = time.process_time(), time.perf_counter()
    client(samples)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    calls = samples * CALLS
    return {
        "samples": samples,
        "calls": calls,
        "cpu_ms": 1000 * cpu / calls,
        "wall_ms": 1000 * wall / calls,
        "wall_s": wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2])
    samples, repeat = options.pop("samples"), options.pop("again", False)
    with tempfile.TemporaryDirectory(prefix="evenhand-bench-") as folder:
        client = make(name, scratch=Path(folder), **options)
        client(WARM_UP)
        result = measure(client, samples)
        if repeat:
            result["again"] = measure(client, samples)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
