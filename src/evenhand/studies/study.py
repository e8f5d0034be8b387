"""Computes a study of stored runs: every arm by itself and paired with the baseline.

Everything is read from the store in one pass; no model is called.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import Benchmark, Metric
from evenhand.core.errors import PlanError
from evenhand.core.types import Status, Usage
from evenhand.runs.plan import ArmKey
from evenhand.runs.scores import refined
from evenhand.runs.store import FINAL
from evenhand.runs.stored import ArmSource, StoredRun, names_of, open_sources, shared_samples, steps_of, walk
from evenhand.stats import chi_square_uniform, total_variation_from_uniform
from evenhand.studies.agreement import agreements
from evenhand.studies.audits import Audits, check_iterations, corrections, has_audit, main_findings
from evenhand.studies.conclusions import caveats_of, conclusions, nothing_measured, warnings_about
from evenhand.studies.effects import paired_effects
from evenhand.studies.estimates import estimate, groups_of
from evenhand.studies.results import ArmResult, IterationResult, MetricInfo, PositionBias, StudyResult, with_dates
from evenhand.studies.tally import ALL, PairTally, Tally

_LISTED = 4
"""Models or methods in the title; more are only counted."""


def study(
    directories: Sequence[Path],
    *,
    baseline: str | None = None,
    correction: str = "holm",
    scorers: Sequence[str] = (),
    iterations: bool = False,
    skip_damaged: bool = False,
    arms: Collection[str] = (),
) -> StudyResult:
    """Study one run directory, or several of the same benchmark side by side.

    `scorers` names scorers to use instead of the planned ones; `iterations` adds an arm for the results after each
    iteration of the methods that iterate; `skip_damaged` leaves out stored rows that cannot be read; `arms` are the
    ids of the arms to study, RUN.ARM counted from 1, if not all.
    """
    with open_sources(directories, scorers=scorers, iterations=iterations, skip_damaged=skip_damaged) as opened:
        runs, sources = opened
        sources = [each for each in sources if not arms or each.id in arms]
        benchmark = runs[0].benchmark()
        check_iterations(benchmark, iterations)
        return _compute(runs, benchmark, sources, _baseline(sources, baseline), correction, shared_samples(runs))


def _baseline(sources: Sequence[ArmSource], wanted: str | None) -> ArmSource:
    """Return the arm to compare with: the requested one, else the first `default`, else the first."""
    if wanted is None:
        return next((each for each in sources if each.arm.method.name == "default"), sources[0])
    for each in sources:
        if wanted in (each.id, each.label, each.arm.method.name, each.arm.models["base"].spec):
            return each
    raise PlanError(f"There is no arm {wanted!r}. Choose one of {', '.join(each.label for each in sources)}.")


def _compute(
    runs: Sequence[StoredRun],
    benchmark: Benchmark,
    sources: Sequence[ArmSource],
    reference: ArmSource,
    correction: str,
    shared: list[Sequence[int]] | None,
) -> StudyResult:
    metrics = benchmark.metrics()
    alone = {source.id: Tally(metrics, benchmark.group_key) for source in sources}
    pairs = {source.id: PairTally(metrics, benchmark.group_key) for source in sources if source.id != reference.id}
    statuses: dict[str, Counter[Status]] = defaultdict(Counter)
    positions: dict[str, Counter[int]] = defaultdict(Counter)
    confusion: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    groups: dict[str, None] = {}
    audits = Audits(benchmark, {source.id for source in sources if source.iteration == FINAL})
    width = 0
    main = {benchmark.headline, *benchmark.guardrails}
    watched = [metric for metric in metrics if metric.name in main | set(benchmark.followed)]
    whole = [source for source in sources if source.iteration == FINAL and not has_audit(benchmark)]
    steps = [step for source in whole for step in steps_of(source)]
    extra = [step for step in steps if step.id not in alone]
    alone |= {step.id: Tally(watched, benchmark.group_key) for step in extra}
    only = {id(run.store): numbers for run, numbers in zip(runs, shared or (), strict=shared is not None)}
    counted = 0
    for sample, records in walk([*sources, *extra], shared=True):
        counted += 1
        groups[str(sample.metadata.get(benchmark.group_key, ""))] = None
        width = max(width, len(sample.choices))
        for source_id, record in records.items():
            alone[source_id].add(record)
            audits.add(source_id, record)
            statuses[source_id][record.status] += 1
            if record.grade is not None and record.grade.get("position") is not None:
                positions[source_id][record.grade["position"]] += 1
            if kinds := benchmark.confusion(record):
                confusion[source_id][kinds[0]][kinds[1]] += 1
            if source_id in pairs and reference.id in records:
                pairs[source_id].add(records[reference.id], record)
    for tally in (*alone.values(), *pairs.values()):
        tally.finish()
    # Hide metrics that do not apply to any method of this study.
    metrics = [m for m in metrics if m.name in main or any((m.name, ALL) in alone[each.id].sums for each in sources)]
    arms = [
        replace(
            _arm_result(source, metrics, alone[source.id], statuses[source.id], counted, only.get(id(source.store))),
            position=_position(positions[source.id], width),
            confusion={expected: dict(given) for expected, given in confusion[source.id].items()},
            audit=audits.of(source.id),
        )
        for source in sources
    ]
    arms = [replace(arm, warnings=benchmark.warnings(arm.estimate)) if arm.iteration is None else arm for arm in arms]
    effects = paired_effects(benchmark, metrics, reference.id, pairs, correction)
    result = StudyResult(
        title=_title(_provenance(runs), benchmark.name, [each for each in sources if each.iteration == FINAL]),
        benchmark=benchmark.name,
        headline=benchmark.headline,
        guardrails=benchmark.guardrails,
        metrics=[
            MetricInfo(
                m.name,
                m.title,
                m.better,
                m.share or m.percent,
                None if m.chance is None else m.chance * m.scale,
                m.meaning,
                m.comparable,
            )
            for m in metrics
        ],
        groups=sorted(groups),
        arms=arms,
        effects=effects,
        verdicts=(),
        warnings=(),
        provenance=_provenance(runs),
        scorers=sources[0].scorers[1:],
        scoring=sum((run.store.scoring() for run in runs), Usage()),
        by_iteration=[
            _step_result(step, watched, alone[step.id], statuses[step.id].total(), only.get(id(step.store)))
            for step in steps
        ],
        agreements=agreements([run.store for run in runs]),
        corrections=corrections(benchmark, arms, {name for run in runs for name in run.changed_files()}),
        report_sections=benchmark.report_sections,
        position_advice=benchmark.position_advice,
    )
    caveats = [f"{caveat}." for caveat in benchmark.caveats()]
    caveats += [f"{note}." for run in result.provenance.values() for note in run.get("notes") or ()]
    caveats += filter(None, (run.store.damage() for run in runs))
    if result.nothing_measured:
        return replace(result, verdicts=[nothing_measured(result)])
    if shared is not None:
        sizes = " and ".join(f"{run.store.get('samples'):,}" for run in runs)
        caveats.insert(0, f"The runs have {sizes} samples. All numbers are of the {counted:,} samples that they share.")
    return replace(
        result,
        verdicts=[*main_findings(arms), *conclusions(result)],
        caveats=caveats_of(result),
        warnings=[*caveats, *warnings_about(result)],
    )


def _title(provenance: Mapping[str, Any], benchmark: str, sources: Sequence[ArmSource]) -> str:
    """Say which models were measured on what, with which methods, and when."""
    keys = [source.arm.key for source in sources]
    models = dict.fromkeys(model for key in keys for model in _measured_models(key))
    labels = dict.fromkeys(source.label for source in sources)
    methods = labels if len(models) == 1 else dict.fromkeys(key.method for key in keys)
    named = f"{_listed(models, 'models')} on {benchmark}: {_listed(methods, 'methods')}"
    return with_dates(named, provenance)


def _measured_models(key: ArmKey) -> Collection[str]:
    return [key.models["base"]] if "base" in key.models else key.models.values()


def _listed(names: Collection[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= _LISTED else f"{len(names)} {noun}"


def _step_result(
    step: ArmSource, watched: Sequence[Metric], tally: Tally, of: int, samples: Sequence[int] | None
) -> IterationResult:
    reached = refined(step.store, step.arm.number, step.scorers[0], samples)
    counted = [metric for metric in watched if (metric.name, ALL) in tally.sums]
    return IterationResult(
        arm=step.id.rpartition(".")[0],
        iteration=step.iteration,
        estimates=[estimate(metric, ALL, tally) for metric in counted],
        reached=reached.get(step.iteration, 0),
        of=of,
    )


def _provenance(runs: Sequence[StoredRun]) -> Mapping[str, Any]:
    facts = (
        "identity",
        "created",
        "plan",
        "options",
        "benchmark",
        "models",
        "files",
        "versions",
        "seconds",
        "samples",
        "caveats",
        "notes",
        "scorers",
        "scoring",
    )
    return {name: {key: run.store.get(key) for key in facts} for name, run in zip(names_of(runs), runs, strict=True)}


def _arm_result(
    source: ArmSource,
    metrics: Sequence[Metric],
    tally: Tally,
    statuses: Mapping[Status, int],
    counted: int,
    samples: Sequence[int] | None,
) -> ArmResult:
    store, number = source.store, source.arm.number
    whole = source.iteration == FINAL
    return ArmResult(
        id=source.id,
        label=source.label,
        key=source.arm.key,
        estimates=[estimate(metric, group, tally) for metric in metrics for group in groups_of(metric.name, tally)],
        statuses=dict(statuses),
        pending=counted - sum(statuses.values()),
        reasons=store.reasons(number, samples=samples) if whole else (),
        # The usage of a single iteration is part of its arm's usage and is not recorded separately.
        usage=store.usage(number, samples) if whole else {},
        seconds=store.seconds(number, samples) if whole else 0.0,
        iteration=None if whole else source.iteration,
        at_limit=store.at_limit(number) if whole else 0,
        readings=store.readings(number) if whole else {},
        unscored=[
            (scorer, reason, count)
            for scorer in source.scorers[1:]
            if whole
            for reason, count in store.unscored(number, scorer)
        ],
    )


def _position(counts: Counter[int], width: int) -> PositionBias | None:
    if not counts or width < 2:
        return None
    shown = [counts[position] for position in range(width)]
    return PositionBias(tuple(shown), chi_square_uniform(shown).p_value, total_variation_from_uniform(shown))
