"""The research questions of the MABRF paper: paired changes for each, their claims, and the correlation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evenhand.data.bbq import CATEGORIES
from evenhand.papers.base import (
    RELEASED,
    Finding,
    Grid,
    PaperCell,
    PaperClaim,
    PaperColumn,
    PaperRow,
    PaperTable,
    kept,
    moves,
    published,
    unless,
    untold,
)
from evenhand.papers.mabrf.tables import (
    ACCURACIES,
    CLOSED,
    OPEN,
    WITH,
    WITHOUT,
    PooledArm,
    find_arm,
    models_in,
    presets_in,
    searched,
    searches_in,
    sides,
)
from evenhand.papers.reading import FIRST, ArmPair, PairedArms, PairedDifference, read_paired_arms
from evenhand.stats import spearman, student_t_quantile
from evenhand.studies.results import Estimate, estimate_text
from evenhand.studies.tally import ALL

_RATING_MARGIN = 0.5
"""A loss of relevancy of less than this counts as none, of a scale from 1 to 10."""
_CHANGES = (
    PaperColumn("accuracy", "Accuracy", "points, higher is better"),
    PaperColumn("accuracy_ambig", "Accuracy, ambiguous", "points"),
    PaperColumn("accuracy_disambig", "Accuracy, disambiguated", "points"),
    PaperColumn("bias_ambig", "Distance of bias from 0, ambiguous", "lower is better"),
    PaperColumn("bias_disambig", "Distance of bias from 0, disambiguated", "lower is better"),
    PaperColumn("reasoning_bias", "Reasoning bias", "of 10, lower is better"),
    PaperColumn("relevancy", "Relevancy", "of 10, higher is better"),
)
_FACTS = (
    PaperColumn("exact_match", "Exact match", "points, higher is better"),
    PaperColumn("f1", "F1", "points, higher is better"),
    PaperColumn("f1_has_answer", "F1, with an answer", "points"),
    PaperColumn("f1_no_answer", "F1, without one", "points"),
)
_FEWEST_POINTS = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """The arms of both runs, and their pairs."""

    choices: Sequence[PooledArm]
    answers: Sequence[PooledArm]
    on_choices: PairedArms
    on_answers: PairedArms

    def side(self, model: str, preset: str, side: str) -> str | None:
        """Returns the id of MABRF's arm without or with search."""
        found = find_arm(self.choices, model, sides(preset)[side].fits)
        return found.id if found else None

    def against_first(
        self, model: str, preset: str, side: str, metric: str, group: str = ALL
    ) -> PairedDifference | None:
        """Returns the change from the first answers and reasonings to the final ones."""
        arm = self.side(model, preset, side)
        return self.on_choices.difference(f"{arm}{FIRST}", arm, metric, group) if arm else None

    def by_search(self, model: str, preset: str, metric: str) -> PairedDifference | None:
        """Returns the change from MABRF without search to MABRF with it."""
        ids = [self.side(model, preset, side) for side in (WITHOUT, WITH)]
        return self.on_choices.difference(ids[0], ids[1], metric)

    def of_facts(self, model: str, preset: str, metric: str) -> PairedDifference | None:
        """Returns the change from answers by memory to answers by search, beside the paper's smallest gain."""
        found = self.on_answers.difference(*_facts_pair(self.answers, model, preset), metric)
        return found and found.beside(_smallest_gain(metric))


def _smallest_gain(metric: str) -> float | None:
    """Returns the smallest gain by search that the paper publishes for a model of its own."""
    table = published("mabrf").tables["table4"]
    models = dict.fromkeys(name.rpartition(", ")[0] for name in table)
    rows = [(table[f"{each}, baseline"], table[f"{each}, with search"]) for each in models]
    gains = [after[metric] - before[metric] for before, after in rows if metric in before and metric in after]
    return min((gain for gain in gains if gain > 0), default=None)


def read_compared(folders: Mapping[str, Path], arms: Mapping[str, Sequence[PooledArm]], names: ArmPair) -> Compared:
    """Reads the pairs of both runs; `names` are the runs of BBQ and of SQuAD."""
    choices, answers = (arms.get(name, []) for name in names)
    empty = Compared(choices, answers, PairedArms(), PairedArms())
    wanted: list[ArmPair] = []
    for model in models_in(choices):
        for preset in presets_in(choices):
            ids = [empty.side(model, preset, side) for side in (WITHOUT, WITH)]
            wanted += [(f"{each}{FIRST}", each) for each in ids if each]
            wanted += [(ids[0], ids[1])] if ids[0] and ids[1] else []
    facts = [
        (before, after)
        for model in models_in(answers)
        for preset in searches_in(answers)
        for before, after in [_facts_pair(answers, model, preset)]
        if before and after
    ]
    return Compared(
        choices,
        answers,
        read_paired_arms(folders[names[0]], wanted, "category", ACCURACIES) if wanted else PairedArms(),
        read_paired_arms(folders[names[1]], facts, "group") if facts else PairedArms(),
    )


