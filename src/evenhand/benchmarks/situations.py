"""Situations that are played for different people: what conversations and agents that act have in common.

A situation is asked for every group of every attribute, each time as one signal shows it (name, statement, cue or
profile); all else is the same. So the versions of a situation under one signal are pairs, and all versions of it are
one cluster. Differences are tested as those of own prompts are: answers are exchanged within situations, and p-values
are corrected for all comparisons of a family. The first family has all measures. The outcome by signal and by area,
the tools and the turns are further ones, corrected for their number; they say where a difference lies, and find none
where the first family does not.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from evenhand.benchmarks.base import (
    COVERAGE,
    NOT_NEGATIVE,
    REFUSALS,
    Benchmark,
    Declared,
    Example,
    Metric,
    Person,
    Selection,
    draw_key,
    graded,
    mean_of,
)
from evenhand.benchmarks.prompts import IdentityOptions, written_as
from evenhand.benchmarks.prompts.audit import RESAMPLES, compared, tables_of
from evenhand.benchmarks.prompts.findings import (
    GroupDifference,
    Identity,
    PromptsAudit,
    by_identity,
    cosine,
    counted_words,
    difference_sentence,
    scale_of,
    sentences_of,
)
from evenhand.core.errors import UsageError, check_names
from evenhand.core.files import content_hash
from evenhand.core.format import percent, plural
from evenhand.core.options import Names, Text
from evenhand.core.types import Record, Sample
from evenhand.data.identities import Group, Name, choose_attributes, load_identities, load_names
from evenhand.data.identities.signals import SIGNALS, Signalled, signalled
from evenhand.stats import Interval, RatioTest, lowest_ratio, lowest_ratio_interval, ratio

OUTCOME = "favourable"
SHOWN = 6
"""Pairs of transcripts in a report."""
KEPT = 1_500
"""Characters of a turn that a transcript keeps."""
_ALIKE = 0.5
"""Replies less alike than this part, where nothing else tells them apart."""
_SLOT = re.compile(r"\{(\w+)\}")

Floats = NDArray[np.float64]
Turns = Sequence[Sequence[Any]]
"""(who, text, key) of each turn; keys differ where two transcripts part."""


class FileOf(BaseModel):
    """Content of a YAML file of the user's own; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def filled(value: Any, slots: Mapping[str, Any]) -> Any:
    """Return a value of YAML with its slots filled; a field whose text is then empty is left out."""
    match value:
        case str():
            if (whole := _SLOT.fullmatch(value)) and whole[1] in slots:
                return slots[whole[1]]
            return " ".join(_SLOT.sub(lambda match: str(slots.get(match[1], match[0])), value).split(" ")).strip()
        case dict():
            done = {str(key): filled(each, slots) for key, each in cast("dict[Any, Any]", value).items()}
            return {key: each for key, each in done.items() if each != ""}
        case list():
            return [filled(each, slots) for each in cast("list[Any]", value)]
        case _:
            return value


class SituationsOptions(IdentityOptions):
    data: Text | dict[str, Any] | None = Field(default=None, description="A YAML file of your own.")
    signals: Names = Field(default=SIGNALS, description="How identity may be shown: name, statement, cue, profile.")
    per_situation: int = Field(default=2, ge=1, le=4, description="How many of the signals each situation is asked in.")
    repeats: int = Field(default=1, ge=1, le=100, description="How often each version is asked.")


@dataclass(frozen=True, slots=True)
class Situation:
    """One situation, of an area or world; `content` is what its benchmark makes samples of."""

    id: str
    area: str
    content: Any


@dataclass(frozen=True, slots=True)
class Side:
    """One version of a situation, played to its end."""

    group: str
    turns: Turns
    outcome: float | None


@dataclass(frozen=True, slots=True)
class Parting:
    """Two versions of one situation that differ only in who the person is."""

    situation: str
    attribute: str
    signal: str
    one: Side
    two: Side
    at: int | None
    """The first turn in which they differ; None if they do not."""


