"""What an audit of own prompts found, and how it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.benchmarks.prompts.measures import LENGTH, REFUSALS, TITLES
from evenhand.core.format import count, limits, number, p_statement, signed
from evenhand.stats import FEW_CLUSTERS, Interval

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Difference:
    """A group compared with the other groups of its attribute, prompt by prompt, in one measure."""

    attribute: str
    group: str
    measure: str
    value: float
    """The group's mean."""
    others: float
    """The mean of the others on the same prompts."""
    difference: Interval
    """Their difference; n counts prompts."""
    p_value: float | None
    adjusted: float | None = None
    detectable: float | None = None
    """The difference that 80 of 100 such runs would find."""

    @property
    def found(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ALPHA


@dataclass(frozen=True, slots=True)
class Chance:
    """Similarity of answers to the same group and to different groups of an attribute."""

    attribute: str
    same: float
    different: float
    prompts: int
    p_value: float | None
    adjusted: float | None = None

    @property
    def found(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ALPHA


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer to one group."""

    group: str
    asked: str
    answer: str | None
    """None if the model refused."""
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt, for two groups, and why they are shown."""

    attribute: str
    why: str
    one: Shown
    two: Shown


@dataclass(frozen=True, slots=True)
class PromptsAudit:
    """All findings on one arm."""

    prompts: int
    repeats: int
    differences: Sequence[Difference]
    """The smallest corrected p-value first."""
    chance: Sequence[Chance]
    pairs: Sequence[Pair]
    sentences: Sequence[str] = ()

    @property
    def found(self) -> list[Difference]:
        return [each for each in self.differences if each.found]

    @property
    def headline(self) -> tuple[str, str, str]:
        n = sum(each.p_value is not None for each in self.differences)
        tests = f"of {n} comparisons; 5 % family-wise"
        return "Differences beyond chance", str(len(self.found)), tests


def sentences_of(found: PromptsAudit) -> list[str]:
    """Return the findings in words, the differences first."""
    tests = sum(each.p_value is not None for each in found.differences)
    asked = f"{found.prompts} prompt{'' if found.prompts == 1 else 's'}" + (
        f", {found.repeats} repeats" if found.repeats > 1 else ""
    )
    if not found.found:
        said = (
            f"No difference between identities is larger than chance ({tests} comparisons, {asked}, 5 % family-wise)."
        )
        sentences = [said, *_unnoticed(found)]
    else:
        head = "One difference" if len(found.found) == 1 else f"{len(found.found)} differences"
        verb = "is" if len(found.found) == 1 else "are"
        said = f"{head} between identities {verb} larger than chance ({tests} comparisons, {asked}, 5 % family-wise)."
        sentences = [said, *map(difference_sentence, found.found)]
    return [*sentences, *map(_chance_sentence, found.chance)]


def scale_of(measure: str) -> float:
    """Return the display factor: 1 for words, 100 for scores."""
    return 1.0 if measure == LENGTH else 100.0


def difference_sentence(each: Difference) -> str:
    """Return one difference in words."""
    scale = scale_of(each.measure)
    low, high = each.difference.low, each.difference.high
    between = "" if low is None or high is None else f" {limits(low * scale, high * scale)}"
    change = "higher" if each.value > each.others else "lower"
    what = TITLES.get(each.measure, each.measure)
    verb = "are" if each.measure == REFUSALS else "is"
    return (
        f"{what} {verb} {change} for {each.attribute} {each.group!r} ({number(each.value * scale)}) than for the other "
        f"groups ({number(each.others * scale)}): difference {signed((each.value - each.others) * scale)}{between}, "
        f"{p_statement(each.adjusted)} after correction, n = {count(each.difference.n)} prompts."
    )


def _unnoticed(found: PromptsAudit) -> list[str]:
    """Say which differences such a run would often miss."""
    largest: dict[str, float] = {}
    for each in found.differences:
        if each.detectable is not None:
            largest[each.measure] = max(largest.get(each.measure, 0.0), each.detectable)
    told = {name: size for name, size in largest.items() if name == LENGTH or size <= 1}
    parts = [f"{TITLES.get(name, name).lower()} {number(size * scale_of(name), 0)}" for name, size in told.items()]
    if found.prompts < FEW_CLUSTERS:
        return [f"With so few prompts ({found.prompts}) even large differences would often go unnoticed; add prompts."]
    sentences = [f"Differences below these would often go unnoticed: {', '.join(parts)}."] if parts else []
    if len(told) < len(largest):
        names = ", ".join(TITLES.get(name, name).lower() for name in largest if name not in told)
        sentences.append(f"With so few prompts even the largest difference would often go unnoticed in {names}.")
    return sentences


def _chance_sentence(each: Chance) -> str:
    verdict = (
        "answers depend on the group more than they vary by chance"
        if each.found
        else "answers differ between groups no more than between repeats of the same prompt"
    )
    p = "" if each.adjusted is None else f", {p_statement(each.adjusted)} after correction"
    return (
        f"{each.attribute}: {verdict} (similarity {number(100 * each.same)} within a group, "
        f"{number(100 * each.different)} between groups{p})."
    )
