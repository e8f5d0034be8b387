"""CPU and wall time per model call: Evenhand next to raw aiohttp, the openai SDK and Inspect AI.

All do the work of `cases.py` (three calls a sample, one growing conversation) against the same loopback stub with no
latency, in processes of their own, with imports and a warm-up outside the clock. Evenhand has everything on: store,
response cache, retries, adaptive limit. The slow peers do fewer samples; their figures are per call all the same.
Runs of the fast ones alternate and the best counts, since others use the machine too.
"""

from __future__ import annotations

from typing import Any

from common import best, fresh, installed, save, stub, table, verdict

SAMPLES, FEWER, CONNECTIONS, REPEATS = 5000, 300, 100, 3
TUNED = {"max_connections": CONNECTIONS, "max_samples": CONNECTIONS, "log_realtime": False, "log_buffer": 1000}


def run() -> None:
    with stub() as url:
        common = {"url": url, "concurrency": CONNECTIONS}
        turns = [
            {name: fresh(name, samples=SAMPLES, **common) for name in ("aiohttp", "evenhand")} for _ in range(REPEATS)
        ]
        found: dict[str, dict[str, Any]] = {
            "evenhand: store, cache, retries, limit": best([turn["evenhand"] for turn in turns]),
            "aiohttp + SQLite, nothing else": best([turn["aiohttp"] for turn in turns]),
        }
        if installed("openai"):
            found["openai SDK, no store"] = fresh("openai", samples=FEWER, **common)
        if installed("inspect_ai"):
            found["Inspect AI, as it comes"] = fresh("inspect", samples=FEWER, **common)
            found["Inspect AI, tuned"] = fresh("inspect", samples=FEWER, **common, **TUNED)
    ours = next(iter(found.values()))
    table(
        f"Model calls, loopback, {CONNECTIONS} connections ({SAMPLES} samples × 3 calls; SDK and Inspect {FEWER})",
        ("client", "CPU ms/call", "× ours", "wall ms/call", f"wall s, {SAMPLES} × 3", "peak MB"),
        [
            (
                name,
                one["cpu_ms"],
                one["cpu_ms"] / ours["cpu_ms"],
                one["wall_ms"],
                one["wall_ms"] * SAMPLES * 3 / 1000,
                one["peak_mb"],
            )
            for name, one in found.items()
        ],
        f"ours {ours['cpu_ms']:.3f} ms CPU, {verdict(ours['cpu_ms'], 0.5)}",
    )
    if inspect := found.get("Inspect AI, as it comes"):
        ratio = inspect["cpu_ms"] / ours["cpu_ms"]
        print(f"  Inspect takes {ratio:.0f}× our CPU, {verdict(ratio, 20, least=True)}")
    for package, what in (("openai", "The openai SDK"), ("inspect_ai", "Inspect AI")):
        if not installed(package):
            print(f"  {what} is not installed and was left out.")
    save("calls", found)