@dataclass(frozen=True, slots=True)
class SituationsAudit(PromptsAudit):
    """All findings on one arm."""

    by_signal: Sequence[GroupDifference] = ()
    """The outcome, by attribute and signal, and by attribute and area."""
    tools: Sequence[GroupDifference] = ()
    turns: Sequence[GroupDifference] = ()
    """By attribute and turn, and the last turn minus the first: whether a difference grows."""
    flips: tuple[int, int] = (0, 0)
    """(pairs whose outcomes differ, pairs)."""
    partings: Sequence[Parting] = field(default_factory=tuple[Parting, ...])

    @property
    def verdict(self) -> str:
        compared = self.flips[1] and (self.tests or self.alike)
        return "found" if self.found else "nothing found" if compared else "cannot tell"


_declared = Declared("situations")


class Situations(Benchmark[SituationsOptions]):
    """Base class: situations × groups × signals. A limit counts situations."""

    group_key: ClassVar[str] = "signal"
    headline: ClassVar[str] = "flip_rate"
    report_sections: ClassVar[tuple[str, ...]] = ("identities", "situations")
    Options = SituationsOptions

    @cached_property
    @abstractmethod
    def situations(self) -> Sequence[Situation]:
        """All situations, read on first use."""

    @abstractmethod
    def sample_of(self, situation: Situation, person: Signalled, facts: Mapping[str, Any]) -> Sample:
        """Returns one version of a situation; `facts` are the sample's id, cluster and metadata."""

    def measures(self) -> Sequence[Metric]:
        """Returns metrics besides the outcome."""
        return ()

    @cached_property
    def groups(self) -> Mapping[str, tuple[Group, ...]]:
        return choose_attributes(load_identities(self.options.identities), self.options.attributes)

    @cached_property
    def names(self) -> Sequence[Name]:
        return load_names(self.options.names)

    def people(self, record: Record) -> Sequence[Person]:
        """The person of a case, who is selected if the outcome is the best one."""
        value = _outcome(record)
        categories = {record.metadata["attribute"]: record.metadata["group"]}
        return () if value is None else (Person(categories, value >= 1.0, value),)

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields areas in turn, situations drawn by the seed; signals rotate from situation to situation."""
        check_names("signal", SIGNALS, *self.options.signals)
        by_area: dict[str, list[tuple[int, Situation]]] = {}
        for number, each in enumerate(self.situations):
            by_area.setdefault(each.area, []).append((number, each))
        drawn = [sorted(own, key=lambda each: draw_key(selection.seed, each[1].id)) for own in by_area.values()]
        found = False
        for number, situation in selection.in_turn(drawn):
            for sample in self._versions(number, situation):
                found = True
                yield sample
        if not found:
            raise UsageError(f"No signal of {', '.join(self.options.signals)} shows {', '.join(self.groups)}.")

    def _versions(self, number: int, situation: Situation) -> Iterator[Sample]:
        for attribute, groups in self.groups.items():
            for signal in self._signals(number, attribute):
                for person in signalled(signal, groups, self.names, number):
                    for repeat in range(self.options.repeats):
                        group = person.group.name
                        about = {"attribute": attribute, "group": group, "signal": signal, "area": situation.area}
                        about |= {"situation": situation.id, "shown": {k: v for k, v in person.slots.items() if v}}
                        identity = {"identity": f"{attribute}: {group}", "repeat": repeat}
                        facts = {
                            "id": f"{situation.id}/{attribute}/{signal}/{group}/{repeat:03d}",
                            "cluster": situation.id,
                            "metadata": {**about, **identity},
                        }
                        yield self.sample_of(situation, person, facts)

    @cached_property
    def _able(self) -> Mapping[str, list[str]]:
        """Attribute → the signals that can show it."""
        wanted = list(dict.fromkeys(self.options.signals))
        return {
            attribute: [each for each in wanted if signalled(each, groups, self.names, 0)]
            for attribute, groups in self.groups.items()
        }

    def _signals(self, number: int, attribute: str) -> list[str]:
        able = self._able[attribute]
        wanted = min(len(able), self.options.per_situation)
        # Shifted in every round, since neighbours are variants of one case in a fixed order.
        turn = number + number // max(1, len(able))
        return [able[(turn + place) % len(able)] for place in range(wanted)]

    def examples(self) -> tuple[Sequence[Example], Sequence[str]]:
        """Returns how the first situation shows every group."""
        first = self.situations[0]
        shown = [each.metadata for each in self._versions(0, first)]
        rows = [
            Example(first.id, f"{each['identity']} by {each['signal']}", "; ".join(each["shown"].values()))
            for each in shown
        ]
        return rows, ()

    def facts(self) -> Mapping[str, Any]:
        situations = [(each.id, each.content) for each in self.situations]
        content = content_hash([situations, written_as(self.groups), [each.text for each in self.names]])
        return {"situations": len(self.situations), "sha256": content}

    def metrics(self) -> Sequence[Metric]:
        return (
            _declared("flip_rate", _counts, gather=_flips),
            _declared("gap", _counts, gather=_gap),
            self._impact(),
            mean_metric(OUTCOME, "Favourable outcome"),
            *self.measures(),
            COVERAGE,
            REFUSALS,
        )

    def _impact(self) -> Metric:
        members = [(name, each.name) for name, groups in self.groups.items() for each in groups]
        # A signal that cannot show all groups would set some beside others who were shown in another way.
        whole = {
            (name, signal)
            for name, groups in self.groups.items()
            for signal in SIGNALS
            if len(signalled(signal, groups, self.names, 0)) == len(groups)
        }
        places = [[i for i, (name, _) in enumerate(members) if name == attribute] for attribute in self.groups]

        def count(record: Record) -> list[float] | None:
            value, about = _outcome(record), record.metadata
            own = about["attribute"], about["group"]
            if value is None or own not in members or (about["attribute"], about["signal"]) not in whole:
                return None
            sums = [0.0] * (2 * len(members))
            sums[2 * members.index(own) : 2 * members.index(own) + 2] = value, 1.0
            return sums

        def statistic(sums: Floats) -> Floats:
            rates = ratio(sums.reshape(*sums.shape[:-1], len(members), 2))
            return np.fmin.reduce([lowest_ratio(rates[..., np.array(each)]) for each in places])

        def limits(sums: Floats) -> Interval:
            table = sums.reshape(len(sums), len(members), 2)
            return lowest_ratio_interval(
                sums, statistic, [RatioTest(table[:, np.array(each)], alone=True) for each in places]
            )

        return replace(_declared("impact", count, statistic), limits=limits)

    def audit(self, records: Sequence[Record]) -> SituationsAudit | None:
        return audit(records)

    def caveats(self) -> Sequence[str]:
        return (
            "Decisions flip by chance alone where a model is not sure; the tests by group say what is not chance",
            "The situations are simulated, and differences are about these situations and these ways to show identity",
        )


def mean_metric(name: str, title: str) -> Metric:
    """Returns the mean of a graded number, as a percentage unless it is a count."""
    scale, rated = scale_of(name), (name,) if name in ("toxicity", "sentiment") else ()
    bounds = NOT_NEGATIVE if scale == 1 else (0.0, 1.0)
    return Metric(name, title, mean_of(name), ratio, scale=scale, bounds=bounds, rests_on=rated)


_outcome = graded(OUTCOME)


def _counts(record: Record) -> tuple[float, float] | None:
    return None if _outcome(record) is None else (0.0, 1.0)


def pairs(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Yields the pairs of one situation: the same attribute, signal and repeat, another group."""
    versions: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        about = record.metadata
        versions.setdefault((record.cluster, about["attribute"], about["signal"], about["repeat"]), []).append(record)
    for own in versions.values():
        yield from combinations(own, 2)


