"""What a call costs when the response cache knows the answer.

Two figures: a whole run of a plan into a new directory with the cache of an earlier one (every turn is still stored
and committed), and `CachedModel.generate` alone.
"""

from __future__ import annotations

from common import best, fresh, save, stub, table, verdict

SAMPLES, REPEATS, LIMIT_MS = 2000, 3, 0.2


def run() -> None:
    with stub() as url:
        options = {"url": url, "concurrency": 100, "samples": SAMPLES, "again": True}
        whole, bare = (
            best([fresh(name, **options)["again"] for _ in range(REPEATS)]) for name in ("evenhand", "cached")
        )
    table(
        "Cache hits",
        ("path", "CPU ms/call", "wall ms/call", "target"),
        [
            (
                "a whole run: session, store, commit",
                whole["cpu_ms"],
                whole["wall_ms"],
                verdict(whole["cpu_ms"], LIMIT_MS),
            ),
            ("CachedModel.generate alone", bare["cpu_ms"], bare["wall_ms"], verdict(bare["cpu_ms"], LIMIT_MS)),
        ],
    )
    save("cache", {"run": whole, "generate": bare})
