"""Past one machine: what the driver costs per call, and what merging and reporting a million samples takes.

`python bench/scale.py replicas` runs a plan on 1 to 64 simulated replicas on Ray: engines that answer after a realistic
time, many in one actor, so that only the driver works. `python bench/scale.py merge [SAMPLES] [BENCHMARK]` writes
eight shards of that many samples (10^6 by default), merges them, computes the study, compares the run with itself,
writes the report and a table, each in a process of its own; answers in words are scored once more, too. It prints a
cost model for 10^6 and 10^8 samples.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

SHARDS = 8
CHUNK = 5000
SLOTS = 32
"""Calls that a simulated replica computes at once."""
SECONDS = 0.8
"""Mean time of a call; 32 at once in 0.8 s are 40 calls a second, as one GPU gives with a small model."""
ACTORS = 2
"""Processes that the simulated replicas share."""
TOKENS = (300, 60)
"""Tokens in and out of a call, for the cost model."""


def replicas(counts: list[int], seconds: float = 30.0) -> None:
    """Throughput and the driver's CPU time against the number of replicas, and where the driver saturates by it.

    Its CPU time per call hardly depends on what else the machine does; the share of the ideal throughput does.
    """
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    each = 0.0
    print(f"{'replicas':>8} {'calls/s':>8} {'of ideal':>8} {'driver ms CPU/call':>18} {'driver busy':>11}")
    for count in counts:
        calls = int(count * SLOTS / SECONDS * seconds)
        found = _fresh("drive", str(count), str(calls))
        ideal = count * SLOTS / SECONDS
        rate = found["calls"] / found["wall"]
        busy = found["cpu"] / found["wall"]
        each = found["cpu"] / found["calls"]
        print(f"{count:>8} {rate:>8,.0f} {rate / ideal:>8.0%} {1000 * each:>18.3f} {busy:>11.0%}", flush=True)
    most = 1 / each
    print(
        f"the driver saturates at {most:,.0f} calls a second, which is {most * SECONDS / SLOTS:,.0f} replicas of "
        f"{SLOTS / SECONDS:,.0f} calls a second, by its CPU time with {counts[-1]} replicas"
    )


def drive(count: int, calls: int) -> dict[str, float]:
    """Run `calls` samples of one call each on `count` simulated replicas; the driver is this process."""
    import ray

    from evenhand.models.base import Model, ModelOptions
    from evenhand.models.ray import RayModel
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import make_plan
    from evenhand.runs.runner import Runner
    from evenhand.types import Completion, Generation, Usage

    class Simulated(Model):
        spec, free = "fake/simulated", True
        slots = SLOTS * count // min(ACTORS, count)

        def __init__(self) -> None:
            self._free = asyncio.Semaphore(self.slots)
            self._luck = random.Random(0)

        async def generate(self, messages: Any, params: Any) -> Generation:
            del messages, params
            async with self._free:
                await asyncio.sleep(self._luck.uniform(0.5, 1.5) * SECONDS)
            return Generation((Completion("B"),), self.spec, Usage(1, *TOKENS), SECONDS)

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    _register(calls)
    processes = min(ACTORS, count)
    options = ModelOptions(extra={"replicas": processes, "cpus_per_replica": 0.1})
    model = RayModel("fake/simulated", options, Simulated)
    plan = make_plan({"benchmark": "simulated", "models": ["fake/simulated"], "reading": "text"})
    concurrency = -(-SLOTS * count // processes)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(concurrency=concurrency, ready={"fake/simulated": model})
        started, used = time.perf_counter(), time.process_time()
        asyncio.run(Runner(plan, Path(folder) / "run", settings).run())
        found = {"wall": time.perf_counter() - started, "cpu": time.process_time() - used, "calls": calls}
    ray.shutdown()
    return found


def _register(size: int) -> None:
    from evenhand.benchmarks.base import BENCHMARKS, Selection
    from evenhand.types import Sample

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
    """Write shards, merge them and report, each in a fresh process."""
    steps = ["write", "merge", "study", "compare", "export", "report"]
    if "bbq" not in benchmark:
        steps.append("rescore")
    place = Path(tempfile.mkdtemp(prefix="evenhand-scale-", dir=os.environ.get("TMPDIR")))
    try:
        print(f"{size:,} samples of {benchmark} in {SHARDS} shards")
        print(f"{'step':>8} {'seconds':>8} {'CPU s':>8} {'peak MB':>8}")
        for step in steps:
            found = _fresh(step, str(place), str(size), benchmark)
            note = "".join(
                f", {name} {value:,.1f} MB" for name, value in found.items() if name not in ("wall", "cpu", "peak")
            )
            print(f"{step:>8} {found['wall']:>8.1f} {found['cpu']:>8.1f} {found['peak']:>8,.0f}{note}", flush=True)
            if step == "merge":
                model(found["store"] * 1e6 / size, found["cpu"] / size)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def model(bytes_each: float, merge_each: float) -> None:
    """Print what a plan of one call per sample takes."""
    for size in (10**6, 10**8):
        tokens = f"{size * TOKENS[0] / 1e6:,.0f}M tokens in, {size * TOKENS[1] / 1e6:,.0f}M out"
        work = f"store {size * bytes_each / 1e9:,.1f} GB, merge {size * merge_each / 60:,.1f} CPU minutes"
        print(f"cost of 10^{len(str(size)) - 1} samples × 1 call: {tokens}, {work}")


def write(place: Path, size: int, benchmark: str) -> None:
    """Shards as a run would store them: real samples, turns, outcomes and grades, in their stored form."""
    from evenhand.benchmarks.base import Selection, load_benchmark
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import make_plan
    from evenhand.runs.runner import Runner
    from evenhand.runs.shards import Shard, dealt, numbered
    from evenhand.runs.store import Rows, Store

    plan = make_plan({"benchmark": benchmark, "models": ["fake/B"], "reading": "text"})
    asyncio.run(Runner(plan, place / "small", Settings()).run())
    small = Store(place / "small")
    own = list(load_benchmark(benchmark).samples(Selection()))
    numbers = dict(small.select("SELECT id, number FROM samples"))
    columns = {
        "turns": "arm, role, key, calls, cached, prompt_tokens, completion_tokens, thought_tokens, retries, cost,"
        " latency, body",
        "outcomes": "arm, status, reason, seconds, at_limit, reading, body",
        "scores": "arm, scorer, iteration, status, reason, body",
    }
    rows = {table: dict[str, list[Any]]() for table in columns}
    for table, names in columns.items():
        for name, number in numbers.items():
            rows[table][name] = list(small.select(f"SELECT {names} FROM {table} WHERE sample = ?", number))
    keys = ("identity", "plan", "options", "benchmark", "models", "searches", "files", "versions", "scorer", "scorers")
    facts = {key: small.get(key) for key in (*keys, "arms", "created", "settings", "seconds")}

    stores = [Store(place / f"shard-{index}", create=True) for index in range(1, SHARDS + 1)]
    for index, store in enumerate(stores, 1):
        store.add_numbered(numbered(_samples(own, size), Shard(index, SHARDS)))
        store.put(**facts, shard=f"{index}/{SHARDS}", code="one")

    async def fill() -> None:
        batches = [Rows() for _ in stores]
        for number, (home, sample) in enumerate(dealt(_samples(own, size), SHARDS), 1):
            name = sample.id.partition("-")[2]
            batch = batches[home - 1]
            for table in columns:
                getattr(batch, table).extend((number, *row) for row in rows[table][name])
            if len(batch.outcomes) >= CHUNK:
                await stores[home - 1].record_rows(batch)
                batches[home - 1] = Rows()
        for store, batch in zip(stores, batches, strict=True):
            await store.record_rows(batch)

    asyncio.run(fill())
    for store in stores:
        store.close()


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

    export(place / "whole", "outcomes", "parquet", place / "outcomes.parquet")
    return {"table": (place / "outcomes.parquet").stat().st_size / 1e6}


def rescore(place: Path, *_: Any) -> None:
    from evenhand.runs.rescore import rescore

    asyncio.run(rescore(place / "whole", ["sentiment"]))


def report(place: Path, *_: Any) -> dict[str, float]:
    from evenhand.cli.report import study_and_report

    study_and_report([place / "whole"], place / "report.html")
    return {"page": (place / "report.html").stat().st_size / 1e6}


def _fresh(step: str, *arguments: str) -> dict[str, float]:
    """What a step takes in a process of its own."""
    command = [sys.executable, __file__, "--step", step, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{step} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _step(name: str, *arguments: str) -> None:
    started, used = time.perf_counter(), time.process_time()
    if name == "drive":
        found: dict[str, float] | None = drive(*map(int, arguments))
    else:
        steps = (write, merge, study, compare, export, report, rescore)
        step: Any = {each.__name__: each for each in steps}[name]
        found = step(Path(arguments[0]), int(arguments[1]), arguments[2])
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
        case _:
            sys.exit(__doc__)