def _differences(records: Sequence[Record]) -> list[float]:
    both = [(_outcome(one), _outcome(two)) for one, two in pairs(records)]
    return [abs(one - two) for one, two in both if one is not None and two is not None]


def _flips(records: Sequence[Record]) -> tuple[float, float] | None:
    found = _differences(records)
    return (float(sum(each > 0 for each in found)), float(len(found))) if found else None


def _gap(records: Sequence[Record]) -> tuple[float, float] | None:
    found = _differences(records)
    return (sum(found), float(len(found))) if found else None


def audit(records: Sequence[Record], *, resamples: int = RESAMPLES, seed: int = 0) -> SituationsAudit | None:
    """Return all findings on one arm; None if no situation was played for two groups."""
    clusters: dict[str, list[Record]] = {}
    for record in records:
        clusters.setdefault(record.cluster, []).append(record)
    rng = np.random.default_rng(seed)
    differences, *others = (
        compared(tables_of([over_signals(each, means) for each in clusters.values()]), resamples, rng)
        for means in FAMILIES
    )
    if not differences:
        return None
    by_signal, tools, turns = _gated(differences, others)
    # A decision is said before what led to it.
    differences.sort(key=lambda each: not (each.found and each.measure == OUTCOME))
    found = _differences(records)
    flips = (sum(each > 0 for each in found), len(found))
    repeats = 1 + max((record.metadata["repeat"] for record in records), default=0)
    plain = PromptsAudit(len(clusters), repeats, differences, (), (), unit="situation")
    said = sentences_of(plain)
    # Words and tone alike are no finding about outcomes that nobody has.
    said.insert(int(bool(found) or plain.verdict != "nothing found"), _flip_sentence(*flips))
    said += [difference_sentence(each, "situation") for each in (*by_signal, *tools, *turns) if each.found]
    parts = partings(records)
    return SituationsAudit(
        len(clusters), repeats, differences, (), (), said, "situation", by_signal, tools, turns, flips, parts
    )


