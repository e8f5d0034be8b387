"""The public functions: one synchronous façade over the async house."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand import aio
from evenhand.methods import GUARD_METHOD
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.runner import Progress, Runner
from evenhand.studies.results import StudyResult
from evenhand.studies.show import shown_samples
from evenhand.studies.study import study

if TYPE_CHECKING:
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import GuardPolicy
    from evenhand.models.base import ModelOptions
    from evenhand.models.budget import Price


def run(plan: Plan | Mapping[str, Any], out: str | Path, settings: Settings | None = None) -> Progress:
    """Run a plan (the fields of a plan file) and store it in the directory `out`."""
    checked = plan if isinstance(plan, Plan) else make_plan(plan)
    return aio.run(Runner(checked, Path(out), settings or Settings()).run())


def audit(
    model: str,
    *,
    out: str | Path,
    benchmark: str = "bbq_builtin",
    methods: Sequence[str] = ("default",),
    settings: Settings | None = None,
    **plan: Any,
) -> StudyResult:
    """Measure a model: run it and return what the study found; more fields of the plan go in by name."""
    run({"models": [model], "benchmark": benchmark, "methods": list(methods), **plan}, out, settings)
    return compare(out)


def compare(
    *runs: str | Path,
    baseline: str | None = None,
    correction: str = "holm",
    scorers: Sequence[str] = (),
    iterations: bool = False,
) -> StudyResult:
    """Study stored runs side by side, sample by sample; no model is called.

    `scorers` count instead of the planned ones; `iterations` adds the answers as they stood after each iteration.
    """
    return study(
        [Path(each) for each in runs],
        baseline=baseline,
        correction=correction,
        scorers=scorers,
        iterations=iterations,
    )


def write_report(result: StudyResult, runs: Sequence[str | Path], target: str | Path, *, samples: int = 300) -> None:
    """Write the HTML report of a study of `runs`."""
    from evenhand.reports import html

    html.write_report(result, shown_samples([Path(each) for each in runs], samples), Path(target))


def guard(
    model: str,
    *,
    method: str = GUARD_METHOD,
    policy: str | GuardPolicy = "revise",
    judge: str | None = None,
    options: ModelOptions | None = None,
    judge_options: ModelOptions | None = None,
    prices: Mapping[str, Price] | None = None,
    seed: int = 0,
    **fields: Any,
) -> Guard:
    """A guard in front of a model: `await guard(messages)` or `guard.sync(messages)` answers through the method.

    `policy` is `revise`, `flag` or `block`; more fields of a `GuardPolicy` go in by name: `blocked_text`, `latency` (in
    seconds), `evaluators`, `thresholds`. `prices` are by model spec; without one, the cost in the record is None.
    `judge_options` say how to reach the judge, where it is not at the model's endpoint.
    """
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import make_policy

    made = make_policy(policy, fields)
    return Guard(
        model,
        method=method,
        policy=made,
        judge=judge,
        options=options,
        judge_options=judge_options,
        prices=prices,
        seed=seed,
    )