def _facts_pair(arms: Sequence[PooledArm], model: str, preset: str) -> tuple[str | None, str | None]:
    """Returns the arms without and with search; as released, both have the passage."""
    without = OPEN if preset == RELEASED else CLOSED
    before, after = (find_arm(arms, model, each.fits) for each in (without, searched(preset)))
    return (before.id if before else None, after.id if after else None)


# --- the table of changes ---


def table_of_questions(found: Compared) -> PaperTable:
    """Returns a grid of paired changes for each research question."""
    models, presets = models_in(found.choices), presets_in(found.choices)
    first = [
        PaperRow(
            model, f"{side}, {preset}", [_cell(found.against_first(model, preset, side, c.name)) for c in _CHANGES]
        )
        for model in models
        for preset in presets
        for side in (WITHOUT, WITH)
    ]
    search = [
        PaperRow(model, preset, [_cell(found.by_search(model, preset, column.name)) for column in _CHANGES])
        for model in models
        for preset in presets
    ]
    facts = [
        PaperRow(model, preset, [_cell(found.of_facts(model, preset, column.name)) for column in _FACTS])
        for model in models_in(found.answers)
        for preset in searches_in(found.answers)
    ]
    return published("mabrf").table(
        "questions",
        [
            Grid("RQ1 and RQ3: from the first answer and reasoning to the final ones", _CHANGES, first, "Model", 2),
            Grid("RQ2: from MABRF without search to MABRF with it", _CHANGES, search, "Model", 2),
            Grid("RQ4: from answers without search to answers with it", _FACTS, facts, "Model", 2),
        ],
    )


def _cell(difference: PairedDifference | None) -> PaperCell:
    if difference is None:
        return PaperCell()
    effect = difference.effect
    return PaperCell(Estimate(effect.metric, effect.group, effect.difference, effect.low, effect.high, effect.n))


# --- the correlation of bias and accuracy ---


def table_of_correlation(found: Compared) -> PaperTable:
    """Returns Spearman's correlation over categories, for each arm and over all models."""
    columns = [PaperColumn("correlation", "Correlation", "−1 to 1")]
    rows = [PaperRow(name, setting, [PaperCell(_correlation(points))]) for name, setting, points in _clouds(found)]
    return published("mabrf").table("correlation", [Grid("BBQ", columns, rows, "Model", digits=2)])


CategoryPoint = tuple[str, float, float]
"""(category, reduction of bias, gain in accuracy)."""


def _clouds(found: Compared) -> Iterator[tuple[str, str, list[CategoryPoint]]]:
    """Yields (model, setting, points), first all models together where there are several."""
    models = models_in(found.choices)
    for preset in presets_in(found.choices):
        for side in (WITHOUT, WITH):
            each = {model: _points(found, model, preset, side) for model in models}
            if len(models) > 1:
                yield "All models", f"{side}, {preset}", [point for points in each.values() for point in points]
            for model, points in each.items():
                yield model, f"{side}, {preset}", points


def _points(found: Compared, model: str, preset: str, side: str) -> list[CategoryPoint]:
    points: list[CategoryPoint] = []
    for category in CATEGORIES:
        bias = found.against_first(model, preset, side, "reasoning_bias", category)
        right = found.against_first(model, preset, side, "accuracy", category)
        if bias and right and bias.effect.difference is not None and right.effect.difference is not None:
            points.append((category, -bias.effect.difference, right.effect.difference))
    return points


def _correlation(points: Sequence[CategoryPoint]) -> Estimate:
    """Returns the correlation with a jackknife interval over categories; undefined where one side is constant."""
    categories = list(dict.fromkeys(category for category, _, _ in points))
    n = len(categories)
    value = _spearman(points) if n >= _FEWEST_POINTS else None
    if value is None:
        return Estimate("correlation", ALL, None, None, None, n)
    without = [_spearman([point for point in points if point[0] != each]) for each in categories]
    known = [each for each in without if each is not None]
    if len(known) < n:
        return Estimate("correlation", ALL, value, None, None, n)
    error = float(np.sqrt((n - 1) / n * np.sum((np.array(known) - np.mean(known)) ** 2)))
    reach = student_t_quantile(0.975, n - 1) * error
    return Estimate("correlation", ALL, value, max(-1.0, value - reach), min(1.0, value + reach), n)


