"""CPU and wall time per model call: Evenhand next to raw aiohttp, the openai SDK and Inspect AI.

All do the work of `cases.py` (three calls a sample, one growing conversation) against the same loopback stub with no
latency, in processes of their own, with imports and a warm-up outside the clock. Evenhand has everything on: store,
response cache, retries, adaptive limit. The slow peers do fewer samples; their figures are per call all the same.
All take turns, and the best run of each counts, since others use the machine too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from common import best, fresh, installed, save, stub, table, verdict

SAMPLES, FEWER, CONNECTIONS, ROUNDS = 5000, 150, 100, 2


class Client(NamedTuple):
    title: str
    name: str
    package: str
    samples: int
    options: dict[str, Any]


OURS = Client("evenhand: store, cache, retries, limit", "evenhand", "evenhand", SAMPLES, {})
INSPECT = Client("Inspect AI, as it comes", "inspect", "inspect_ai", FEWER, {})
TUNED = {"max_connections": CONNECTIONS, "max_samples": CONNECTIONS, "log_realtime": False, "log_buffer": 1000}
CLIENTS = (
    OURS,
    Client("aiohttp + SQLite, nothing else", "aiohttp", "aiohttp", SAMPLES, {}),
    Client("openai SDK, no store", "openai", "openai", FEWER, {}),
    INSPECT,
    Client("Inspect AI, tuned", "inspect", "inspect_ai", FEWER, TUNED),
)


def run() -> None:
    here = [client for client in CLIENTS if installed(client.package)]
    runs: dict[str, list[dict[str, Any]]] = {client.title: [] for client in here}
    with stub() as url:
        for _ in range(ROUNDS):
            for each in here:
                one = fresh(each.name, url=url, concurrency=CONNECTIONS, samples=each.samples, **each.options)
                runs[each.title].append(one)
    found = {title: best(many) for title, many in runs.items()}
    ours = found[OURS.title]["cpu_ms"]
    table(
        f"Model calls, loopback, {CONNECTIONS} connections ({SAMPLES} samples × 3 calls; SDK and Inspect: {FEWER} × 3)",
        ("client", "CPU ms/call", "× ours", "wall ms/call", f"wall s, {SAMPLES} × 3", "peak MB"),
        [
            (
                title,
                one["cpu_ms"],
                one["cpu_ms"] / ours,
                one["wall_ms"],
                one["wall_ms"] * SAMPLES * 3 / 1000,
                one["peak_mb"],
            )
            for title, one in found.items()
        ],
        f"ours {ours:.3f} ms CPU, {verdict(ours, 0.5)}",
    )
    if INSPECT in here:
        ratio = found[INSPECT.title]["cpu_ms"] / ours
        print(f"  Inspect takes {ratio:.0f} × our CPU, {verdict(ratio, 20, least=True)}")
    for left_out in {client.package for client in CLIENTS} - {client.package for client in here}:
        print(f"  {left_out} is not installed and was left out.")
    save("calls", found)
