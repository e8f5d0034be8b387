"""Wall time against the ideal: 15,000 calls to an endpoint that takes 200 ms, 500 at a time, ideally 6 s.

The client must spend well under 0.4 ms of CPU a call for that, so a busy machine shows at once; raw aiohttp in the same
minutes says how much of the gap is the machine's. Evenhand starts with an eighth of the connections and doubles them
per round trip, as it does with any endpoint; that alone costs it about 0.4 s here.
"""

from __future__ import annotations

from common import best, fresh, save, stub, table, verdict

SAMPLES, LATENCY, CONNECTIONS, REPEATS = 5000, 0.2, 500, 3
IDEAL = SAMPLES * 3 * LATENCY / CONNECTIONS


def run() -> None:
    with stub(LATENCY) as url:
        options = {"url": url, "concurrency": CONNECTIONS, "samples": SAMPLES}
        turns = [{name: fresh(name, **options) for name in ("aiohttp", "evenhand")} for _ in range(REPEATS)]
    found = {name: best([turn[name] for turn in turns], "wall_s") for name in ("evenhand", "aiohttp")}
    ratio = found["evenhand"]["wall_s"] / IDEAL
    table(
        f"{SAMPLES * 3:,} calls of {1000 * LATENCY:.0f} ms at {CONNECTIONS} connections (ideal {IDEAL:g} s)",
        ("client", "wall s", "× ideal", "CPU ms/call", "CPU s"),
        [
            (name, one["wall_s"], one["wall_s"] / IDEAL, one["cpu_ms"], one["cpu_ms"] * one["calls"] / 1000)
            for name, one in found.items()
        ],
        f"ours {ratio:.2f} × ideal, {verdict(ratio, 1.3)}",
    )
    save("latency", {"ideal_s": IDEAL, "ratio": ratio, **found})