def _spearman(points: Sequence[CategoryPoint]) -> float | None:
    return spearman([x for _, x, _ in points], [y for _, _, y in points])


# --- the claims ---

_OWN_JUDGE = "The judge that ends the loop also rates its result, so the rating falls even if it is chance"
"""Why a lower rating of the final reasoning proves nothing: the loop goes on until the rating is low."""


def claims(found: Compared) -> list[PaperClaim]:
    """Returns the verdicts on all claims, model by model and preset by preset."""
    made: list[PaperClaim] = []
    for model in models_in(found.choices):
        for preset in presets_in(found.choices):
            made += [
                PaperClaim(text, place, model, *finding, preset)
                for text, place, finding in _on_bbq(found, model, preset)
            ]
    made += [
        PaperClaim(
            "Search makes answers to factual questions better",
            "RQ4, Table 4",
            model,
            *_on_facts(found, model, preset),
            preset,
        )
        for model in models_in(found.answers)
        for preset in searches_in(found.answers)
    ]
    return made


def _on_facts(found: Compared, model: str, preset: str) -> Finding:
    # Abstaining alone raises the scores over all questions, since half of them have no answer.
    differences = [found.of_facts(model, preset, metric) for metric in ("exact_match", "f1", "f1_has_answer")]
    fault = found.on_answers.fault(*_facts_pair(found.answers, model, preset))
    verdict, why = unless(fault, moves(differences, "higher"))
    arm = find_arm(found.answers, model, searched(preset).fits)
    # Without the provider the claim cannot be read: a corpus may not have the answers.
    where = str(arm.key.options.get("provider", "")) if arm else ""
    return verdict, f"Searched: {where}. {why}" if where else why


def _on_bbq(found: Compared, model: str, preset: str) -> Iterator[tuple[str, str, Finding]]:
    """Yields (claim, where the paper makes it, the finding)."""
    ids = [found.side(model, preset, side) for side in (WITHOUT, WITH)]
    fault = found.on_choices.fault(ids[0], ids[1])

    def changed(side: str, *metrics: str) -> list[PairedDifference | None]:
        known = [found.against_first(model, preset, side, metric) for metric in metrics]
        return [each and replace(each, title=f"{each.title} {side}") for each in known]

    def searched(*metrics: str) -> list[PairedDifference | None]:
        return [found.by_search(model, preset, metric) for metric in metrics]

    one, two, three = "RQ1", "RQ2", "RQ3, Figure 4"
    yield (
        "The loop makes the reasoning less biased",
        one,
        unless(_OWN_JUDGE, moves(changed(WITHOUT, "reasoning_bias"), "lower")),
    )
    yield (
        "The loop makes the answers less biased, in both contexts",
        one,
        moves(changed(WITHOUT, "bias_ambig", "bias_disambig"), "lower"),
    )
    yield "The final answers are at least as accurate as the first", one, kept(changed(WITHOUT, "accuracy"))
    yield "Search makes the reasoning less biased", two, unless(fault, moves(searched("reasoning_bias"), "lower"))
    yield (
        "Search makes the answers less biased, above all on ambiguous questions",
        f"{two}, Table 3",
        unless(fault, moves(searched("bias_ambig"), "lower")),
    )
    yield "With search, answers are at least as accurate", two, kept(searched("accuracy"))
    yield (
        "Rephrasing does not make the reasoning less relevant",
        three,
        kept([*changed(WITHOUT, "relevancy"), *changed(WITH, "relevancy")], _RATING_MARGIN),
    )
    yield (
        "Less bias in the reasoning goes with no loss of accuracy",
        "RQ3",
        kept([*changed(WITHOUT, "accuracy"), *changed(WITH, "accuracy")]),
    )
    yield (
        "How much bias is lost does not tell how much accuracy is gained",
        "Section 5.1, correlation",
        _uncorrelated(found, model, preset),
    )


def _uncorrelated(found: Compared, model: str, preset: str) -> Finding:
    points = [point for side in (WITHOUT, WITH) for point in _points(found, model, preset, side)]
    estimate = _correlation(points)
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return untold("the correlation is undefined: too few categories, or nothing changed in all of them")
    why = f"Spearman's correlation over categories is {estimate_text(estimate, 2)}"
    if estimate.low > 0 or estimate.high < 0:
        return "fails", why
    small = max(abs(estimate.low), abs(estimate.high)) < _SMALL
    return ("holds", why) if small else untold(f"{why}; a correlation of {_SMALL} is not excluded")


_SMALL = 0.5
"""A correlation that is surely smaller than this counts as none."""
