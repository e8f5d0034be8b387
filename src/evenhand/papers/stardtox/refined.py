"""The share of items that an iterating method refined in each iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import open_sources
from evenhand.stats import share_interval
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL

Reached = tuple[str, str, int]
"""(group, cluster, last iteration) of one item."""


def refined_shares(
    folder: Path, arms: Mapping[str, Callable[[ArmKey], bool]], group_key: str | None, iterations: Sequence[int]
) -> Mapping[str, Mapping[str, Sequence[Estimate]]]:
    """Returns name → group → the share refined in each iteration, for the arms (name → test) that the run has.

    Groups are the values of the metadata `group_key`; without one, all items are one group. Failed items have no
    outcome and do not count.
    """
    shares: dict[str, dict[str, list[Estimate]]] = {}
    with open_sources([folder]) as (runs, sources):
        store = runs[0].store
        places = {
            number: (str(sample.metadata[group_key]) if group_key else ALL, sample.cluster)
            for number, sample in store.samples()
        }
        groups = {group for group, _ in places.values()}
        named = ((name, source) for name, fits in arms.items() for source in sources if fits(source.arm.key))
        for name, source in named:
            reached = [
                (*places[number], max((each["iteration"] for each in outcome["snapshots"]), default=0))
                for number, outcome in store.answers(source.arm.number)
                if number in places  # else the sample is damaged
            ]
            shares[name] = {
                group: [share_refined(reached, group, iteration) for iteration in iterations] for group in groups
            }
    return shares


def share_refined(reached: Sequence[Reached], group: str, iteration: int) -> Estimate:
    """Returns the share of the group's items that reached the iteration, in per cent, with a cluster interval."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each, cluster, last in reached:
        if each == group:
            sums[cluster][0] += last >= iteration
            sums[cluster][1] += 1
    table = np.array(list(sums.values()), dtype=np.float64).reshape(-1, 2)
    found = share_interval(table)
    value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
    return Estimate(f"refined_{iteration}", group, value, low, high, round(table[:, 1].sum()))


def settled_after_first(folder: Path, fits: Callable[[ArmKey], bool]) -> Estimate | None:
    """Returns the share of items refined once that needed no second refinement, in per cent; None if no arm fits."""
    with open_sources([folder]) as (runs, sources):
        store = runs[0].store
        source = next((each for each in sources if fits(each.arm.key)), None)
        if source is None:
            return None
        clusters = {number: sample.cluster for number, sample in store.samples()}
        reached = [
            (ALL, clusters[number], max((each["iteration"] for each in outcome["snapshots"]), default=0))
            for number, outcome in store.answers(source.arm.number)
            if number in clusters
        ]
    again = share_refined([each for each in reached if each[2]], ALL, 2)
    value, low, high = (None if each is None else 100 - each for each in (again.value, again.high, again.low))
    return Estimate("settled", ALL, value, low, high, again.n)
