"""The study: what stored runs show, each arm by itself and each against the baseline, sample by sample.

Everything is computed from the store in one pass; no model is called.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import Benchmark, Metric, load_benchmark
from evenhand.errors import PlanError
from evenhand.runs.agreement import agreements
from evenhand.runs.audits import Audits, audit_verdicts, check_iterations, corrections
from evenhand.runs.effects import compared
from evenhand.runs.estimates import estimate, groups_of
from evenhand.runs.plan import Arm, Plan, make_plan
from evenhand.runs.results import ArmResult, IterationResult, MetricInfo, PositionBias, StudyResult
from evenhand.runs.rows import FINAL
from evenhand.runs.scores import refined
from evenhand.runs.store import Store
from evenhand.runs.tally import ALL, PairTally, Tally
from evenhand.runs.verdict import verdicts, warnings_about
from evenhand.stats import chi_square_uniform, total_variation_from_uniform
from evenhand.types import Record, Sample, Status, Usage


@dataclass(frozen=True, slots=True)
class ArmSource:
    """One arm and the store it lies in; its final results, or those after some iteration."""

    id: str
    label: str
    store: Store
    arm: Arm
    scorers: tuple[str, ...]
    """Whose grades count: the benchmark's, then the scorers'."""
    iteration: int = FINAL

    def record(self, number: int, sample: Sample) -> Record | None:
        return self.store.record(number, self.arm.number, sample, self.scorers, self.iteration)


@dataclass(slots=True)
class StoredRun:
    """A run directory opened for reading."""

    directory: Path
    store: Store
    plan: Plan

    @classmethod
    def open(cls, directory: Path) -> StoredRun:
        store = Store(directory)
        stored = store.get("plan")
        if stored is None:
            raise PlanError(f"The run in {directory} never got as far as its plan; run it again.")
        return cls(directory, store, make_plan(stored))

    def scorers(self, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """The ids of the scorers that count: those of the plan, with `wanted` in place of what they replace."""
        known: dict[str, Any] = self.store.get("scorers") or {}
        active: list[str] = [scorer for scorer, about in known.items() if about["planned"]]
        for spec in wanted:
            chosen = self._scorer(spec, known)
            replaced: set[str] = set(known[chosen]["attributes"])
            active = [each for each in active if each != chosen and not replaced & set(known[each]["attributes"])]
            active.append(chosen)
        return (self.store.get("scorer"), *active)

    def _scorer(self, spec: str, known: Mapping[str, Any]) -> str:
        """The id that a spec stands for: the last version of it; of one with a model, the name alone will do."""
        exact = [scorer for scorer, about in known.items() if spec in (scorer, about["spec"])]
        found = exact or [scorer for scorer, about in known.items() if about["spec"].partition(":")[0] == spec]
        if not found:
            raise PlanError(
                f"{self.directory} has no scores by {spec!r}; make them with "
                f"`evenhand rescore {self.directory} --scorer {spec}`."
            )
        if not exact and len(found) > 1:
            raise PlanError(f"{spec!r} may be {' or '.join(found)}; name one of them.")
        return found[-1]

    def benchmark(self) -> Benchmark:
        """The benchmark's grading and metrics; its data is in the store and not needed again."""
        return load_benchmark(self.plan.benchmark, **self.plan.benchmark_options)


@contextlib.contextmanager
def open_sources(
    directories: Sequence[Path], *, scorers: Sequence[str] = (), iterations: bool = False
) -> Generator[tuple[list[StoredRun], list[ArmSource]]]:
    """The run directories, opened for reading, and all their arms; with `iterations`, also as they stood after each."""
    with contextlib.ExitStack() as stack:
        runs: list[StoredRun] = []
        for directory in directories:
            run = StoredRun.open(directory)
            stack.callback(run.store.close)
            runs.append(run)
        if len({(run.plan.benchmark, run.store.get("scorer")) for run in runs}) > 1:
            raise PlanError("These runs are of different benchmarks, whose numbers cannot be compared.")
        active = [run.scorers(scorers) for run in runs]
        if len(set(active)) > 1:
            raise PlanError(
                "These runs were scored by different scorers, whose scores cannot be compared; "
                "rescore them alike and name the scorer with --scorer."
            )
        yield runs, _sources(runs, active[0], iterations)


def study(
    directories: Sequence[Path],
    *,
    baseline: str | None = None,
    correction: str = "holm",
    scorers: Sequence[str] = (),
    iterations: bool = False,
) -> StudyResult:
    """Study one run directory, or several of the same benchmark side by side.

    `scorers` names scorers that count instead of the planned ones; `iterations` adds an arm for the results after
    each iteration of the methods that iterate.
    """
    with open_sources(directories, scorers=scorers, iterations=iterations) as (runs, sources):
        benchmark = runs[0].benchmark()
        check_iterations(benchmark, iterations)
        return _compute(runs, benchmark, sources, _baseline(sources, baseline), correction)


def _sources(runs: Sequence[StoredRun], scorers: tuple[str, ...], iterations: bool) -> list[ArmSource]:
    sources: list[ArmSource] = []
    for number, (run, name) in enumerate(zip(runs, _names(runs), strict=True), 1):
        for arm in run.plan.arms():
            label = arm.label if len(runs) == 1 else f"{name}: {arm.label}"
            source = ArmSource(f"{number}.{arm.number}", label, run.store, arm, scorers)
            # The first answer is left out: it is what the model says by itself, as the method `default` shows it.
            sources += [*(_steps(source)[1:] if iterations else ()), source]
    return sources


