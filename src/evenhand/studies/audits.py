"""Audits beside the metrics: what a benchmark finds in all records of an arm at once, where it has more to say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from evenhand.benchmarks.base import Benchmark
from evenhand.benchmarks.judgement.audit import over_correction
from evenhand.benchmarks.judgement.findings import PanelAudit
from evenhand.errors import PlanError
from evenhand.studies.results import ArmResult, Correction
from evenhand.types import Record

FOREMOST = 2
"""So many sentences of an audit say what matters most."""
_UNCORRECTED = ("judge", "panel")
"""Methods that do nothing about bias; the last that a run has is what mitigations are set against."""


@runtime_checkable
class Audited(Protocol):
    """A benchmark that audits the records of an arm."""

    def audit(self, records: Sequence[Record]) -> PanelAudit: ...


def check_iterations(benchmark: Benchmark, iterations: bool) -> None:
    """Rounds of judges are in their audit; as answers of an iteration they have no grade."""
    if iterations and isinstance(benchmark, Audited):
        raise PlanError(f"What {benchmark.name} finds after each round is in its audit; leave --iterations away.")


class Audits:
    """The records of the arms, kept where the benchmark audits them."""

    def __init__(self, benchmark: Benchmark, arms: Collection[str]) -> None:
        self._audited = benchmark if isinstance(benchmark, Audited) else None
        self._arms = arms if self._audited is not None else ()
        self._records: dict[str, list[Record]] = defaultdict(list)

    @property
    def has_rounds(self) -> bool:
        """Whether the audit tells what happened on the way, so that iterations need not."""
        return self._audited is not None

    def add(self, arm: str, record: Record) -> None:
        if arm in self._arms:
            self._records[arm].append(record)

    def of(self, arm: str) -> PanelAudit | None:
        """The audit of an arm; None where there is nothing to audit."""
        records = self._records.get(arm)
        return self._audited.audit(records) if self._audited is not None and records else None


def audit_verdicts(arms: Sequence[ArmResult]) -> list[str]:
    """What matters most about each arm that was audited."""
    return [f"{arm.label}: {' '.join(arm.audit.sentences[:FOREMOST])}" for arm in arms if arm.audit]


def corrections(arms: Sequence[ArmResult]) -> list[Correction]:
    """Every mitigation beside the arm of the same models and seed that does nothing about bias."""
    found: list[Correction] = []
    for after in arms:
        before = _uncorrected(after, arms)
        if after.audit is not None and before is not None and before.audit is not None:
            found.append(Correction(before.id, after.id, over_correction(before.audit, after.audit)))
    return found


def _uncorrected(after: ArmResult, arms: Sequence[ArmResult]) -> ArmResult | None:
    if after.method in _UNCORRECTED:
        return None
    alike = [each for each in arms if _models_and_seed(each) == _models_and_seed(after)]
    by_method: Mapping[str, ArmResult] = {each.method: each for each in reversed(alike)}
    return next((by_method[name] for name in reversed(_UNCORRECTED) if name in by_method), None)


def _models_and_seed(arm: ArmResult) -> tuple[Mapping[str, str], int]:
    return arm.models, arm.seed
