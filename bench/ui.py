"""How long the pages of `evenhand ui` take with 1,000 runs, one of which has 100,000 samples.

    python bench/ui.py [--runs 1000] [--samples 100000] [--folder DIR] [--whole]

Makes the folder (kept with --folder, for the next time), starts the real command, and asks for each page twice: with an
empty cache, and after all is known. `first` is the first byte, when the browser can begin to draw; `CPU` is what the
server computed for it; with Chromium installed, `paint` is the first paint that it reports itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from evenhand.models.request import pack, unpack
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import sample_from

SMALL = 20
BIG = "big"
PAGES = {
    "runs": "/",
    "runs, filtered": "/?model=fake/M7&state=complete",
    "a small run": "/run?id=run-0007",
    "samples of the big run": f"/samples?run={BIG}",
    "search in the big run": f"/samples?run={BIG}&text=wallet&sort=plan",
    "the big run": f"/run?id={BIG}",
    "leaderboard": "/board?benchmark=bbq_builtin",
    "over time": "/history?model=fake/M7&benchmark=bbq_builtin",
    "start": "/start",
}


def make_folder(folder: Path, runs: int, samples: int) -> None:
    asyncio.run(_run(folder / "seed", SMALL))
    for number in range(runs - 1):
        target = folder / f"run-{number:04}"
        target.mkdir()
        shutil.copyfile(folder / "seed" / "run.sqlite", target / "run.sqlite")
        with closing(sqlite3.connect(target / "run.sqlite")) as db:
            _put(db, "created", f"2026-{1 + number % 11:02}-{1 + number % 28:02}T10:00:00+00:00")
            (text,) = db.execute("SELECT value FROM facts WHERE key = 'plan'").fetchone()
            plan = orjson.loads(text)
            for models in plan["models"]:
                models["base"]["spec"] = f"fake/M{number % 20}"
            _put(db, "plan", plan)
            db.commit()
    shutil.rmtree(folder / "seed")
    asyncio.run(_run(folder / BIG, 200))
    _enlarge(folder / BIG / "run.sqlite", samples)


async def _run(folder: Path, limit: int) -> None:
    plan = make_plan({"models": ["fake/A"], "methods": ["default", "fair_prompt"], "limit": limit})
    await Runner(plan, folder, Settings()).run()


def _put(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, orjson.dumps(value).decode()))


def _enlarge(file: Path, samples: int) -> None:
    """Repeat the samples and their results under new ids."""
    with closing(sqlite3.connect(file)) as db:
        seeds = [(number, sample_from(unpack(body))) for number, body in db.execute("SELECT number, body FROM samples")]
        width = len(seeds)
        for start in range(width, samples, width):
            for number, sample in seeds:
                copy = replace(sample, id=f"{sample.id}-{start}", cluster=f"{sample.cluster}-{start % 4000}")
                db.execute("INSERT INTO samples VALUES (?, ?, ?)", (start + number, copy.id, pack(copy)))
            for table in ("outcomes", "scores"):
                columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})") if name != "sample"]
                names = ", ".join(columns)
                db.execute(
                    f"INSERT INTO {table} (sample, {names}) SELECT sample + ?, {names} FROM {table} WHERE sample <= ?",
                    (start, width),
                )
        count = db.execute("SELECT COUNT(*) FROM samples").fetchone()[0]
        _put(db, "samples", count)
        db.commit()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """CPU seconds of the server so far, without its workers: what a page takes whatever else the machine does."""
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def first_byte(process: subprocess.Popen[str], url: str, whole: bool) -> tuple[float, float, float]:
    """Seconds to the first byte, CPU seconds of the server until then and, if wanted, seconds to the last byte."""
    began, cpu = time.perf_counter(), cpu_of(process)
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/html"}), timeout=600) as reply:
        reply.read(1)
        first = time.perf_counter() - began
        spent = cpu_of(process) - cpu
        if not whole:
            return first, spent, float("nan")
        reply.read()
    return first, spent, time.perf_counter() - began


def paints(address: str, profile: Path) -> dict[str, float]:
    """Seconds to the first paint of each page, as Chromium reports them; none without it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.browser import CHROMIUM, DRIVER, start_chromium, wait_until

    if CHROMIUM is None or DRIVER is None:
        return {}
    driver = start_chromium(profile, wait="none")  # pages go on for long after their first paint
    found: dict[str, float] = {}
    ask = (
        "return location.protocol === 'http:' &&"
        " performance.getEntriesByName('first-contentful-paint').map((e) => e.startTime)[0]"
    )
    for name, path in PAGES.items():
        driver.get("about:blank")
        wait_until(driver, lambda: driver.current_url == "about:blank")
        driver.get(address + path)
        found[name] = wait_until(driver, lambda: driver.execute_script(ask)) / 1000
    driver.quit()
    return found


def served(folder: Path, cache: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "evenhand", "ui", str(folder), "--port", "0"]
    env = {**os.environ, "EVENHAND_CACHE": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    return process, process.stdout.readline().rpartition(": ")[2].strip().rstrip("/")


def wait_until_known(address: str, every: bool) -> float:
    """Wait until all runs were read and, if all is wanted, computed."""
    began = time.perf_counter()
    while True:
        with urllib.request.urlopen(f"{address}/state.json", timeout=600) as reply:
            state = orjson.loads(reply.read())
            if not state["unread"] and not (every and state["pending"]):
                return time.perf_counter() - began
        time.sleep(2)


def measure(folder: Path, work: Path, every: bool) -> None:
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    process, address = served(folder, work / "cache")
    try:
        cold = {name: first_byte(process, address + path, every) for name, path in PAGES.items()}
        print(f"all runs read {wait_until_known(address, every):.0f} s later", flush=True)
        warm = {name: first_byte(process, address + path, every) for name, path in PAGES.items()}
        painted = paints(address, work / "profile")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    print(f"{'':<26}{'cold':^24}{'warm':^24}")
    print(f"{'page':<26}" + 2 * f"{'first':>8}{'CPU':>8}{'whole':>8}" + f"{'paint':>8}")
    for name in PAGES:
        cells = (*cold[name], *warm[name], painted.get(name, float("nan")))
        print(f"{name:<26}" + "".join(f"{each:>8.2f}" for each in cells))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--whole", action="store_true", help="wait for all reports too: an hour on a busy machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = given.folder or Path(work) / "runs"
        if not folder.exists():
            folder.mkdir(parents=True)
            began = time.perf_counter()
            make_folder(folder, given.runs, given.samples)
            print(f"made {given.runs:,} runs in {time.perf_counter() - began:.0f} s")
        measure(folder, Path(work), given.whole)


if __name__ == "__main__":
    main()
