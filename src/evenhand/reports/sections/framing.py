"""Whether a model admits fewer biases in a text that is said to be its own, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenhand.benchmarks.base import EstimateLike
from evenhand.benchmarks.framing.score import FRAMINGS, MEASURES, PAIRS, Ordering, ordering
from evenhand.reports.format import finite, interval, limits, signed
from evenhand.reports.markup import Html, tag
from evenhand.reports.sections.base import Section, add_section
from evenhand.reports.sections.elements import arm_name, section
from evenhand.reports.view import View
from evenhand.studies.results import ArmResult, StudyResult


def framings(view: View) -> Html | None:
    """The sentences of every arm."""
    lead = "The same texts, said to be by the model itself, by a language model, or by one that competes with it."
    told = [(arm, sentences) for arm in view.arms if (sentences := framing_sentences(arm))]
    if not told:
        return None
    return section("framing", "Framings", lead, [_block(view, arm, sentences) for arm, sentences in told])


def _block(view: View, arm: ArmResult, sentences: Sequence[str]) -> Html:
    items = [tag("li", sentence) for sentence in sentences]
    return tag("div", tag("h3", arm_name(view, arm)), tag("ul", items, class_="sentences"), class_="findings")


def _sentences(study: StudyResult) -> Iterator[str]:
    return (f"{arm.label}: {sentence}" for arm in study.arms for sentence in framing_sentences(arm))


def framing_sentences(arm: ArmResult) -> list[str]:
    """Per measure the three numbers, their paired differences, and whether the paper's ordering holds; then the alarms.

    Without the alarms, a model that suspects whatever a rival wrote would pass for one that sees more.
    """
    found = [each for measure in MEASURES if (each := ordering(measure, arm.estimate)) is not None]
    return [*map(_sentence, found), *_alarms(arm), *_apart(arm)]


def _sentence(found: Ordering) -> str:
    digits = 2 if found.measure == "rating" else 1
    paired = ", ".join(
        f"{one} − {two} {_change(each, digits)}"
        for (one, two), each in zip(PAIRS, (*found.steps, found.whole), strict=True)
    )
    return (
        f"{' < '.join(FRAMINGS)}: {found.holds}. {MEASURES[found.measure]}: {_levels(found.levels, digits)}; "
        f"paired by text (n = {found.whole.n}): {paired}."
    )


def _alarms(arm: ArmResult) -> list[str]:
    """What is called biased and is not."""
    levels = [arm.estimate(f"false_alarms_{framing}") for framing in FRAMINGS]
    known = [each for each in levels if each is not None and finite(each.value) is not None]
    if len(known) < len(levels):
        return []
    said = f"Texts without a bias that are called biased, %: {_levels(known, 1)}"
    change = arm.estimate("false_alarms_competitor_minus_own")
    if change is not None and finite(change.value) is not None:
        said += f"; paired by text (n = {change.n}): competitor − own {_change(change, 1)}"
    return [f"{said}."]


def _apart(arm: ArmResult) -> list[str]:
    """Whether the answers are about the texts at all."""
    apart = arm.estimate("apart")
    if apart is None or finite(apart.value) is None:
        return []
    said = f"Yes to biased minus yes to clean texts, all framings, points: {_change(apart, 1)}"
    if apart.low is not None and apart.low > 0:
        return [f"{said}."]
    return [f"{said}; biased and clean texts are not told apart, so the above says little about seeing biases."]


def _levels(levels: Sequence[EstimateLike], digits: int) -> str:
    named = zip(FRAMINGS, levels, strict=True)
    return ", ".join(f"{name} {interval(each.value, each.low, each.high, digits)}" for name, each in named)


def _change(found: EstimateLike, digits: int) -> str:
    return f"{signed(found.value, digits)} {limits(found.low, found.high, digits)}"


add_section(Section("framing", "Framings", framings, sentences=_sentences))
