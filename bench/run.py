"""All benchmarks, or those named: `python bench/run.py calls memory`. Prints tables, keeps the numbers in results/."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

NAMES = (
    "agents_power",
    "calls",
    "memory",
    "cache",
    "judges",
    "latency",
    "mabrf",
    "malibu_power",
    "prompts_power",
    "watch_power",
    "providers",
    "stats",
    "local",
    "scorers",
    "startup",
)


def main() -> None:
    wanted = sys.argv[1:] or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        raise SystemExit(f"There is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}.")
    started = time.perf_counter()
    print(f"Load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; trust the ratios.")
    for name in wanted:
        importlib.import_module(f"bench_{name}").run()
    print(f"\n{time.perf_counter() - started:.0f} s in all, load now {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
