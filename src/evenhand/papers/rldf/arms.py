"""Arms of the RLDF tables: their estimates and paired differences.

An arm is a method with the untrained model (`default`, `cot`, `fairthinking`) or a trained model with `default`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evenhand.benchmarks.base import Metric, ratio
from evenhand.data.debates import BIASES
from evenhand.errors import UnknownNameError, UsageError
from evenhand.runs.stored import open_sources, walk
from evenhand.stats import paired_cluster_jackknife, swap_test
from evenhand.studies.estimates import estimate
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, PairTally, Tally
from evenhand.types import Record

NAME = "rldf"
BASE = "base"
"""The folder of the untrained model's runs."""
DEFAULT = "default"
METHODS = (DEFAULT, "cot", "fairthinking")
SELF, TEACHER = "rldf_sr", "rldf_ts"
TRAINED = ("sft", "rlaif", NAME, SELF, TEACHER)
TITLES = {DEFAULT: "Default", "cot": "CoT", "sft": "SFT", "fairthinking": "FairThinking", "rlaif": "RLAIF"}
"""The paper's rows except its own method, in its order."""
MODES = {SELF: "S-R", TEACHER: "T-S"}
_BY_TEACHER = f"{NAME}@"
"""Prefix of arms that name their teacher."""


def arm_name(text: str) -> str:
    """Returns the arm for the user's `sft`, `rldf_ts` or `rldf:TEACHER`."""
    kind, colon, teacher = text.partition(":")
    if colon and kind == NAME and re.fullmatch(r"[\w.+-]+", teacher):
        return _BY_TEACHER + teacher
    if colon or kind not in TRAINED:
        raise UsageError(f"--trained takes {', '.join(TRAINED)} or rldf:TEACHER, e.g. sft=hf/FOLDER, not {text!r}.")
    return kind


def check_biases(names: Sequence[str]) -> None:
    for name in names:
        if name not in BIASES:
            raise UnknownNameError("type of bias", name, BIASES)


def teacher_of(arm: str) -> str | None:
    return arm.removeprefix(_BY_TEACHER) if arm.startswith(_BY_TEACHER) else None


def own_arm(arms: Container[str]) -> str:
    """Returns the arm of the paper's method: with a teacher if there is one, as in its tables."""
    return next((arm for arm in (NAME, TEACHER, SELF) if arm in arms), NAME)


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference of two arms, after − before, with its p-value."""

    estimate: Estimate
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Arms:
    """All arms of one benchmark, by name."""

    model: str = ""
    """The spec of the untrained model."""
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    alone: Mapping[str, Tally] = field(default_factory=dict[str, Tally])
    pairs: Mapping[tuple[str, str], PairTally] = field(default_factory=dict[tuple[str, str], PairTally])

    def __contains__(self, arm: str) -> bool:
        return arm in self.alone

    @property
    def own(self) -> str:
        return own_arm(self.alone)

    @property
    def teachers(self) -> dict[str, str]:
        """Arm → teacher."""
        return {arm: teacher for arm in self.alone if (teacher := teacher_of(arm)) is not None}

    def estimate(self, arm: str, metric: str, group: str = ALL) -> Estimate | None:
        """Returns the estimate; None if no sample counts."""
        if arm not in self or (metric, group) not in self.alone[arm].sums:
            return None
        return estimate(self.metrics[metric], group, self.alone[arm])

    def difference(self, before: str, after: str, metric: str, group: str = ALL) -> Difference | None:
        """Returns the paired difference; None if no sample counts in both arms."""
        pair = self.pairs.get((before, after))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        key, chosen = (metric, group), self.metrics[metric]
        tables = pair.before.table(key), pair.after.table(key)
        found = paired_cluster_jackknife(*tables, chosen.statistic, bounds=chosen.difference_bounds).interval
        value, low, high = (
            None if each is None else each * chosen.scale for each in (found.estimate, found.low, found.high)
        )
        p_value = swap_test(*tables, chosen.statistic)
        return Difference(Estimate(metric, group, value, low, high, pair.before.n[key]), p_value)


def _right(record: Record) -> tuple[float, float] | None:
    return None if record.grade is None else (float(record.grade["correct"]), 1.0)


ACCURACY = Metric("accuracy", "Accuracy", _right, ratio, "higher", scale=100.0)
"""Accuracy over both contexts of BBQ, with a cluster interval; the benchmark separates the contexts."""


def read_arms(
    folders: Mapping[str, Path],
    group_key: str,
    more: Sequence[Metric] = (),
    scorers: Sequence[str] = (),
    compared: Sequence[tuple[str, str]] = (),
) -> Arms:
    """Reads the arms of the runs in `folders` (`base` or a trained arm → its run).

    `more` are additional metrics, `compared` additional pairs of arms to compare.
    """
    if not folders:
        return Arms()
    with open_sources(list(folders.values()), scorers=scorers) as (runs, sources):
        metrics = {metric.name: metric for metric in (*runs[0].benchmark().metrics(), *more)}
        places = {id(run.store): name for run, name in zip(runs, folders, strict=True)}
        names = {
            source.id: source.arm.method.name if places[id(source.store)] == BASE else places[id(source.store)]
            for source in sources
        }
        alone = {name: Tally(list(metrics.values()), group_key) for name in names.values()}
        pairs = {
            pair: PairTally([metric for metric in metrics.values() if metric.gather is None], group_key)
            for pair in _compared(list(alone), compared)
        }
        for _, found in walk(sources):
            records = {names[source]: record for source, record in found.items()}
            for name, record in records.items():
                alone[name].add(record)
            for (before, after), pair in pairs.items():
                if before in records and after in records:
                    pair.add(records[before], records[after])
        for tally in (*alone.values(), *pairs.values()):
            tally.finish()
        model = next((s.arm.models["base"].spec for s in sources if places[id(s.store)] == BASE), "")
        return Arms(model, metrics, alone, pairs)


def _compared(arms: Sequence[str], more: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the pairs to compare: all arms with Default and with the paper's method, the two modes, and `more`."""
    own = own_arm(arms)
    wanted = [*more, *((DEFAULT, arm) for arm in arms)]
    wanted += [(arm, own) for arm in arms]
    wanted.append((SELF, TEACHER))
    return [(a, b) for a, b in dict.fromkeys(wanted) if a != b and a in arms and b in arms]
