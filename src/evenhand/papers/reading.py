"""What a paper's runs say: their studies, models and warnings, and paired differences between any two arms of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric, share_metric
from evenhand.core.errors import PlanError
from evenhand.core.format import limits, number, p_statement, percent, plural, signed
from evenhand.core.types import Record
from evenhand.runs.stored import ArmSource, open_sources, told_metrics, walk
from evenhand.runs.summary import UNGRADED
from evenhand.stats import Interval, paired_cluster_jackknife
from evenhand.studies.conclusions import MANY_UNGRADED, MANY_UNSAID, warnings_about
from evenhand.studies.effects import effect_of
from evenhand.studies.results import Effect, StudyResult
from evenhand.studies.study import study
from evenhand.studies.tally import ALL, PairTally, Tally

BUILTIN = "_builtin"
"""Name suffix of our own data sets."""


def study_of(name: str, folder: Path, scorers: Sequence[str] = (), *, iterations: bool = False) -> StudyResult:
    """Returns the study of the run called `name`, which must be of that benchmark."""
    found = study([folder], scorers=scorers, iterations=iterations)
    if found.benchmark.removesuffix(BUILTIN) != name:
        raise PlanError(f"{folder} holds a run of {found.benchmark}, not of {name}. Choose another --out.")
    return found


def lead_of(parts: Iterable[str]) -> str:
    """Returns the sentence below a page's title: what was run, and how to read the numbers; empty without parts."""
    said = "; ".join(parts)
    return f"{said}. In brackets: 95 % intervals. A dash: no value, which is not 0." if said else ""


def models_of(studies: Mapping[str, StudyResult]) -> list[str]:
    """Returns the base models, then the models of other roles."""
    used = [
        spec if role == "base" else f"{spec} as {role}"
        for found in studies.values()
        for arm in found.arms
        for role, spec in arm.models.items()
    ]
    return sorted(dict.fromkeys(used), key=lambda each: " as " in each)


def warnings_of(studies: Mapping[str, StudyResult], full_sizes: Mapping[str, int]) -> list[str]:
    """Returns warnings, each once; `full_sizes` is the number of samples of each run in the paper."""
    found: list[str] = []
    if own := [each.benchmark for each in studies.values() if each.benchmark.endswith(BUILTIN)]:
        found.append(f"{' and '.join(own)}: our own data, not comparable with the paper's numbers.")
    found += [f"{name} was not run; its cells are empty." for name in full_sizes if name not in studies]
    smaller = [
        f"{name} {run:,} of {full_sizes[name]:,}"
        for name, each in studies.items()
        if (run := samples_run(each)[0]) < full_sizes.get(name, 0)
    ]
    if smaller:
        found.append(f"Fewer samples than in the paper ({'; '.join(smaller)}): the intervals are wider.")
    said: dict[str, list[str]] = {}
    for name, each in studies.items():
        # Without the single iterations, which would repeat the same warnings.
        whole = replace(each, arms=[arm for arm in each.arms if arm.iteration is None])
        for warning in [*warnings_about(whole), *_incomplete(whole)]:
            said.setdefault(warning, []).append(name)
    return found + [f"{' and '.join(names)}: {warning}" for warning, names in said.items()]


def samples_run(found: StudyResult) -> tuple[int, int]:
    """Returns how many samples were run, in the arm that has most, and how many were planned."""
    sizes = [(run := sum(arm.statuses.values()), run + arm.pending) for arm in found.whole_arms]
    return max(sizes, default=(0, 0))


def questions_run(found: StudyResult) -> str:
    """Says how many questions were asked, and how many were planned if these are more."""
    run, planned = samples_run(found)
    return plural(run, "question") if run == planned else f"{run:,} of {plural(planned, 'question')}"


def _incomplete(study: StudyResult) -> list[str]:
    """Warns of samples without a grade and of samples that were not run, in one sentence each for all arms."""
    totals = {arm.label: sum(arm.statuses.values()) + arm.pending for arm in study.arms}
    ungraded = {arm.label: sum(arm.statuses.get(each, 0) for each in UNGRADED) for arm in study.arms}
    found: list[str] = []
    if named := _shares(ungraded, totals):
        found.append(f"Without a grade: {named}. The graded samples may not represent all; Failures has the reasons.")
    if named := _shares({arm.label: arm.pending for arm in study.arms}, totals):
        found.append(f"Not run: {named}. --resume completes them.")
    return found


