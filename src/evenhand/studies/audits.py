"""Audits: findings that a benchmark computes from all records of an arm at once, besides its metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from evenhand.benchmarks.base import Audit, Benchmark
from evenhand.core.errors import PlanError, UnknownNameError
from evenhand.core.types import Record
from evenhand.methods.base import METHODS
from evenhand.studies.results import ArmResult, Correction

MAIN_FINDINGS = 2
"""Sentences of each audit that are repeated among the conclusions."""


def has_audit(benchmark: Benchmark) -> bool:
    return type(benchmark).audit is not Benchmark.audit


def check_iterations(benchmark: Benchmark, iterations: bool) -> None:
    """Refuse `--iterations` for audited benchmarks, which do not grade the answers of single iterations."""
    if iterations and has_audit(benchmark):
        raise PlanError(f"{benchmark.name} reports each round in its audit. Remove --iterations.")


class Audits:
    """Collects the records of each arm if the benchmark audits them."""

    def __init__(self, benchmark: Benchmark, arms: Collection[str]) -> None:
        self._benchmark = benchmark
        self._arms = arms if has_audit(benchmark) else ()
        self._records: dict[str, list[Record]] = defaultdict(list)

    def add(self, arm: str, record: Record) -> None:
        if arm in self._arms:
            self._records[arm].append(record)

    def of(self, arm: str) -> Audit | None:
        """Return the audit of an arm, or None without records to audit."""
        records = self._records.get(arm)
        return self._benchmark.audit(records) if records else None


def corrections(benchmark: Benchmark, arms: Sequence[ArmResult], changed: Collection[str] = ()) -> list[Correction]:
    """Compare every audited mitigation with its baseline: the arm without it, with the same models and seed.

    Methods in `changed` files are not loaded, so they have no baseline.
    """
    results: list[Correction] = []
    for after in arms:
        before = None if after.audit is None or after.method in changed else _baseline(after, arms)
        if after.audit is not None and before is not None and before.audit is not None:
            results.append(Correction(before.id, after.id, benchmark.over_corrections(before.audit, after.audit)))
    return results


def _baseline(after: ArmResult, arms: Sequence[ArmResult]) -> ArmResult | None:
    same_setup = [each for each in arms if (each.models, each.seed) == (after.models, after.seed)]
    by_method: Mapping[str, ArmResult] = {each.method: each for each in reversed(same_setup)}
    return next((by_method[name] for name in _baselines(after.method) if name in by_method), None)


def _baselines(method: str) -> tuple[str, ...]:
    try:
        return METHODS.get(method).baselines
    except UnknownNameError:  # the package of a stored run's method may be uninstalled
        return ()
