"""Computes a study of stored runs: every arm by itself and paired with the baseline.

Everything is read from the store in one pass; no model is called. The members of a panel are looked at one by one, too.
Of each node: its bias alone, its bias after the discussion, the change, and how much more biased it ends than the same
model without a panel and than the same role in the shuffled graph, paired by sample. Of each edge: how often the
listener takes the stereotyped answer after it heard it from the speaker and after it heard another one, and how far the
listener moves towards the stereotype after it heard it. Limits hold for all nodes or edges of an arm at once
(Bonferroni), clustered by template.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.benchmarks.base import Benchmark, Metric
from evenhand.core.errors import PlanError, check_names
from evenhand.core.format import count, plural
from evenhand.core.registry import name_in_file
from evenhand.core.types import Record, Status, Usage
from evenhand.panels import NODES, Members
from evenhand.runs.plan import ArmKey
from evenhand.runs.scores import refined
from evenhand.runs.store import FINAL
from evenhand.runs.stored import (
    ArmSource,
    StoredRun,
    metric_faults,
    names_of,
    open_sources,
    rare_collections,
    shared_samples,
    steps_of,
    told_metrics,
    walk,
    with_counts,
)
from evenhand.stats import Bounds, chi_square_uniform, cluster_jackknife, ratio, total_variation_from_uniform
from evenhand.studies.agreement import agreements
from evenhand.studies.audits import Audits, check_iterations, corrections, has_audit
from evenhand.studies.conclusions import caveats_of, conclusions, is_answered, nothing_measured, warnings_about
from evenhand.studies.effects import margin_of, paired_effects
from evenhand.studies.results import (
    ArmResult,
    Estimate,
    IterationResult,
    MetricInfo,
    PositionBias,
    StudyResult,
    with_dates,
)
from evenhand.studies.samples import example_of
from evenhand.studies.tally import ALL, AT_ONCE, PairTally, Tally, estimate, groups_of

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
    margins: Mapping[str, float] | None = None,
    published: Mapping[str, float] | None = None,
) -> StudyResult:
    """Study one run directory, or several of the same benchmark side by side.

    `scorers` names scorers to use instead of the planned ones; `iterations` adds an arm for the results after each
    iteration of the methods that iterate; `skip_damaged` leaves out stored rows that cannot be read; `arms` are the
    ids of the arms to study, RUN.ARM counted from 1, if not all. `margins` and `published` are by metric: changes up to
    a margin do not matter (that of "" is for all metrics), and differences from the baseline that others published.
    """
    with open_sources(directories, scorers=scorers, iterations=iterations, skip_damaged=skip_damaged) as opened:
        runs, sources = opened
        sources = [each for each in sources if not arms or each.id in arms]
        benchmark = runs[0].benchmark()
        sources = with_counts(benchmark, sources)
        check_iterations(benchmark, iterations)
        known = [metric.name for metric in benchmark.metrics()]
        check_names("metric", known, *(*filter(None, margins or {}), *(published or {})))
        reference = _baseline(sources, baseline)
        shared = shared_samples(runs)
        with metric_faults(benchmark, runs):
            return _compute(runs, benchmark, sources, reference, correction, shared, margins or {}, published or {})


def _baseline(sources: Sequence[ArmSource], wanted: str | None) -> ArmSource:
    """Return the arm to compare with: the requested one, else the first `default`, else the first."""
    if wanted is None:
        return next((each for each in sources if each.arm.method.name == "default"), sources[0])
    for each in sources:
        if wanted in (each.id, each.label, each.arm.method.name, each.arm.models["base"].spec):
            return each
    raise PlanError(f"There is no arm {wanted!r}. Choose one of {', '.join(each.label for each in sources)}.")


@dataclass(slots=True)
class _Pass:
    """What one pass over the records of all arms adds up; arms are named by their ids."""

    benchmark: Benchmark
    sources: Sequence[ArmSource]
    reference: ArmSource
    known: Sequence[Metric]
    """The benchmark's metrics; those that cannot be determined have no value."""
    watched: Sequence[Metric]
    """The metrics that are also counted after each iteration."""
    steps: Sequence[ArmSource]
    """The iterations of arms that iterate."""
    alone: dict[str, Tally]
    pairs: dict[str, PairTally]
    """Each arm paired with the reference."""
    audits: Audits
    nodes: Nodes
    statuses: dict[str, Counter[Status]] = field(default_factory=lambda: defaultdict(Counter))
    positions: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    confusion: dict[str, dict[str, Counter[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    groups: set[str] = field(default_factory=set[str])
    samples: int = 0
    widths: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Number of options → how often an arm chose a position among so many."""

    def read(self) -> None:
        """Read every record once."""
        extra = [step for step in self.steps if all(step.id != source.id for source in self.sources)]
        for sample, records in walk([*self.sources, *extra], shared=True):
            self.samples += 1
            self.groups.add(str(sample["metadata"].get(self.benchmark.group_key, "")))
            width = len(sample["choices"])
            places = {arm: self._keep(arm, record, width) for arm, record in records.items()}
            self.nodes.add(records)
            if before := records.get(self.reference.id):
                for arm, pair in self.pairs.items():
                    if arm in records:
                        pair.keep(before, records[arm], places[self.reference.id], places[arm])
            if self.samples % AT_ONCE == 0:
                self._add_up()
        self._add_up()
        for tally in (*self.alone.values(), *self.pairs.values()):
            tally.finish()

    def _add_up(self) -> None:
        for tally in (*self.pairs.values(), *self.alone.values()):
            tally.add_up()

    def _keep(self, arm: str, record: Record, width: int) -> int:
        """Count a record; return its place in the tally of the arm."""
        self.audits.add(arm, record)
        self.statuses[arm][record.status] += 1
        if record.grade is not None and record.grade.get("position") is not None:
            self.positions[arm][record.grade["position"]] += 1
            self.widths[arm][width] += 1
        if kinds := self.benchmark.confusion(record):
            self.confusion[arm][kinds[0]][kinds[1]] += 1
        return self.alone[arm].keep(record)

    def guardrails(self) -> tuple[str, ...]:
        """The benchmark's guardrails, after what is tested where an arm has no value of the headline."""
        name = self.benchmark.headline
        meant = next(metric.meaning for metric in self.known if metric.name == name)
        lacking = [tally.sums for tally in self.alone.values() if (name, ALL) not in tally.sums]
        instead = [each for each in meant.instead if any((each, ALL) in sums for sums in lacking)]
        return tuple(dict.fromkeys([*instead, *self.benchmark.guardrails]))

    def metrics(self) -> list[Metric]:
        """The main metrics, and those others that apply to a method of this study."""
        main = {self.benchmark.headline, *self.benchmark.guardrails}
        return [
            metric
            for metric in self.known
            if metric.name in main or any((metric.name, ALL) in self.alone[each.id].sums for each in self.sources)
        ]


def _prepared(
    benchmark: Benchmark, metrics: Sequence[Metric], sources: Sequence[ArmSource], reference: ArmSource
) -> _Pass:
    key = benchmark.group_key
    followed = {benchmark.headline, *benchmark.guardrails, *benchmark.followed}
    watched = [metric for metric in metrics if metric.name in followed]
    whole = [source for source in sources if source.iteration == FINAL]
    steps = [] if has_audit(benchmark) else [step for source in whole for step in steps_of(source)]
    alone = {source.id: Tally(metrics, key) for source in sources}
    return _Pass(
        benchmark,
        sources,
        reference,
        metrics,
        watched,
        steps,
        {**{step.id: Tally(watched, key) for step in steps}, **alone},
        {
            source.id: PairTally(metrics, key, (alone[reference.id], alone[source.id]))
            for source in sources
            if source.id != reference.id
        },
        Audits(benchmark, {source.id for source in whole}),
        Nodes(benchmark, whole),
    )


def _compute(
    runs: Sequence[StoredRun],
    benchmark: Benchmark,
    sources: Sequence[ArmSource],
    reference: ArmSource,
    correction: str,
    shared: list[Sequence[int]] | None,
    margins: Mapping[str, float],
    published: Mapping[str, float],
) -> StudyResult:
    found = _prepared(benchmark, told_metrics(runs, sources[0].scorers), sources, reference)
    with rare_collections():
        found.read()
    only = {id(run.store): numbers for run, numbers in zip(runs, shared or (), strict=shared is not None)}
    metrics = found.metrics()
    arms = [_arm(found, source, metrics, only.get(id(source.store))) for source in sources]
    provenance = _provenance(runs)
    guardrails = found.guardrails()
    orders = min(run.plan.orders for run in runs)
    result = StudyResult(
        title=_title(provenance, benchmark.name, [each for each in sources if each.iteration == FINAL]),
        benchmark=benchmark.name,
        headline=benchmark.headline,
        guardrails=guardrails,
        metrics=[metric_info(metric, margins) for metric in metrics],
        groups=sorted(found.groups),
        arms=arms,
        effects=paired_effects(
            (benchmark.headline, *guardrails), metrics, reference.id, found.pairs, correction, margins, published
        ),
        findings=(),
        warnings=(),
        provenance=provenance,
        scorers=sources[0].scorers[1:],
        scoring=sum((run.store.scoring() for run in runs), Usage()),
        by_iteration=[_step_result(found, step, only.get(id(step.store))) for step in found.steps],
        agreements=agreements([run.store for run in runs]),
        corrections=corrections(benchmark, arms, {name for run in runs for name in run.not_executed()}),
        report_sections=benchmark.report_sections,
        position_advice=f"averaged over {orders} orders" if orders > 1 else benchmark.position_advice,
    )
    if result.nothing_measured:
        return replace(result, findings=[nothing_measured(result)])
    result = replace(
        result,
        findings=conclusions(result),
        caveats=[
            *_about_answers(provenance),
            *(
                f"{run.mended()} was mended after the run; its metrics are those of now."
                for run in runs
                if run.mended()
            ),
            *caveats_of(result),
        ],
        warnings=[
            *warnings_about(result),
            *_about_data(runs, found.samples, shared is not None),
            *(f"{each}." for each in benchmark.caveats() if is_answered(result)),
        ],
        notes=list(dict.fromkeys(f"{note}." for run in runs for note in run.store.get("notes") or ())),
    )
    return replace(result, example=example_of(result, metrics, sources))


def _about_answers(provenance: Mapping[str, Any]) -> list[str]:
    """Say of each run that has answers of earlier runs how many, and when they were recorded."""
    found = {name: _when(run["recorded"]) for name, run in provenance.items()}
    return [f"{name}: {each}" if len(found) > 1 else each for name, each in found.items() if each]


def _when(answers: Mapping[str, int]) -> str:
    """`answers` are by day, and those of the run itself have an empty name."""
    days = {day: n for day, n in answers.items() if day}
    own, total = answers.get("", 0), sum(answers.values())
    if not days:
        return ""
    if len(days) > _LISTED:
        days = {f"{min(days)} to {max(days)}": total - own}
    first, *others = (f"{count(n)}{{}} on {day}" for day, n in days.items())
    listed = [first.format(f" of {plural(total, 'answer')} were recorded"), *(each.format("") for each in others)]
    return f"{' and '.join(listed)}; {count(own) if own else 'none'} in this run."


def _about_data(runs: Sequence[StoredRun], samples: int, shared: bool) -> list[str]:
    """Warn of runs that share only some samples, and of damaged rows."""
    warnings: list[str] = []
    if shared:
        sizes = " and ".join(count(run.store.get("samples")) for run in runs)
        warnings.append(
            f"The runs have {sizes} samples. All numbers are of the {count(samples)} samples that they share."
        )
    return [*warnings, *filter(None, (run.store.damage() for run in runs))]


def metric_info(metric: Metric, margins: Mapping[str, float]) -> MetricInfo:
    """How to display a metric, for which a change of its margin does not matter."""
    bounds = metric.scale_bounds
    ends = None if bounds is None else (bounds[0] * metric.scale, bounds[1] * metric.scale)
    end = {"higher": 1, "lower": 0}.get(metric.better or "")
    best = 0.0 if metric.better == "zero" else None if end is None or ends is None else ends[end]
    return MetricInfo(
        metric.name,
        metric.title,
        metric.better,
        metric.share or metric.percent,
        None if metric.chance is None else metric.chance * metric.scale,
        metric.meaning,
        metric.comparable,
        metric.untold,
        margin_of(metric, margins),
        best if metric.best is None else metric.best,
        metric.scale == 100.0,
        metric.rating,
        ends,
    )


def _title(provenance: Mapping[str, Any], benchmark: str, sources: Sequence[ArmSource]) -> str:
    """Say which models were measured on what, with which methods, and when."""
    keys = [source.arm.key for source in sources]
    models = dict.fromkeys(model for key in keys for model in _measured_models(key))
    labels = dict.fromkeys(source.label for source in sources)
    methods = labels if len(models) == 1 else dict.fromkeys(name_in_file(key.method, "method") for key in keys)
    named = f"{_listed(models, 'models')} on {benchmark}"
    if [*methods] != ["default"] and {key.method for key in keys} != {"default"}:
        named += f": {_listed(methods, 'methods')}"
    return with_dates(named, provenance)


def _measured_models(key: ArmKey) -> Collection[str]:
    return [key.models["base"]] if "base" in key.models else key.models.values()


def _listed(names: Collection[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= _LISTED else f"{len(names)} {noun}"


def _step_result(found: _Pass, step: ArmSource, samples: Sequence[int] | None) -> IterationResult:
    reached, tally = refined(step.store, step.arm.number, step.scorers[0], samples), found.alone[step.id]
    counted = [metric for metric in found.watched if (metric.name, ALL) in tally.sums]
    return IterationResult(
        arm=step.id.rpartition(".")[0],
        iteration=step.iteration,
        estimates=[estimate(metric, ALL, tally) for metric in counted],
        reached=reached.get(step.iteration, 0),
        of=found.statuses[step.id].total(),
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
        "certificates",
    )
    return {
        name: {
            **{key: run.store.get(key) for key in facts},
            "scoring": asdict(run.store.scoring()),
            "recorded": run.store.recorded(),
        }
        for name, run in zip(names_of(runs), runs, strict=True)
    }


def _arm(found: _Pass, source: ArmSource, metrics: Sequence[Metric], samples: Sequence[int] | None) -> ArmResult:
    store, number = source.store, source.arm.number
    whole = source.iteration == FINAL
    tally, statuses = found.alone[source.id], found.statuses[source.id]
    arm = ArmResult(
        id=source.id,
        label=source.label,
        key=source.arm.key,
        estimates=[estimate(metric, group, tally) for metric in metrics for group in groups_of(metric.name, tally)],
        position=_position(found.positions[source.id], found.widths[source.id]),
        confusion={expected: dict(given) for expected, given in found.confusion[source.id].items()},
        audit=None if _is_untold(found) else found.audits.of(source.id),
        nodes=found.nodes.of(source.id),
        statuses=dict(statuses),
        pending=found.samples - statuses.total(),
        reasons=store.reasons(number, samples=samples) if whole else (),
        # The usage of a single iteration is part of its arm's usage and is not recorded separately.
        usage=store.usage(number, samples) if whole else {},
        seconds=store.seconds(number, samples) if whole else 0.0,
        iteration=None if whole else source.iteration,
        at_limit=store.at_limit(number) if whole else 0,
        readings=store.readings(number) if whole else {},
        unscored=[
            (scorer, reason, n)
            for scorer in source.scorers[1:]
            if whole
            for reason, n in store.unscored(number, scorer)
        ],
    )
    return replace(arm, warnings=found.benchmark.warnings(arm.estimate)) if whole else arm


def _is_untold(found: _Pass) -> bool:
    """Whether the headline rests on a judge that does not see what it rates; an audit would say the same in words."""
    return any(metric.untold for metric in found.known if metric.name == found.benchmark.headline)


def _position(counts: Counter[int], widths: Counter[int]) -> PositionBias | None:
    places = range(max(widths, default=0))
    if len(places) < 2:
        return None
    shown = [counts[place] for place in places]
    even = [sum(n / width for width, n in widths.items() if place < width) for place in places]
    expected = even if len(widths) > 1 else None  # the last of five is rare where most samples have three
    p_value, distance = chi_square_uniform(shown, expected).p_value, total_variation_from_uniform(shown, expected)
    return PositionBias(tuple(shown), p_value, distance, tuple(expected or ()))


FIRST, LAST, CHANGE = "node_first", "node_last", "node_change"
ALONE, SHUFFLED = "node_over_alone", "node_over_shuffled"
TAKEN, OTHERWISE, CARRIED = "edge_taken", "edge_taken_otherwise", "edge_carried"
_NODE: Mapping[str, Bounds] = {
    FIRST: (-1.0, 1.0),
    LAST: (-1.0, 1.0),
    CHANGE: (-2.0, 2.0),
    ALONE: (-2.0, 2.0),
    SHUFFLED: (-2.0, 2.0),
}
_EDGE: Mapping[str, Bounds] = {TAKEN: (0.0, 1.0), OTHERWISE: (0.0, 1.0), CARRIED: (-2.0, 2.0)}


@dataclass(frozen=True, slots=True)
class _Others:
    """The arms that a panel's nodes are compared with; empty if there are none."""

    alone: str = ""
    shuffled: str = ""


class Nodes:
    """Sums by node and edge of each arm with a panel, in one pass."""

    def __init__(self, benchmark: Benchmark, arms: Sequence[ArmSource]) -> None:
        self._benchmark = benchmark
        self._tallies = {arm.id: Tally((), "") for arm in arms}
        self._others = {arm.id: _others(arm, arms) for arm in arms}

    def add(self, records: Mapping[str, Record]) -> None:
        """Count one sample in all arms."""
        if not any(each.grade is not None and NODES in each.grade for each in records.values()):
            return
        found = {
            arm: members
            for arm in self._tallies
            if arm in records and (members := self._benchmark.members(records[arm])) is not None
        }
        for arm, members in found.items():
            if not members.nodes:
                continue
            others = self._others[arm]
            alone, shuffled = found.get(others.alone), found.get(others.shuffled)
            cluster, tally = records[arm].cluster, self._tallies[arm]
            for name, (first, last) in members.nodes.items():
                _add(tally, (FIRST, name), cluster, first)
                _add(tally, (LAST, name), cluster, last)
                _add(tally, (CHANGE, name), cluster, last, first)
                if alone is not None:
                    _add(tally, (ALONE, name), cluster, last, alone.answer)
                if shuffled is not None:
                    _add(tally, (SHUFFLED, name), cluster, last, shuffled.nodes.get(name, (None, None))[1])
            _add_edges(tally, cluster, members)

    def of(self, arm: str) -> list[Estimate]:
        """Return the estimates of an arm, by node and by edge; none without a panel."""
        tally = self._tallies.get(arm)
        return [] if tally is None else [*_estimates(tally, _NODE), *_estimates(tally, _EDGE)]


def _others(arm: ArmSource, arms: Sequence[ArmSource]) -> _Others:
    """Return the arms with the same models, prompt and seed: without a panel, and with the shuffled graph."""
    key = arm.arm.key
    same = [each for each in arms if (each.arm.key.models, each.arm.key.seed) == (key.models, key.seed)]
    same = [each for each in same if each.arm.key.prompt == key.prompt]
    alone = next((each.id for each in same if each.arm.key.method == "default"), "")
    turned = {**key.options, "shuffled": True}
    is_plain = bool(key.options.get("graph")) and not key.options.get("shuffled")
    shuffled = (each.id for each in same if each.arm.key.method == key.method and each.arm.key.options == turned)
    return _Others(alone, next(shuffled, "") if is_plain else "")


def _add(tally: Tally, key: tuple[str, str], cluster: str, value: float | None, less: float | None = 0.0) -> None:
    if value is not None and less is not None:
        tally.add_sums(key, cluster, (value - less, 1.0))


def _add_edges(tally: Tally, cluster: str, members: Members) -> None:
    for (speaker, listener), (taken, heard, otherwise, unheard, moved, turns) in members.edges.items():
        edge = f"{speaker} → {listener}"
        for name, total, n in ((TAKEN, taken, heard), (OTHERWISE, otherwise, unheard), (CARRIED, moved, turns)):
            if n:
                tally.add_sums((name, edge), cluster, (total, n))


def _estimates(tally: Tally, bounds: Mapping[str, Bounds]) -> list[Estimate]:
    keys = [key for key in tally.sums if key[0] in bounds]
    confidence = 1 - 0.05 / max(1, len({group for _, group in keys}))
    made: list[Estimate] = []
    for name, group in keys:
        table = tally.table((name, group))
        found = cluster_jackknife(table, ratio, confidence=confidence, bounds=bounds[name]).interval
        one = Estimate.of(found.times(100), int(np.sum(table[:, 1])), name, group)
        made.append(replace(one, clusters=len(table)))
    return made
