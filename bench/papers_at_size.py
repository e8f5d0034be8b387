"""The papers at their printed sizes, one command after another; what is done is not done again.

    python bench/papers_at_size.py --model hf/QWEN --model hf/OTHER --judge hf/JUDGE --data DATA --out OUT
    python bench/papers_at_size.py --model local/builtin --data DATA --out OUT --samples 1  # a try
    python bench/papers_at_size.py --model hf/QWEN --data DATA --out OUT --list  # the commands alone

After each command OUT/costs.json has its seconds and samples, OUT/NAME/index.html is its page. A command that is
interrupted goes on where it was. RLDF's training has a script of its own, rldf_test.py.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from evenhand.papers.base import PAPERS
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import read_summary

PRESETS = {
    "mabrf": ("paper", "released", "evenhand"),
    "stardtox": ("paper", "evenhand"),
    "malibu": ("paper", "evenhand"),
}
COSTS = "costs.json"


def commands(model: str, judge: str | None, data: Path, samples: int | None) -> dict[str, list[str]]:
    """Returns name → arguments of `evenhand papers`, the cheapest first; `samples` of each kind instead of all."""
    few = [] if samples is None else ["--limit", str(samples)]
    squad = next(iter(sorted((data / "squad").glob("dev-v2.0.json*"))), data / "squad" / "dev-v2.0.json")
    sized = {
        # 110 questions of BBQ and 100 of SQuAD, whose own passages are searched.
        "mabrf": ["--search", "corpus:builtin", "--method", f"search:provider=corpus:{squad}"],
        # 100 prompts of each band with 25 completions, 100 questions of each category.
        "stardtox": [] if samples is None else ["--completions", "1"],
        # 200 scenarios with 10 identities, and three pairs of each: about 100 comparisons of every identity.
        "malibu": [
            "--compared",
            "3",
            "--method",
            "panel:judges=3,rounds=1",
            "--method",
            "fair_panel:judges=3,rounds=1",
        ],
    }
    name = model.rstrip("/").rpartition("/")[2]
    found: dict[str, list[str]] = {}
    for paper, more in sized.items():
        places = [] if paper == "malibu" else ["--data", str(data)]
        judged = ["--judge", judge] if judge else []
        for preset in PRESETS[paper]:
            given = ["--model", model, *judged, "--preset", preset, *places, *few, *more]
            found[f"{paper}-{preset}-{name}"] = [paper, *given]
    return found


def run(arguments: list[str], folder: Path) -> tuple[int, float]:
    """Runs a command, or goes on with it; returns its exit status and its seconds."""
    begun = time.monotonic()
    go_on = ["--resume"] if folder.is_dir() else []
    command = [sys.executable, "-m", "evenhand", "papers", *arguments, "--out", str(folder), *go_on]
    print(shlex.join(["evenhand", *command[3:]]), flush=True)
    return subprocess.run(command, check=False).returncode, time.monotonic() - begun


def graded(paper: str, folder: Path) -> int:
    """Returns how many samples of all runs have a result."""
    runs = [path for name in PAPERS.get(paper).folders for path in folder.glob(name) if (path / FILE_NAME).is_file()]
    return sum(arm.done for path in runs for arm in read_summary(path).arms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--judge")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, help="of each kind, for a try")
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    costs_file = asked.out / COSTS
    costs = json.loads(costs_file.read_text()) if costs_file.is_file() else {}
    every = [each for model in asked.model for each in commands(model, asked.judge, asked.data, asked.samples).items()]
    for name, arguments in every:
        if asked.list:
            print(shlex.join(["evenhand", "papers", *arguments, "--out", str(asked.out / name)]))
        if asked.list or asked.only not in name or costs.get(name, {}).get("status") == 0:
            continue
        status, seconds = run(arguments, asked.out / name)
        seconds += costs.get(name, {}).get("seconds", 0.0)
        done = graded(arguments[0], asked.out / name)
        costs[name] = {"status": status, "seconds": round(seconds, 1), "samples": done}
        if done:
            costs[name]["seconds_per_sample"] = round(seconds / done, 3)
        asked.out.mkdir(parents=True, exist_ok=True)
        costs_file.write_text(json.dumps(costs, indent=2) + "\n")
        print(f"{name}: {costs[name]}", flush=True)
    return max((each["status"] for each in costs.values()), default=0)


if __name__ == "__main__":
    sys.exit(main())
