"""The members of a panel one by one: the bias of each node, and what passes along each edge.

Of each node: its bias alone, its bias after the discussion, the change, and how much more biased it ends than the same
model without a panel and than the same role in the shuffled graph, paired by sample. Of each edge: how often the
listener takes the stereotyped answer after it heard it from the speaker and after it heard another one, and how far the
listener moves towards the stereotype after it heard it. Limits hold for all nodes or edges of an arm at once
(Bonferroni), clustered by template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.benchmarks.base import Benchmark
from evenhand.core.types import Record
from evenhand.panels import NODES, Members
from evenhand.runs.stored import ArmSource
from evenhand.stats import Bounds, cluster_jackknife, ratio
from evenhand.studies.results import Estimate
from evenhand.studies.tally import Tally

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
        value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
        made.append(Estimate(name, group, value, low, high, int(np.sum(table[:, 1])), clusters=len(table)))
    return made
