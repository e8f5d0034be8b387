"""Audits beside the metrics: what a benchmark finds in all records of an arm at once, where it has more to say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from evenhand.benchmarks.base import Audit, Benchmark
from evenhand.errors import PlanError, UnknownNameError
from evenhand.methods.base import METHODS
from evenhand.studies.results import ArmResult, Correction
from evenhand.types import Record

FOREMOST = 2
"""The number of an audit's sentences that are among the conclusions."""


def has_audit(benchmark: Benchmark) -> bool:
    return type(benchmark).audit is not Benchmark.audit


def check_iterations(benchmark: Benchmark, iterations: bool) -> None:
    """What an audited benchmark finds on the way is in its audit; an iteration's answers have no grade there."""
    if iterations and has_audit(benchmark):
        raise PlanError(f"What {benchmark.name} finds after each round is in its audit; remove --iterations.")


class Audits:
    """The records of the arms, kept if the benchmark audits them."""

    def __init__(self, benchmark: Benchmark, arms: Collection[str]) -> None:
        self._benchmark = benchmark
        self._arms = arms if has_audit(benchmark) else ()
        self._records: dict[str, list[Record]] = defaultdict(list)

    def add(self, arm: str, record: Record) -> None:
        if arm in self._arms:
            self._records[arm].append(record)

    def of(self, arm: str) -> Audit | None:
        """The audit of an arm; None where there is nothing to audit."""
        records = self._records.get(arm)
        return self._benchmark.audit(records) if records else None


def foremost_findings(arms: Sequence[ArmResult]) -> list[str]:
    """What matters most about each arm that was audited."""
    return [f"{arm.label}: {' '.join(arm.audit.sentences[:FOREMOST])}" for arm in arms if arm.audit]


def corrections(benchmark: Benchmark, arms: Sequence[ArmResult]) -> list[Correction]:
    """Every audited mitigation beside the arm of the same models and seed that does the same without it."""
    found: list[Correction] = []
    for after in arms:
        before = None if after.audit is None else _baseline(after, arms)
        if after.audit is not None and before is not None and before.audit is not None:
            found.append(Correction(before.id, after.id, benchmark.over_corrections(before.audit, after.audit)))
    return found


def _baseline(after: ArmResult, arms: Sequence[ArmResult]) -> ArmResult | None:
    alike = [each for each in arms if (each.models, each.seed) == (after.models, after.seed)]
    by_method: Mapping[str, ArmResult] = {each.method: each for each in reversed(alike)}
    return next((by_method[name] for name in _baselines(after.method) if name in by_method), None)


def _baselines(method: str) -> tuple[str, ...]:
    try:
        return METHODS.get(method).baselines
    except UnknownNameError:  # a stored run outlives the package of its method
        return ()