def _steps(source: ArmSource) -> list[ArmSource]:
    """The arm as it stood after each of its iterations; none for methods that do not iterate."""
    last = source.store.most_iterations(source.arm.number)
    return [
        replace(source, id=f"{source.id}.{each}", label=f"{source.label} · iteration {each}", iteration=each)
        for each in range(last + 1 if last else 0)
    ]


def _names(runs: Sequence[StoredRun]) -> list[str]:
    """The directories by their last part, or whole where that does not tell them apart."""
    short = [run.directory.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run.directory) for name, run in zip(short, runs, strict=True)]


def _baseline(sources: Sequence[ArmSource], wanted: str | None) -> ArmSource:
    """The arm that others are compared with: the one asked for, else the first `default`, else the first."""
    if wanted is None:
        return next((each for each in sources if each.arm.method.name == "default"), sources[0])
    for each in sources:
        if wanted in (each.id, each.label, each.arm.method.name):
            return each
    raise PlanError(f"There is no arm {wanted!r}; there are {', '.join(each.label for each in sources)}.")


def walk(sources: Sequence[ArmSource]) -> Iterator[tuple[Sample, dict[str, Record]]]:
    """Every sample with the records of all arms that finished it, walking all stores side by side by sample id."""
    stores = list({id(source.store): source.store for source in sources}.values())
    cursors = [store.samples() for store in stores]
    heads = [next(cursor, None) for cursor in cursors]
    while present := [head for head in heads if head is not None]:
        sample = min((each for _, each in present), key=lambda each: each.id)
        records: dict[str, Record] = {}
        for index, (store, head) in enumerate(zip(stores, heads, strict=True)):
            if head is None or head[1].id != sample.id:
                continue
            if head[1] != sample:
                raise PlanError(f"The sample {sample.id} differs between these runs; they used different data.")
            for source in sources:
                if source.store is store:
                    record = source.record(head[0], sample)
                    if record is not None:
                        records[source.id] = record
            heads[index] = next(cursors[index], None)
        yield sample, records


def _compute(
    runs: Sequence[StoredRun],
    benchmark: Benchmark,
    sources: Sequence[ArmSource],
    reference: ArmSource,
    correction: str,
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
    whole = [source for source in sources if source.iteration == FINAL and not audits.has_rounds]
    steps = [step for source in whole for step in _steps(source)]
    extra = [step for step in steps if step.id not in alone]
    alone |= {step.id: Tally(watched, benchmark.group_key) for step in extra}
    for sample, records in walk([*sources, *extra]):
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
    # Metrics of things that no method of this study does would only be in the way.
    metrics = [m for m in metrics if m.name in main or any((m.name, ALL) in alone[each.id].sums for each in sources)]
    arms = [
        replace(
            _arm_result(source, metrics, alone[source.id], statuses[source.id]),
            position=_position(positions[source.id], width),
            confusion={expected: dict(given) for expected, given in confusion[source.id].items()},
            audit=audits.of(source.id),
        )
        for source in sources
    ]
    effects = compared(benchmark, metrics, reference.id, pairs, correction)
    result = StudyResult(
        title=f"{benchmark.name}: {', '.join(each.label for each in sources if each.iteration == FINAL)}",
        benchmark=benchmark.name,
        headline=benchmark.headline,
        guardrails=benchmark.guardrails,
        metrics=[
            MetricInfo(
                m.name, m.title, m.better, m.share or m.percent, None if m.chance is None else m.chance * m.scale
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
        by_iteration=[_step_result(step, watched, alone[step.id], statuses[step.id].total()) for step in steps],
        agreements=agreements([run.store for run in runs]),
        corrections=corrections(arms),
    )
    caveats = [f"{caveat}." for caveat in benchmark.caveats()]
    return replace(
        result,
        verdicts=[*audit_verdicts(arms), *verdicts(result)],
        warnings=[*caveats, *warnings_about(result)],
    )


def _step_result(step: ArmSource, watched: Sequence[Metric], tally: Tally, of: int) -> IterationResult:
    reached = refined(step.store, step.arm.number, step.scorers[0])
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
        "benchmark",
        "models",
        "versions",
        "seconds",
        "samples",
        "caveats",
        "scorers",
        "scoring",
    )
    return {name: {key: run.store.get(key) for key in facts} for name, run in zip(_names(runs), runs, strict=True)}


def _arm_result(
    source: ArmSource, metrics: Sequence[Metric], tally: Tally, statuses: Mapping[Status, int]
) -> ArmResult:
    store, number = source.store, source.arm.number
    whole = source.iteration == FINAL
    return ArmResult(
        id=source.id,
        label=source.label,
        method=source.arm.method.name,
        models={role: model.spec for role, model in source.arm.models.items()},
        seed=source.arm.seed,
        estimates=[estimate(metric, group, tally) for metric in metrics for group in groups_of(metric.name, tally)],
        statuses=dict(statuses),
        pending=(store.get("samples") or 0) - sum(statuses.values()),
        reasons=store.reasons(number) if whole else (),
        # What an iteration took is part of what its arm took, and not known apart.
        usage=store.usage(number) if whole else {},
        seconds=store.seconds(number) if whole else 0.0,
        iteration=None if whole else source.iteration,
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
