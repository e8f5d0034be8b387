"""The section on framings: does a model report fewer biases in a text that is presented as its own?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenhand.benchmarks.base import EstimateLike
from evenhand.benchmarks.framing import FRAMINGS, MEASURES, PAIRS, Ordering, ordering
from evenhand.core.format import count, difference, finite, interval
from evenhand.show.markup import Html
from evenhand.show.page import section, sentences
from evenhand.show.sections import Section, add_section
from evenhand.show.view import View, arm_block
from evenhand.studies.results import ArmResult, StudyResult


def framings(view: View) -> Html | None:
    """Return the sentences of every arm."""
    lead = "The same texts were presented as written by the model itself, by a language model, or by a competitor."
    by_arm = [(arm, said) for arm in view.arms if (said := framing_sentences(arm))]
    if not by_arm:
        return None
    blocks = [arm_block(view, arm, sentences(said)) for arm, said in by_arm]
    return section("framing", "Framings", lead, blocks)


def _sentences(study: StudyResult) -> Iterator[str]:
    return (f"{arm.label}: {sentence}" for arm in study.arms for sentence in framing_sentences(arm))


_HOLDS = {"yes": "holds", "no": "does not hold", "undecided": "is undecided"}


def framing_sentences(arm: ArmResult) -> list[str]:
    """Return, per measure, the level of each framing, the paired differences and whether the paper's ordering holds.

    False alarms follow, because a model that suspects everything a competitor wrote would otherwise look perceptive.
    """
    orderings = [each for measure in MEASURES if (each := ordering(measure, arm.estimate)) is not None]
    return [*map(_ordering_sentence, orderings), *_false_alarms(arm), *_discrimination(arm)]


def _ordering_sentence(order: Ordering) -> str:
    digits = 2 if order.measure in ("rating", "named") else 1
    paired = ", ".join(
        f"{one} − {two} {_change(each, digits)}"
        for (one, two), each in zip(PAIRS, (*order.steps, order.whole), strict=True)
    )
    return (
        f"{MEASURES[order.measure]}: the order {' < '.join(FRAMINGS)} {_HOLDS[order.holds]}: "
        f"{_levels(order.levels, digits)}; paired by text (n = {count(order.whole.n)}): {paired}."
    )


def _false_alarms(arm: ArmResult) -> list[str]:
    """State how often unbiased texts were called biased."""
    levels = [arm.estimate(f"false_alarms_{framing}") for framing in FRAMINGS]
    known = [each for each in levels if each is not None and finite(each.value) is not None]
    if len(known) < len(levels):
        return []
    sentence = f"Unbiased texts that were called biased, %: {_levels(known, 1)}"
    change = arm.estimate("false_alarms_competitor_minus_own")
    if change is not None and finite(change.value) is not None:
        sentence += f"; paired by text (n = {count(change.n)}): competitor − own {_change(change, 1)}"
    return [f"{sentence}."]


def _discrimination(arm: ArmResult) -> list[str]:
    """State whether the model distinguishes biased from unbiased texts at all."""
    apart = arm.estimate("apart")
    if apart is None or finite(apart.value) is None:
        return []
    sentence = f"Yes to biased minus yes to unbiased texts, all framings, points: {_change(apart, 1)}."
    if apart.low is not None and apart.low > 0:
        return [sentence]
    return [
        f"{sentence} The model does not distinguish biased from unbiased texts, so the numbers above say little about "
        "its ability to see biases."
    ]


def _levels(levels: Sequence[EstimateLike], digits: int) -> str:
    named = zip(FRAMINGS, levels, strict=True)
    return ", ".join(
        f"{name} {each.as_count or interval(each.value, each.low, each.high, digits)}" for name, each in named
    )


def _change(change: EstimateLike, digits: int) -> str:
    return difference(change.value, change.low, change.high, digits)


add_section(Section("framing", "Framings", framings, sentences=_sentences))