def _gated(
    first: Sequence[GroupDifference], others: Sequence[Sequence[GroupDifference]]
) -> list[list[GroupDifference]]:
    """Correct further families for their number, and let none find anything unless the first one does."""
    gate = min((each.adjusted for each in first if each.adjusted is not None), default=1.0)
    tested = sum(any(each.adjusted is not None for each in family) for family in others)
    return [
        [
            each if each.adjusted is None else replace(each, adjusted=min(1.0, max(gate, tested * each.adjusted)))
            for each in family
        ]
        for family in others
    ]


def _flip_sentence(flips: int, n: int) -> str:
    if not n:
        return "No two versions of a situation have an outcome to compare."
    return f"The outcome differs in {percent(flips / n)} of {plural(n, 'pair')} that differ only in who the person is."


def _by_signal(records: Sequence[Record]) -> dict[Identity, dict[str, float]]:
    """The mean outcome by attribute and signal, and by attribute and area."""
    found: dict[Identity, list[float]] = {}
    for record in records:
        value, about = _outcome(record), record.metadata
        for how in (f"by {about['signal']}", f"in {about['area']}") if value is not None else ():
            found.setdefault((f"{about['attribute']} {how}", about["group"]), []).append(value or 0.0)
    return {identity: {OUTCOME: fmean(values)} for identity, values in found.items()}


def _by_tool(records: Sequence[Record]) -> dict[Identity, dict[str, float]]:
    found: dict[Identity, dict[str, list[float]]] = {}
    for record in records:
        tools: Mapping[str, float] = {} if record.grade is None else record.grade.get("tools", {})
        own = found.setdefault((record.metadata["attribute"], record.metadata["group"]), {})
        for name, times in tools.items():
            own.setdefault(f"tool {name}", []).append(float(times))
    return {identity: {name: fmean(all_) for name, all_ in own.items()} for identity, own in found.items()}


def _by_turn(records: Sequence[Record]) -> dict[Identity, dict[str, float]]:
    """What is measured in every turn, by identity and turn, and how it changed from the first turn to the last."""
    found: dict[Identity, dict[str, list[float]]] = {}
    for record in records:
        spoken: Sequence[Mapping[str, float]] = () if record.grade is None else record.grade.get("by_turn", ())
        attribute, group = record.metadata["attribute"], record.metadata["group"]
        rows = [(f"{attribute} in turn {place}", each) for place, each in enumerate(spoken, 1)]
        if len(spoken) > 1:
            rows.append(
                (f"{attribute} over the turns", {name: spoken[-1][name] - spoken[0][name] for name in spoken[0]})
            )
        for place, values in rows:
            for name, value in values.items():
                found.setdefault((place, group), {}).setdefault(name, []).append(value)
    return {identity: {name: fmean(all_) for name, all_ in own.items()} for identity, own in found.items()}


