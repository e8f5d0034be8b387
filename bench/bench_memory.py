"""Peak memory at 2,000 and at 20,000 samples: it must not grow with the number of samples.

A fresh process each, with store and cache on; the figure is the process's `ru_maxrss` at its end.
"""

from __future__ import annotations

from common import fresh, save, stub, table, verdict

FEW, MANY = 2_000, 20_000


def run() -> None:
    with stub() as url:
        small, large = (fresh("evenhand", url=url, concurrency=100, samples=samples) for samples in (FEW, MANY))
    growth = 100 * (large["peak_mb"] / small["peak_mb"] - 1)
    table(
        "Peak memory",
        ("samples", "peak MB", "CPU ms/call"),
        [(f"{FEW:,}", small["peak_mb"], small["cpu_ms"]), (f"{MANY:,}", large["peak_mb"], large["cpu_ms"])],
        f"growth {growth:.1f} %, {verdict(growth, 10)}",
    )
    save("memory", {"few": small, "many": large, "growth_percent": growth})
