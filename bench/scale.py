"""Past one machine: what the driver costs per call, and what merging and reporting a million samples takes.

`python bench/scale.py replicas` runs a plan on 1 to 64 simulated replicas on Ray: engines that answer after a realistic
time, many in one actor, so that only the driver works. `python bench/scale.py merge [SAMPLES] [BENCHMARK]` writes
eight shards of that many samples (10^6 by default), merges them, computes the study, and prints a cost model for 10^6
and 10^8 samples. `python bench/scale.py read [SAMPLES] [BENCHMARK]` writes one run of that size, its report and its
tables, compares it with itself and scores it again. Each step has a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

SHARDS = 8
SLOTS = 32
"""Calls that a simulated replica computes at once."""
SECONDS = 0.8
"""Mean time of a call; 32 at once in 0.8 s are 40 calls a second, as one GPU gives with a small model."""
ACTORS = int(os.environ.get("ACTORS", "2"))
"""Processes that the simulated replicas share."""
WARM_UP, WINDOW, WINDOWS = 5.0, 5.0, 5
"""Seconds before the first window, seconds of a window, and how many there are."""
TOKENS = (300, 60)
"""Tokens in and out of a call, for the cost model."""


def replicas(counts: list[int]) -> None:
    """Throughput and the driver's CPU time against the number of replicas, and where the driver saturates.

    Start-up, warm-up and the end of a run are not counted: the steady state between them is split into windows, of
    which the median counts. The driver's CPU time per call hardly depends on what else the machine does; the share of
    the ideal throughput does.
    """
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, windows of {WINDOW:g} s")
    print(f"{'replicas':>8} {'calls/s':>8} {'of ideal':>8} {'windows':>11} {'driver ms CPU/call':>18} {'busy':>6}")
    found: list[tuple[int, float, float]] = []
    for count in counts:
        ideal = count * SLOTS / SECONDS
        windows: Any = _fresh("drive", str(count))["windows"]
        shares = sorted(each["calls"] / each["wall"] / ideal for each in windows)
        share = statistics.median(shares)
        cpu, wall, calls = (sum(each[name] for each in windows) for name in ("cpu", "wall", "calls"))
        found.append((count, share, cpu / calls))
        spread = f"{shares[0]:.0%}–{shares[-1]:.0%}"
        columns = f"{count:>8} {share * ideal:>8,.0f} {share:>8.0%} {spread:>11} {1000 * cpu / calls:>18.3f}"
        print(f"{columns} {cpu / wall:>6.0%}", flush=True)
    good = [count for count, share, _ in found if share >= 0.9]
    most = 1 / found[-1][2]
    print(f"efficiency of at least 90 % with {good} replicas" if good else "efficiency below 90 % throughout")
    print(
        f"the driver saturates at {most:,.0f} calls a second, which is {most * SECONDS / SLOTS:,.0f} replicas of "
        f"{SLOTS / SECONDS:,.0f} calls a second, by its CPU time with {counts[-1]} replicas"
    )


def drive(count: int) -> dict[str, Any]:
    """Run samples of one call each on `count` simulated replicas; the driver is this process."""
    import ray

    from evenhand.core.progress import Progress
    from evenhand.core.types import Completion, Generation, Usage
    from evenhand.models.base import Model, ModelOptions
    from evenhand.models.ray import RayModel
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import make_plan
    from evenhand.runs.runner import Runner

    processes = min(ACTORS, count)
    at_once = -(-SLOTS * count // processes)

    class Simulated(Model):
        spec, free = "fake/simulated", True
        batch = at_once

        def __init__(self) -> None:
            self._free = asyncio.Semaphore(self.batch)
            self._luck = random.Random(0)

        async def generate(self, messages: Any, params: Any) -> Generation:
            del messages, params
            async with self._free:
                await asyncio.sleep(self._luck.uniform(0.5, 1.5) * SECONDS)
            return Generation((Completion("B"),), self.spec, Usage(1, *TOKENS), SECONDS)

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    calls = int(count * SLOTS / SECONDS * (WARM_UP + WINDOWS * WINDOW)) + 2 * SLOTS * count
    _register(calls)
    options = ModelOptions(extra={"replicas": processes, "cpus_per_replica": 0.01})
    model = RayModel("fake/simulated", options, Simulated)
    plan = make_plan({"benchmark": "simulated", "models": ["fake/simulated"], "reading": "text"})
    marks: list[tuple[float, float, int]] = []
    """Time, CPU time and answers at the borders of the windows."""

    def observe(progress: Progress) -> None:
        now = time.perf_counter()
        if progress.done == 0 or len(marks) > WINDOWS + 1:
            return
        due = not marks or now >= marks[-1][0] + (WARM_UP if len(marks) == 1 else WINDOW)
        if due and progress.done <= calls - 2 * SLOTS * count:  # beyond, some replicas may have nothing left to do
            marks.append((now, time.process_time(), progress.done))

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(concurrency=at_once, ready={"fake/simulated": model})
        asyncio.run(Runner(plan, Path(folder) / "run", settings, observe).run())
    ray.shutdown()
    windows = [
        {"wall": end[0] - begin[0], "cpu": end[1] - begin[1], "calls": end[2] - begin[2]}
        for begin, end in itertools.pairwise(marks[1:])
    ]
    return {"windows": windows}


def _register(size: int) -> None:
    from evenhand.benchmarks.base import BENCHMARKS, Selection
    from evenhand.core.types import Sample

    class SimulatedBenchmark(BENCHMARKS.get("bbq_builtin")):
        name = "simulated"

        def samples(self, selection: Selection) -> Iterator[Sample]:
            yield from _samples(list(super().samples(replace(selection, limit=None))), size)

    BENCHMARKS.register("simulated")(SimulatedBenchmark)


def _samples(own: list[Any], size: int) -> Iterator[Any]:
    """The built-in questions again and again, under new ids and in new clusters."""
    for number in range(size):
        sample, turn = own[number % len(own)], number // len(own)
        yield replace(sample, id=f"{turn:06}-{sample.id}", cluster=f"{turn:06}-{sample.cluster}")


def merging(size: int, benchmark: str = "bbq_builtin") -> None:
    """Write shards, merge them and compute the study, each in a fresh process; print a cost model."""
    with _place() as place:
        print(f"{size:,} samples of {benchmark} in {SHARDS} shards")
        _measured("write", place, size, benchmark)
        found = _measured("merge", place, size, benchmark)
        model(found["store"] * 1e6 / size, found["cpu"] / size)
        _measured("study", place, size, benchmark)


def reading(size: int, benchmark: str = "realtoxicity_builtin") -> None:
    """Write one run, and compare it with itself, write its report and tables and score it again."""
    with _place() as place:
        print(f"{size:,} samples of {benchmark}")
        _measured("write", place, size, benchmark, "1")
        for step in ("report", "compare", "export", "parquet", "rescore"):
            if step != "rescore" or "bbq" not in benchmark:  # answers by choice have no text to score
                _measured(step, place, size, benchmark)


@contextlib.contextmanager
def _place() -> Generator[Path]:
    print(f"{'step':>8} {'seconds':>8} {'CPU s':>8} {'peak MB':>8}")
    place = Path(tempfile.mkdtemp(prefix="evenhand-scale-", dir=os.environ.get("TMPDIR")))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _measured(step: str, place: Path, size: int, *arguments: str) -> dict[str, Any]:
    """Run a step in a process of its own, and print what it takes."""
    found = _fresh(step, str(place), str(size), *arguments)
    more = {name: value for name, value in found.items() if name not in ("wall", "cpu", "peak")}
    note = "".join(f", {name} {value:,.1f} MB" for name, value in more.items())
    print(f"{step:>8} {found['wall']:>8.1f} {found['cpu']:>8.1f} {found['peak']:>8,.0f}{note}", flush=True)
    return found


def model(bytes_each: float, merge_each: float) -> None:
    """Print what a plan of one call per sample takes."""
    for size in (10**6, 10**8):
        tokens = f"{size * TOKENS[0] / 1e6:,.0f}M tokens in, {size * TOKENS[1] / 1e6:,.0f}M out"
        work = f"store {size * bytes_each / 1e9:,.1f} GB, merge {size * merge_each / 60:,.1f} CPU minutes"
        print(f"cost of 10^{len(str(size)) - 1} samples × 1 call: {tokens}, {work}")


def write(place: Path, size: int, benchmark: str, shards: int = SHARDS) -> None:
    """Shards as a run would store them: the rows of a small real run again and again, under new samples."""
    from evenhand.benchmarks.base import Selection, load_benchmark
    from evenhand.models.request import pack
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import make_plan
    from evenhand.runs.runner import Runner
    from evenhand.runs.shards import dealt
    from evenhand.runs.store import FILE_NAME, Store

    plan = make_plan({"benchmark": benchmark, "models": ["fake/B"], "reading": "text"})
    asyncio.run(Runner(plan, place / "small", Settings()).run())
    small = Store(place / "small")
    numbers = dict(small.select("SELECT id, number FROM samples"))
    own = sorted(load_benchmark(benchmark).samples(Selection()), key=lambda each: numbers[each.id])
    keys = ("identity", "plan", "options", "benchmark", "models", "searches", "files", "versions", "scorer", "scorers")
    facts = {key: small.get(key) for key in (*keys, "arms", "created", "settings", "seconds")}
    small.close()

    homes = [place / f"shard-{index}" for index in range(1, shards + 1)] if shards > 1 else [place / "whole"]
    tables: list[sqlite3.Connection] = []
    for index, home in enumerate(homes, 1):
        store = Store(home, create=True)
        store.put(**facts, **({"shard": f"{index}/{shards}", "code": "one"} if shards > 1 else {}))
        store.close()
        tables.append(sqlite3.connect(home / FILE_NAME))
        tables[-1].execute("ATTACH ? AS small", (str(place / "small" / FILE_NAME),))
    for number, (home, sample) in enumerate(dealt(_samples(own, size), shards), 1):
        tables[home - 1].execute("INSERT INTO main.samples VALUES (?, ?, ?)", (number, sample.id, pack(sample)))
    for table in tables:
        table.execute("INSERT OR REPLACE INTO main.facts SELECT 'samples', COUNT(*) FROM main.samples")
        for name, columns in COLUMNS.items():
            table.execute(
                f"INSERT INTO main.{name} (sample, {columns}) SELECT number, {columns} FROM"
                f" (SELECT number FROM main.samples ORDER BY number) JOIN small.{name} AS old"
                " ON old.sample = (number - 1) % ? + 1",
                (len(own),),
            )
        table.commit()
        table.close()


COLUMNS = {
    "turns": "arm, role, key, calls, cached, prompt_tokens, completion_tokens, thought_tokens, retries, cost, latency,"
    " body",
    "outcomes": "arm, status, reason, seconds, at_limit, reading, body",
    "scores": "arm, scorer, iteration, status, reason, body",
}
"""What came of a sample, by table."""


def merge(place: Path, *_: Any) -> dict[str, float]:
    from evenhand.runs.merge import merge

    merge([place / f"shard-{index}" for index in range(1, SHARDS + 1)], place / "whole")
    return {"store": (place / "whole" / "run.sqlite").stat().st_size / 1e6}


def study(place: Path, *_: Any) -> None:
    from evenhand.studies.study import study

    study([place / "whole"])


def compare(place: Path, *_: Any) -> None:
    from evenhand.studies.study import study

    study([place / "whole", place / "whole"])


def export(place: Path, *_: Any) -> dict[str, float]:
    from evenhand.studies.export import export

    export(place / "whole", "outcomes", "csv", place / "outcomes.csv")
    return {"table": (place / "outcomes.csv").stat().st_size / 1e6}


def parquet(place: Path, *_: Any) -> dict[str, float]:
    from evenhand.studies.export import export

    export(place / "whole", "outcomes", "parquet", place / "outcomes.parquet")
    return {"table": (place / "outcomes.parquet").stat().st_size / 1e6}


def rescore(place: Path, *_: Any) -> None:
    from evenhand.runs.scores import rescore

    asyncio.run(rescore(place / "whole", ["sentiment"]))


def report(place: Path, *_: Any) -> dict[str, float]:
    from evenhand.cli.report import study_and_report

    study_and_report([place / "whole"], place / "report.html")
    return {"page": (place / "report.html").stat().st_size / 1e6}


def _fresh(step: str, *arguments: str) -> dict[str, Any]:
    """What a step takes in a process of its own."""
    command = [sys.executable, __file__, "--step", step, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{step} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _step(name: str, *arguments: str) -> None:
    started, used = time.perf_counter(), time.process_time()
    if name == "drive":
        found: dict[str, Any] | None = drive(*map(int, arguments))
    else:
        steps = (write, merge, study, compare, export, parquet, report, rescore)
        step: Any = {each.__name__: each for each in steps}[name]
        found = step(Path(arguments[0]), int(arguments[1]), arguments[2], *map(int, arguments[3:]))
    taken = {"wall": time.perf_counter() - started, "cpu": time.process_time() - used}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**taken, "peak": peak, **(found or {})}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--step", name, *rest]:
            _step(name, *rest)
        case ["replicas", *counts]:
            replicas([int(each) for each in counts] or [1, 2, 4, 8, 16, 32, 64])
        case ["merge", *size]:
            merging(int(float(size[0])) if size else 10**6, *size[1:])
        case ["read", *size]:
            reading(int(float(size[0])) if size else 10**6, *size[1:])
        case _:
            sys.exit(__doc__)
