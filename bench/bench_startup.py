"""How long the command line takes to answer: median of seven fresh processes each, next to a bare interpreter."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from common import HERE, save, table, verdict

REPEATS = 7
COMMANDS = {
    "python -c pass": (["-c", "pass"], None),
    "import evenhand": (["-c", "import evenhand"], 0.2),
    "evenhand --help": (["-m", "evenhand", "--help"], 0.4),
}


def run() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(REPEATS + 1):
        for name, (arguments, _) in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, timeout=60)
            if turn > 0:  # the first one writes the .pyc files
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    table(
        "Start-up",
        ("command", "median s", "best s", "target"),
        [
            (name, medians[name], min(seconds[name]), "" if target is None else verdict(medians[name], target))
            for name, (_, target) in COMMANDS.items()
        ],
    )
    save("startup", {"median_s": medians, "all_s": seconds})
