"""A run's metrics grouped by any metadata key, for papers that group results differently from our reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenhand.benchmarks.base import Metric
from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import open_sources, walk
from evenhand.studies.estimates import estimate
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, Tally


@dataclass(frozen=True, slots=True)
class PooledArm:
    """One arm of a run with its metrics by group."""

    id: str
    key: ArmKey
    metrics: Mapping[str, Metric]
    tally: Tally

    @property
    def model(self) -> str:
        """The spec of the base model."""
        return self.key.models["base"]

    def estimate(self, metric: str, group: str = ALL) -> Estimate | None:
        """Returns the estimate; None if no sample counts in the metric."""
        if (metric, group) not in self.tally.sums:
            return None
        return estimate(self.metrics[metric], group, self.tally)


def pooled_arms(folder: Path, group_key: str, more: Sequence[Metric] = ()) -> list[PooledArm]:
    """Returns the arms of the run in `folder`; `more` are additional metrics."""
    with open_sources([folder]) as (runs, sources):
        metrics = {metric.name: metric for metric in (*runs[0].benchmark().metrics(), *more)}
        tallies = {source.id: Tally(list(metrics.values()), group_key) for source in sources}
        for _, records in walk(sources):
            for source_id, record in records.items():
                tallies[source_id].add(record)
        for tally in tallies.values():
            tally.finish()
        return [PooledArm(source.id, source.arm.key, metrics, tallies[source.id]) for source in sources]


def models_in(arms: Sequence[PooledArm]) -> list[str]:
    """Returns the base models, in the order of the plan."""
    return list(dict.fromkeys(arm.model for arm in arms))


def find_arm(arms: Sequence[PooledArm], model: str, fits: Callable[[ArmKey], bool]) -> PooledArm | None:
    """Returns the model's arm that `fits`."""
    return next((arm for arm in arms if arm.model == model and fits(arm.key)), None)


def pooled(arms: Sequence[PooledArm]) -> PooledArm:
    """Returns arms of several models as one; the questions stay the clusters, whatever the number of models."""
    if len(arms) == 1:
        return arms[0]
    first = arms[0]
    together = Tally(list(first.metrics.values()), first.tally.group_key)
    for arm in arms:
        for key, sums in arm.tally.sums.items():
            together.sums[key].update(sums)
        together.n.update(arm.tally.n)
    return PooledArm(first.id, first.key, first.metrics, together)