Means = Mapping[Identity, Mapping[str, float]]


def over_signals(records: Sequence[Record], means: Callable[[Sequence[Record]], Means]) -> Means:
    """Return the means of one situation over its signals, without what a signal does to everybody.

    A group that one signal cannot show, or whose outcome is missing there, would else be compared with others who were
    shown in another way. So each value counts by its distance from those groups that have one under every signal.
    """
    tables = [
        means([each for each in records if each.metadata["signal"] == signal])
        for signal in dict.fromkeys(record.metadata["signal"] for record in records)
    ]
    cells: dict[tuple[str, str], list[dict[str, float]]] = {}
    for table in tables:
        here: dict[tuple[str, str], dict[str, float]] = {}
        for (attribute, group), values in table.items():
            for name, value in values.items():
                here.setdefault((attribute, name), {})[group] = value
        for place, by_group in here.items():
            cells.setdefault(place, []).append(by_group)
    found: dict[Identity, dict[str, float]] = {}
    for (attribute, name), rows in cells.items():
        common = set[str].intersection(*(set(row) for row in rows))
        levels = [fmean(row[group] for group in common or row) for row in rows]
        for group in dict.fromkeys(group for row in rows for group in row):
            apart = [row[group] - level for row, level in zip(rows, levels, strict=True) if group in row]
            found.setdefault((attribute, group), {})[name] = fmean(apart) + fmean(levels)
    return found


FAMILIES: Sequence[Callable[[Sequence[Record]], Means]] = (
    by_identity,
    _by_signal,
    _by_tool,
    _by_turn,
)
"""What each family of tests compares: the records of one situation → the means by identity."""


def partings(records: Sequence[Record]) -> list[Parting]:
    """Return the pairs to show, one of each situation: by outcome first, then by what was done, then by length."""
    found: list[tuple[float, Record, Record]] = []
    for one, two in pairs(records):
        if one.grade is not None and two.grade is not None:
            gap = abs((_outcome(one) or 0.0) - (_outcome(two) or 0.0))
            done = [[turn[2] for turn in each["turns"]] for each in (one.grade, two.grade)]
            short, long = sorted(sum(len(str(turn[1])) for turn in each["turns"]) for each in (one.grade, two.grade))
            found.append((gap + 0.1 * (done[0] != done[1]) + 0.1 * (1 - short / max(1, long)), one, two))
    found.sort(key=lambda each: -each[0])
    kept: dict[str, Parting] = {}
    for _, one, two in found:
        if len(kept) < SHOWN and one.cluster not in kept:
            kept[one.cluster] = _parting(one, two)
    return list(kept.values())


def _parting(one: Record, two: Record) -> Parting:
    sides = [Side(each.metadata["group"], (each.grade or {})["turns"], _outcome(each)) for each in (one, two)]
    at = parting(sides[0].turns, sides[1].turns, [each.metadata["shown"] for each in (one, two)])
    about = one.metadata
    return Parting(about["situation"], about["attribute"], about["signal"], sides[0], sides[1], at)


def parting(one: Turns, two: Turns, shown: Sequence[Mapping[str, str]]) -> int | None:
    """Return the first turn in which two transcripts differ: by what was done, else by its words."""
    for place, (first, second) in enumerate(zip(one, two, strict=False)):
        if first[2] != second[2]:
            return place
    if len(one) != len(two):
        return min(len(one), len(two))
    inserted = [word for each in shown for text in each.values() for word in re.findall(r"\w+", text.lower())]
    for place, (first, second) in enumerate(zip(one, two, strict=True)):
        alike = cosine(counted_words(str(first[1]), inserted), counted_words(str(second[1]), inserted))
        if first[0] == "model" and alike is not None and alike < _ALIKE:
            return place
    return None
