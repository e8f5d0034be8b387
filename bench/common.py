"""What the benchmarks share: the stub endpoint, fresh processes to measure in, tables, and results on disk."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
LIMIT_SECONDS = 300
"""No client runs longer than this, whatever happens."""


@contextlib.contextmanager
def stub(latency: float = 0.0, script: str = "stub.py") -> Iterator[str]:
    """The base URL of a stub endpoint that answers after `latency` seconds."""
    command = [sys.executable, str(HERE / script), str(latency)]
    with subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def fresh(client: str, *, script: str = "clients.py", **options: Any) -> dict[str, Any]:
    """What `script` measures for one client, in a process of its own; the last line it prints is the result."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), client, json.dumps(options)],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{client} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def best(runs: Sequence[dict[str, Any]], key: str = "cpu_ms") -> dict[str, Any]:
    """The run least disturbed by whatever else the machine was doing."""
    return min(runs, key=lambda run: run[key])


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
    """Print one table."""
    shown = [list(head), *[[_text(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    print(f"\n{title}")
    for row in shown:
        numbers = (f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        print(f"  {row[0]:{widths[0]}}" + "".join(numbers))
    if note:
        print(f"  {note}")
    sys.stdout.flush()


def save(name: str, result: Any) -> None:
    """Keep the numbers as bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def verdict(value: float, target: float, *, least: bool = False) -> str:
    """Whether a target is met, said next to it."""
    met = value >= target if least else value <= target
    return f"{'≥' if least else '≤'} {target:g}: {'met' if met else 'MISSED'}"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}


def _text(cell: Any) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.3g}" if abs(cell) < 100 else f"{cell:.0f}"
