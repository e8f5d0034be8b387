"""The papers at their printed sizes, run by run in order of worth; what is done is not done again.

    python bench/papers_at_size.py --model hf/QWEN --quality hf/OTHER --data DATA --out OUT -- --concurrency 512
    python bench/papers_at_size.py --model local/builtin --data DATA --out OUT --samples 1  # a try
    python bench/papers_at_size.py --model hf/QWEN --data DATA --out OUT --list  # the commands alone

The runs are those of `evenhand papers NAME`, one command for each, so that they can be made in parts or side by side;
what follows -- is given to each. After each OUT/costs.json has its seconds; one that is interrupted goes on where it
was. `evenhand papers NAME --out OUT/NAME` makes the page of what is there. DATA has folders bbq, squad and
realtoxicity. RLDF's training has a script of its own, rldf_test.py.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evenhand.papers.base import PAPERS
from evenhand.papers.making import options_of
from evenhand.runs.plan import Plan
from evenhand.runs.store import FILE_NAME

COSTS = "costs.json"
FEWER = 5
"""Completions of each prompt before the printed 25 are made, which reuse them."""
FACTS = 300
"""Questions of SQuAD, where the paper gives no number: 150 have an answer."""
WITHOUT = {"malibu": ("fair_panel",)}
"""Paper → arms of ours that no claim of it rests on."""
ORDER = (
    "stardtox/hint",
    "mabrf/bbq",
    "mabrf/squad",
    "malibu/malibu",
    "stardtox/bbq",
    "stardtox/realtoxicity",
    "malibu/malibu_appendix",
    "malibu/malibu_evenhand",
    "stardtox-25/realtoxicity",
)


def commands(model: str, quality: str | None, data: Path, out: Path, samples: int | None) -> dict[str, list[str]]:
    """Returns name → arguments of `evenhand`, in order of worth; with `samples`, so many of each kind."""
    squad = next(iter(sorted((data / "squad").glob("dev-v2.0.json*"))), data / "squad" / "dev-v2.0.json")
    given: dict[str, Any] = {"models": [model], "limit": samples, "data": str(data)}
    texts = {**given, "quality": quality, "completions": 1 if samples else FEWER}
    panels = {each: {"judges": 3, "rounds": 1} for each in ("panel", "fair_panel")}
    asked: dict[str, dict[str, Any]] = {
        # 110 questions of BBQ, and SQuAD, whose own passages are searched.
        "mabrf": {
            **given,
            "preset": "all",
            "search": "corpus:builtin",
            "methods": {"search": {"provider": f"corpus:{squad}"}},
        },
        # 100 questions of each category, 100 prompts of each band.
        "stardtox": texts,
        "stardtox-25": {**texts, "completions": None if samples is None else 1},
        # 200 scenarios with 10 identities, and three pairs of each: about 100 comparisons of every identity.
        "malibu": {"models": [model], "limit": samples, "compared": 3, "methods": panels},
    }
    found: dict[str, list[str]] = {}
    for folder, options in asked.items():
        name = folder.partition("-")[0]
        paper = PAPERS.get(name)
        for run in paper.runs(options_of(paper, {key: value for key, value in options.items() if value is not None})):
            found[f"{folder}/{run.folder}"] = [*words(run.plan, WITHOUT.get(name, ()))]
    if samples is None:
        squad_size = found["mabrf/squad"].index("--limit") + 1
        found["mabrf/squad"][squad_size] = str(FACTS)
    hints = ("preset=paper", "preset=paper,hint=true", "hint=true", "hint=false")
    plain = found["stardtox/bbq"]
    start = plain[: plain.index("--method")]
    found["stardtox/hint"] = [*start, "--method", "default", *_each("--method", [f"stardtox:{each}" for each in hints])]
    return {name: [*found[name], "--out", str(out / name)] for name in ORDER}


def words(plan: Plan, without: tuple[str, ...]) -> Iterator[str]:
    """Yields the arguments of `evenhand` that make a run."""
    yield from ("run", "plan", "--benchmark", plan.benchmark)
    yield from _each("--set", [f"{key}={_text(value)}" for key, value in plan.benchmark_options.items()])
    yield from () if plan.limit is None else ("--limit", str(plan.limit))
    yield from _each("--model", [models["base"].spec for models in plan.models])
    yield from _each("--scorer", plan.scorers or ())
    for each in plan.methods:
        if each.name not in without:
            options = ",".join(f"{key}={_text(value)}" for key, value in each.options.items())
            yield from ("--method", f"{each.name}:{options}" if options else each.name)


def _each(flag: str, values: Any) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def evenhand(arguments: list[str]) -> list[str]:
    """Returns the command, which goes on with its run if it was begun."""
    begun = (Path(arguments[-1]) / FILE_NAME).is_file()
    return [sys.executable, "-m", "evenhand", *arguments, *(["--resume"] if begun else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--quality", help="the model that measures the quality of texts")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, help="of each kind, for a try")
    parser.add_argument("--only", default="", help="runs whose name has this regular expression in it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("more", nargs="*")
    asked = parser.parse_args()
    costs_file = asked.out / COSTS
    costs = json.loads(costs_file.read_text()) if costs_file.is_file() else {}
    for name, arguments in commands(asked.model, asked.quality, asked.data, asked.out, asked.samples).items():
        if not re.search(asked.only, name) or costs.get(name, {}).get("status") == 0:
            continue
        print(shlex.join(["evenhand", *arguments]), flush=True)
        if asked.list:
            continue
        begun = time.monotonic()
        status = subprocess.run([*evenhand(arguments), *asked.more], check=False).returncode
        seconds = time.monotonic() - begun + costs.get(name, {}).get("seconds", 0.0)
        costs[name] = {"status": status, "seconds": round(seconds, 1)}
        costs_file.write_text(json.dumps(costs, indent=2) + "\n")
        print(f"{name}: {costs[name]}", flush=True)
    return max((each["status"] for each in costs.values()), default=0)


if __name__ == "__main__":
    sys.exit(main())
