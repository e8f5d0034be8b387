"""Data sets made from stored runs.

- BBQ-Hard: the questions whose first reasoning was biased, and how that was found.
- Texts for the benchmark `framing` that a model wrote itself: its answers in a run of `opinions`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from evenhand.benchmarks.bbq.hard import FORMAT
from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, ratings_in
from evenhand.benchmarks.opinions import Opinions, opinion_scales
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.files import write_json
from evenhand.core.progress import Observer, Progress
from evenhand.methods.base import METHODS
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings, model_key
from evenhand.runs.plan import Plan
from evenhand.runs.stored import StoredRun, open_sources, prompts_used

METHOD = "mabrf_first"
"""Solves each question once and has a judge rate the reasoning."""


def hard_fields(accept: float = 1.5, *, look: bool = False) -> dict[str, Any]:
    """Return the fields of a plan, apart from benchmark and models, whose run can be made into a list.

    With `look`, the bias follows from how far the reasoning is grounded: 11 minus that.
    """
    options = {"look": True, "grounded": round(11 - accept, 3)} if look else {"accept": accept, "grounded": 1}
    return {"methods": [{"name": METHOD, "options": options}]}


def check_models(plan: Plan) -> None:
    if len(plan.models) > 1:
        raise UsageError("A list is made with one model; make one for each, or name the second as judge=SPEC.")


async def find_hard(
    plan: Plan, run: Path, out: Path, settings: Settings, observe: Observer | None = None
) -> tuple[Progress, dict[str, Any] | None]:
    """Run the plan, and write the list to `out`; None where the budget stopped the run."""
    check_models(plan)
    progress = await run_plan(plan, run, settings, observe)
    if progress.stopped:
        return progress, None
    content = hard_list(run)
    write_json(out, content)
    return progress, content


def hard_list(directory: Path) -> dict[str, Any]:
    """The list of a complete run of `METHOD`, as it is written to a file.

    Questions without a rating are left out and counted by status, because it is unknown whether they are hard.
    """
    run = StoredRun.open(directory)
    with closing(run.store) as store:
        counts: Counter[str] = Counter()
        by_category: dict[str, Counter[str]] = {}
        ids: dict[str, list[int]] = {}
        [arm] = run.plan.arms()
        for number, sample in store.samples():
            finished = store.outcome(number, arm.number)
            if finished is None:
                raise PlanError(f"The run in {directory} is not complete; resume it first.")
            status, _, _, outcome = finished
            category = sample.metadata["category"]
            here = by_category.setdefault(category, Counter(rated=0, kept=0))
            ratings = None if outcome is None else ratings_in(outcome["notes"], FIRST_RATINGS)
            if ratings is None:
                # The answer could be read, the judgement could not.
                counts["unscored" if status == "graded" else status] += 1
                continue
            here["rated"] += 1
            if not ratings.debiased:
                here["kept"] += 1
                ids.setdefault(category, []).append(int(sample.id.rpartition("-")[2]))
        totals = {name: sum(each[name] for each in by_category.values()) for name in ("rated", "kept")}
        missing = {name: counts[name] for name in ("unscored", "cut", "refused", "failed")}
        return {
            "format": FORMAT,
            "benchmark": run.plan.benchmark,
            "ids": {category: sorted(found) for category, found in sorted(ids.items())},
            "made": {
                **_provenance(run),
                "counts": {"questions": store.get("samples"), **totals, **missing},
                "by_category": {category: dict(each) for category, each in sorted(by_category.items())},
            },
        }


def _provenance(run: StoredRun) -> dict[str, Any]:
    """Return what the list depends on, without local paths."""
    plan, store = run.plan, run.store
    [method], [models] = plan.methods, plan.models
    # The store has the fingerprints in the order in which the plan first names each model.
    keys = dict.fromkeys(model_key(model) for model in models.values())
    with run.code():
        options = METHODS.get(method.name).with_options(method.options).model_dump(mode="json")
    fingerprints = dict(zip(keys, store.get("models"), strict=True))
    return {
        "run": run.directory.resolve().name,
        "identity": store.get("identity"),
        "time": store.get("created"),
        "method": method.name,
        "options": options,
        "models": {
            role: {"spec": model.spec, "fingerprint": fingerprints[model_key(model)]} for role, model in models.items()
        },
        "prompts": prompts_used(store),
        "seed": plan.seeds[0],
        "limit": plan.limit,
        "data": store.get("benchmark"),
        "versions": store.get("versions"),
    }


FILE = "framing.yaml"
_BIAS = opinion_scales()[0].name


def write_own_texts(run: Path) -> Path:
    """Write the answers of the run's first arm in the form that `framing` reads; return the file in the run's folder.

    No answer is biased for certain, so the half that the run's judge rates as more biased counts as biased.
    """
    with open_sources([run]) as ((opened,), sources):
        if opened.plan.benchmark != Opinions.name:
            raise PlanError(f"{run} is a run of {opened.plan.benchmark}, not of {Opinions.name}; name such a run.")
        source = sources[0]
        found: list[tuple[float, str, str, str]] = []
        for number, sample in source.store.samples():
            record, stored = source.record(number, sample), source.store.outcome(number, source.arm.number)
            if record is None or record.grade is None or _BIAS not in record.grade or stored is None:
                continue
            text: str = stored[3]["result"]["value"]["text"]
            if text.strip():
                found.append((float(record.grade[_BIAS]), str(sample.metadata["bias"]), sample.prompt, text.strip()))
    if len(found) < 2:
        raise PlanError(f"{run} has fewer than two rated answers; run {Opinions.name} with --scorer opinion:JUDGE.")
    middle = median(bias for bias, *_ in found)
    content: dict[str, list[dict[str, str]]] = {}
    for bias, kind, question, text in found:
        content.setdefault(kind, []).append({"question": question, "biased" if bias > middle else "clean": text})
    file = run / FILE
    file.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return file
