"""Whether an audit of agents finds a group that is treated worse in one tool, and keeps quiet where none is.

A stub agent plays the default size of the benchmark `agents` through the real loop, tools, grades and tests; only the
model is a function. It decides by the case, errs at random in 2 % of cases whoever the person is, and is harsher in a
fifth of the situations to all who make a statement, which is no difference between groups. Two thirds of its decisions
are favourable. The unfair stub turns decisions on one group, in the tool `decide`, so that 10 % of its cases flip.
There are two ways: `by call`, for each version of a situation apart, and `by situation`, where a situation that flips
does so under every signal, so that the second adds nothing. A difference counts as found if one of that group is; any
difference is a false alarm.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from common import save, table, verdict

from evenhand.asking.act import act
from evenhand.benchmarks.agents import Agents
from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.prompts.audit import compared, tables_of
from evenhand.benchmarks.situations import FAMILIES, over_signals
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Grade, Params, Record, Sample, ToolCall
from evenhand.models.fake import FunctionModel
from evenhand.session import Session
from evenhand.stats import wilson

RUNS, RESAMPLES, FLIPS, NOISE, HARSH = 100, 500, 0.1, 0.02, 0.2
FAVOURABLE = 0.66
"""The share of favourable decisions of the fair stub; only these can flip."""
_PROMPT = parse_prompt("bench/task", "# user\n{{task}}")
_LOOKS = ("read_application", "read_ticket", "read_message", "read_post")


def run() -> None:
    benchmark = Agents()
    samples = list(benchmark.samples(Selection()))
    ends = asyncio.run(_ends(benchmark, samples))
    calls = sum(grades["steps"] for each in ends for grades in [each["best"]])
    started = time.perf_counter()
    rows: list[Sequence[Any]] = []
    saved: dict[str, Any] = {"samples": len(samples), "calls": calls}
    for how in ("by call", "by situation"):
        for group in ("race: Black", "gender: woman"):
            found = sum(group in _found(samples, ends, group, how, seed) for seed in range(RUNS))
            wanted = verdict(found, 90, least=True) if how == "by call" else ""
            rows.append((f"found: {group}, flips {how}", RUNS, *_share(found), wanted))
            saved[f"found {group} {how}"] = found
    alarms = sum(bool(_found(samples, ends, "", "by call", 1_000 + seed)) for seed in range(RUNS))
    rows.append(("false alarm", RUNS, *_share(alarms), verdict(alarms, 5)))
    seconds = time.perf_counter() - started
    table(
        f"Agents: {len(samples):,} cases, {calls:,} calls; {FLIPS:.0%} of the decisions on one group flip",
        ("", "audits", "share %", "95 % interval", "target"),
        rows,
        f"{seconds:.0f} s, {seconds / (RUNS * (len(rows))):.2f} s per simulated audit",
    )
    save("agents_power", {**saved, "false_alarms": alarms, "of": RUNS, "seconds": seconds})


async def _ends(benchmark: Agents, samples: Sequence[Sample]) -> list[Mapping[str, Any]]:
    """Both ways in which the stub may end each case, each played through the real loop and graded."""
    return [
        {"best": await _graded(benchmark, each, 0), "worst": await _graded(benchmark, each, -1)} for each in samples
    ]


async def _graded(benchmark: Agents, sample: Sample, place: int) -> Mapping[str, Any]:
    world = sample.metadata["world"]
    look = next(tool["name"] for tool in world["tools"] if tool["name"] in _LOOKS)
    decision = sorted(world["favourable"], key=lambda name: -world["favourable"][name])[place]

    def reply(messages: Sequence[Any], _params: Params) -> Completion:
        if messages[-1].role == "user":
            return Completion("", calls=(ToolCall("a", look, "{}"),))
        arguments = f'{{"decision": "{decision}", "message": "That is our decision."}}'
        return Completion("", calls=(ToolCall("b", "decide", arguments),))

    model = FunctionModel(reply, features=("tools",))
    outcome = await act(Session(sample, {"base": model}), sample, _PROMPT, sample.messages)
    grade = benchmark.grade(sample, outcome)
    assert isinstance(grade, Grade)
    return grade.values


def _found(samples: Sequence[Sample], ends: Sequence[Mapping[str, Any]], biased: str, how: str, seed: int) -> set[str]:
    """The groups of which a difference is found in one simulated audit."""
    records: list[Record] = []
    for sample, both in zip(samples, ends, strict=True):
        about = sample.metadata
        good = random.Random(f"{seed}/{sample.cluster}/merit").random() < 0.7
        if random.Random(f"{seed}/{sample.id}/noise").random() < NOISE:
            good = not good
        if about["signal"] == "statement" and random.Random(f"{seed}/{sample.cluster}/told").random() < HARSH:
            good = False
        place = sample.id if how == "by call" else sample.cluster
        if about["identity"] == biased and random.Random(f"{seed}/{place}/bias").random() < FLIPS / FAVOURABLE:
            good = False
        grade = both["best" if good else "worst"]
        records.append(Record(sample.id, sample.cluster, "graded", about, grade))
    return _beyond_chance(records, seed)


def _beyond_chance(records: Sequence[Record], seed: int) -> set[str]:
    """The groups that the first family of tests finds; the others find nothing where it does not."""
    clusters: dict[str, list[Record]] = {}
    for record in records:
        clusters.setdefault(record.cluster, []).append(record)
    tables = tables_of([over_signals(each, FAMILIES[0]) for each in clusters.values()])
    differences = compared(tables, RESAMPLES, np.random.default_rng(seed))
    return {f"{each.attribute}: {each.group}" for each in differences if each.found}


def _share(found: int) -> tuple[float, str]:
    interval = wilson(found, RUNS)
    return 100 * found / RUNS, f"{100 * (interval.low or 0):.1f}–{100 * (interval.high or 0):.1f}"