def _shares(counts: Mapping[str, int], totals: Mapping[str, int]) -> str:
    many = [(label, count, totals[label]) for label, count in counts.items() if count]
    return ", ".join(f"{label} {n:,} of {total:,}" for label, n, total in many if n >= MANY_UNGRADED * total)


def together(studies: Mapping[str, StudyResult]) -> StudyResult | None:
    """Returns all arms of all runs as one study, for sections that do not use metrics."""
    if not studies:
        return None
    arms = [
        replace(arm, id=f"{name}.{arm.id}", label=f"{name}: {arm.label}")
        for name, found in studies.items()
        for arm in found.arms
        if arm.iteration is None
    ]
    provenance = {
        name if len(found.provenance) == 1 else f"{name}/{run}": facts
        for name, found in studies.items()
        for run, facts in found.provenance.items()
    }
    return replace(next(iter(studies.values())), arms=arms, effects=[], provenance=provenance)


# --- paired differences, read in one pass over a run's records ---

ArmPair = tuple[str, str]
"""(before, after), ids of arms."""
FIRST = ".first"
"""Ending of the id that stands for an arm's own first answers and reasonings."""
_FIRST_KEYS = {
    "correct": "first_correct",
    "kind": "first_kind",
    "reasoning_bias": "reasoning_bias_before",
    "relevancy": "relevancy_before",
    "debiased": "debiased_before",
}
COMPARABLE = (0.6, 1.6)
"""The length of answers, relative to those they are compared with, within which they can be compared."""
LENGTH = "length"


def _unsaid(record: Record) -> bool | None:
    return None if record.status == "failed" else record.status != "graded"


UNSAID = share_metric("unsaid", "Empty, refused or cut", _unsaid, "lower")
"""The share of answers that say nothing; calls that failed say nothing about the model."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A difference, after − before, of a metric with this title."""

    title: str
    effect: Effect
    is_distance: bool = False
    """Whether it is the change of a distance from zero."""
    untold: str = ""
    """Why it cannot be determined."""

    def __str__(self) -> str:
        """What changed, from where to where, with interval and p-value."""
        effect = self.effect
        where = "" if effect.group == ALL else f", {effect.group}"
        if self.untold:
            return f"{self.title}{where} cannot be determined: {self.untold}"
        if effect.difference is None:
            return f"{self.title}{where}: undefined"
        values = f"{number(effect.first)} → {number(effect.last)}"
        change = f"{signed(effect.difference)} {limits(effect.low, effect.high)}"
        distance = "distance from zero " if self.is_distance else ""
        said = f"{self.title}{where} {values} ({distance}{change}, {p_statement(effect.p_value)}, n = {effect.n:,}"
        if effect.excludes_published is not None:
            said += f"; published {signed(effect.published)}, {'' if effect.excludes_published else 'not '}excluded"
        return f"{said})"

    def beside(self, published: float | None) -> PairedDifference:
        """Returns the same beside the published difference."""
        return replace(self, effect=replace(self.effect, published=published))


@dataclass(frozen=True, slots=True)
class PairedArms:
    """The tallies of the pairs of arms of a run."""

    metrics: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict[str, Mapping[str, Metric]])
    """Arm → its metrics; one that its judge does not see has no value."""
    tallies: Mapping[ArmPair, PairTally] = field(default_factory=dict[ArmPair, PairTally])

    def _metric(self, before: str | None, after: str | None, name: str) -> Metric:
        """The metric, without a value if one of the arms has none."""
        both = [self.metrics[(arm or "").removesuffix(FIRST)][name] for arm in (before, after)]
        return next((each for each in both if each.untold), both[0])

    def difference(
        self, before: str | None, after: str | None, metric: str, group: str = ALL
    ) -> PairedDifference | None:
        """Returns the paired difference; None if an arm was not run or no sample counts in both."""
        pair = self.tallies.get((before or "", after or ""))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        chosen = self._metric(before, after, metric)
        effect = effect_of(chosen, group, before or "", after or "", pair)
        return PairedDifference(chosen.title, effect, chosen.better == "zero", chosen.untold)

    def beyond(
        self, before: str | None, after: str | None, metric: str, factor: float, group: str = ALL
    ) -> Interval | None:
        """Returns after − factor × before, for a mean or share."""
        pair = self.tallies.get((before or "", after or ""))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        key, chosen = (metric, group), self._metric(before, after, metric)
        first: NDArray[np.float64] = pair.before.table(key) * np.array([factor, 1.0])
        found = paired_cluster_jackknife(first, pair.after.table(key), chosen.statistic).interval
        return found.times(chosen.scale)

    def fault(self, before: str | None, after: str | None) -> str:
        """Says why a better score of `after` means nothing: it is silent more often, or far shorter or longer."""
        known = any(LENGTH in metrics for metrics in self.metrics.values())
        silent = self.difference(before, after, UNSAID.name)
        words = self.difference(before, after, LENGTH) if known else None
        shares, lengths = ((each.effect.first, each.effect.last) if each else (None, None) for each in (silent, words))
        said = fault_of(shares, lengths, "the other")
        return f"{said[:1].upper()}{said[1:]}"


