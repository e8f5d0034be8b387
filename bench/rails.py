"""False alarms and hits of the checks of requests, on texts of our own: python bench/rails.py [--judge SPEC …]

Every second text of each group is the design half, on which rules, prompt and thresholds were chosen; the other half is
for the report. A text goes through the guard as the only message of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import save, table

from evenhand.core.files import read_yaml
from evenhand.guards.guard import Guard
from evenhand.guards.policy import GuardPolicy, InputPolicy
from evenhand.judging.card import Calibration
from evenhand.stats.intervals import wilson

HERE = Path(__file__).parent
FREE = ("toxicity", "injection")
Texts = Sequence[tuple[str, str]]
"""(group, text)."""


def main() -> None:
    options = _options()
    harmless, attacks = (_half(name, options.half) for name in ("harmless", "attacks"))
    checks: list[tuple[str, Mapping[str, Any]]] = [
        (name, {"evaluators": (name,)}) for name in FREE if not options.judge
    ]
    checks += [
        (f"injection_judge, {spec}", {"evaluators": ("injection_judge",), "judge": spec}) for spec in options.judge
    ]
    if options.judge:
        harmless, attacks = _some(harmless, options.harmless), _some(attacks, options.attacks)
    results = {name: asyncio.run(_measured(fields, harmless, attacks)) for name, fields in checks}
    table(
        f"Checks of requests, {options.half} half",
        ("check", "false alarms", "95 %", "hits", "95 %", "unchecked", "AUC", "s per text"),
        [_row(name, each) for name, each in results.items()],
    )
    for name, each in results.items():
        table(f"{name}, by group", ("group", "found", "of"), each["groups"])
        if options.show:
            print("\n".join(each["wrong"]))
    save(f"rails_{options.half}" + ("_judges" if options.judge else ""), results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--judge", action="append", default=[], metavar="SPEC", help="measure injection_judge with this model"
    )
    parser.add_argument("--half", choices=("design", "report"), default="report")
    parser.add_argument("--harmless", type=int, default=100, help="texts for a judge (default 100)")
    parser.add_argument("--attacks", type=int, default=50, help="texts for a judge (default 50)")
    parser.add_argument("--show", action="store_true", help="print the texts that were judged wrongly")
    return parser.parse_args()


def _half(name: str, half: str) -> Texts:
    groups: Any = read_yaml(HERE / f"rails_{name}.yaml")
    first = 0 if half == "design" else 1
    return [(f"{name}: {group}", text) for group, texts in groups.items() for text in texts[first::2]]


def _some(texts: Texts, count: int) -> Texts:
    """At most so many texts, evenly from all groups."""
    return [texts[n * len(texts) // count] for n in range(count)] if count < len(texts) else texts


async def _measured(fields: Mapping[str, Any], harmless: Texts, attacks: Texts) -> dict[str, Any]:
    counts: dict[str, Counter[str]] = {"harmless": Counter(), "attacks": Counter()}
    scores: dict[str, list[float]] = {"harmless": [], "attacks": []}
    groups: dict[str, list[int]] = {}
    wrong: list[str] = []
    seconds = 0.0
    policy = GuardPolicy("flag", evaluators=())
    async with Guard("fake/Yes.", method="default", policy=policy, input=InputPolicy("flag", **fields)) as guard:
        for kind, texts in (("harmless", harmless), ("attacks", attacks)):
            for group, text in texts:
                guarded = await guard([{"role": "user", "content": text}])
                assert guarded.input is not None
                flagged = guarded.input.action == "flagged"
                counts[kind][guarded.input.action] += 1
                scores[kind] += [each.score for each in guarded.input.checks if each.score is not None]
                seconds += guarded.stages["input"]
                found = groups.setdefault(group, [0, 0])
                found[0], found[1] = found[0] + flagged, found[1] + 1
                if fields.get("judge"):
                    print(end=".", file=sys.stderr, flush=True)
                if flagged != (kind == "attacks"):
                    wrong.append(f"  {group}: {text!r}")
    return {
        "counts": counts,
        "auc": Calibration("", scores["attacks"], scores["harmless"], 0).auc,
        "threshold": Calibration("", scores["attacks"], scores["harmless"], 0).threshold,
        "seconds": seconds / (len(harmless) + len(attacks)),
        "groups": [(group, *found) for group, found in groups.items()],
        "scores": scores,
        "wrong": wrong,
    }


def _row(name: str, result: Mapping[str, Any]) -> tuple[Any, ...]:
    shares: list[Any] = []
    for counts in result["counts"].values():
        flagged, total = counts["flagged"], sum(counts.values())
        limits = wilson(flagged, total)
        shares += [f"{flagged} of {total}", f"{limits.low:.1%} to {limits.high:.1%}"]
    unchecked = sum(counts["unchecked"] for counts in result["counts"].values())
    return name, *shares, unchecked, "" if result["auc"] is None else result["auc"], result["seconds"]


if __name__ == "__main__":
    main()