def fault_of(unsaid: tuple[float | None, float | None], words: tuple[float | None, float | None], other: str) -> str:
    """Says why a better score means nothing: an arm is silent more often than the other, or far shorter or longer.

    Both are of the other arm and of the arm itself: the percentage of answers that say nothing, and the length.
    """
    usual, silent = unsaid
    if usual is not None and silent is not None and silent > usual + 100 * MANY_UNSAID:
        return f"{number(silent, 0)} % of its answers are empty, refused or cut ({other}: {number(usual, 0)} %)"
    if not words[0] or words[1] is None or COMPARABLE[0] <= words[1] / words[0] <= COMPARABLE[1]:
        return ""
    band = " to ".join(number(100 * each, 0) for each in COMPARABLE)
    return f"its answers have {percent(words[1] / words[0], 0)} of {other}'s words (comparable: {band} %)"


def tally_up(
    sources: Sequence[ArmSource],
    alone: Mapping[str, Sequence[Tally]],
    pairs: Iterable[tuple[PairTally, Sequence[ArmPair]]],
) -> None:
    """Adds the records of all samples, in one pass, to the tallies of their arms and of the pairs of arms.

    An id of a pair with the ending `.first` is an arm's first answers.
    """
    pairs = list(pairs)
    for _, records in walk(sources):
        for arm, record in records.items():
            for tally in alone.get(arm, ()):
                tally.add(record)
        for pair, ids in pairs:
            for before, after in ids:
                one, other = _record(records, before), _record(records, after)
                if one is not None and other is not None:
                    pair.add(one, other)
    for tally in {id(each): each for some in alone.values() for each in some}.values():
        tally.finish()
    for pair, _ in pairs:
        pair.finish()


def read_paired_arms(
    folder: Path,
    wanted: Iterable[ArmPair],
    group_key: str,
    more: Sequence[Metric] = (),
    *,
    scorers: Sequence[str] = (),
    iterations: bool = False,
) -> PairedArms:
    """Reads these pairs of arms of the run in `folder`; an id with the ending `.first` is an arm's first answers."""
    with open_sources([folder], scorers=scorers, iterations=iterations) as (runs, sources):
        added = (UNSAID, *more)
        metrics = {
            source.id: {each.name: each for each in told_metrics(runs, source.scorers, added, source.arm.method)}
            for source in sources
        }
        known = {source.id for source in sources}
        counted = [each for each in next(iter(metrics.values())).values() if each.gather is None] if metrics else []
        tallies = {
            pair: PairTally(counted, group_key)
            for pair in dict.fromkeys(wanted)
            if all(each.removesuffix(FIRST) in known for each in pair)
        }
        tally_up(sources, {}, [(tally, [pair]) for pair, tally in tallies.items()])
        return PairedArms(metrics, tallies)


def _record(records: Mapping[str, Record], arm: str) -> Record | None:
    found = records.get(arm.removesuffix(FIRST))
    return first_of(found) if found is not None and arm.endswith(FIRST) else found


def first_of(record: Record) -> Record | None:
    """Returns the record as it would be with the first answer and reasoning; None if these are not known."""
    grade = record.grade
    if grade is None or "first_correct" not in grade:
        return None
    first = {key: grade[before] for key, before in _FIRST_KEYS.items() if before in grade}
    rest = {key: value for key, value in grade.items() if key not in _FIRST_KEYS}
    return replace(record, grade={**rest, **first})
