"""Tables 1 to 5 and Figure 4 of the MABRF paper, from the arms of its runs and the published numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from evenhand.benchmarks.base import Metric, graded, share_metric
from evenhand.core.types import Record, Sample
from evenhand.data.bbq import CATEGORIES
from evenhand.papers.base import (
    PRESETS,
    RELEASED,
    Bar,
    Figure,
    Finding,
    Grid,
    PaperCell,
    PaperClaim,
    PaperColumn,
    PaperRow,
    PaperTable,
    given,
    kept,
    moves,
    preset_of,
    published,
    unless,
    unshown,
    untold,
)
from evenhand.papers.reading import FIRST, ArmPair, PairedArms, PairedDifference, read_paired_arms, tally_up
from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import open_sources, told_metrics
from evenhand.stats import side_of, spearman, student_t_quantile, wilson
from evenhand.studies.results import Estimate, estimate_text
from evenhand.studies.tally import ALL, Tally, estimate

# --- the research questions of the MABRF paper: paired changes for each, their claims, and the correlation ---

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
_FEWEST_SHARE = 0.1
"""If fewer questions are rewritten or searched, a comparison shows nothing about that."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The arms of both runs, and their pairs."""

    choices: Sequence[PooledArm]
    answers: Sequence[PooledArm]
    on_choices: PairedArms
    on_answers: PairedArms
    counts: Mapping[str, ArmCounts] = field(default_factory=dict[str, "ArmCounts"])
    """Of the arms of the choices, by id."""

    def too_few(self, model: str, preset: str, side: str, what: Literal["rewritten", "searched"]) -> str:
        """Says that too few questions were rewritten or searched to show what that does; else nothing."""
        arm = self.counts.get(self.side(model, preset, side) or "")
        count = getattr(arm, what) if arm else 0
        if arm is None or count >= _FEWEST_SHARE * arm.questions:
            return ""
        where = "" if what == "searched" else f" {side}"
        return f"{count:,} of {arm.questions:,} questions {'was' if count == 1 else 'were'} {what}{where}"

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


def read_compared(
    folders: Mapping[str, Path],
    arms: Mapping[str, Sequence[PooledArm]],
    names: ArmPair,
    counts: Mapping[str, ArmCounts],
) -> Compared:
    """Reads the pairs of both runs; `names` are the runs of BBQ and of SQuAD, `counts` those of BBQ's arms."""
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
        for preset in presets_in(answers, SEARCH)
        for before, after in [_facts_pair(answers, model, preset)]
        if before and after
    ]
    return Compared(
        choices,
        answers,
        read_paired_arms(folders[names[0]], wanted, "category", ACCURACIES) if wanted else PairedArms(),
        read_paired_arms(folders[names[1]], facts, "group") if facts else PairedArms(),
        counts,
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
        for preset in presets_in(found.answers, SEARCH)
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
        for preset in presets_in(found.answers, SEARCH)
    ]
    return made


def _on_facts(found: Compared, model: str, preset: str) -> Finding:
    # Abstaining alone raises the scores over all questions, since half of them have no answer.
    all_, answerable = (
        moves([found.of_facts(model, preset, metric) for metric in metrics], "higher")
        for metrics in (("exact_match", "f1"), ("f1_has_answer",))
    )
    fault = found.on_answers.fault(*_facts_pair(found.answers, model, preset))
    if all_[0] == "holds":
        fault = fault or unshown("A gain where there is an answer", answerable)
    verdict, why = unless(fault, all_)
    why = why if answerable[1] in why else f"{why}. {answerable[1]}"
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
    unchanged = found.too_few(model, preset, WITHOUT, "rewritten")
    yield (
        "The loop makes the reasoning less biased",
        one,
        given(unchanged, unless(_OWN_JUDGE, moves(changed(WITHOUT, "reasoning_bias"), "lower"))),
    )
    yield (
        "The loop makes the answers less biased, in both contexts",
        one,
        given(unchanged, moves(changed(WITHOUT, "bias_ambig", "bias_disambig"), "lower")),
    )
    same = kept(changed(WITHOUT, "accuracy"))
    yield "The final answers are at least as accurate as the first", one, given(unchanged, same)
    missing = found.too_few(model, preset, WITH, "searched")
    yield (
        "Search makes the reasoning less biased",
        two,
        given(missing, unless(fault, moves(searched("reasoning_bias"), "lower"))),
    )
    yield (
        "Search makes the answers to ambiguous questions less biased",
        f"{two}, Table 3",
        given(missing, unless(fault, moves(searched("bias_ambig"), "lower"))),
    )
    yield "With search, answers are at least as accurate", two, given(missing, kept(searched("accuracy")))
    rewrites = [unchanged, found.too_few(model, preset, WITH, "rewritten")]
    yield (
        "Rephrasing does not make the reasoning less relevant",
        three,
        given(
            "; ".join(filter(None, rewrites)),
            kept([*changed(WITHOUT, "relevancy"), *changed(WITH, "relevancy")], _RATING_MARGIN),
        ),
    )
    less = moves([*changed(WITHOUT, "reasoning_bias"), *changed(WITH, "reasoning_bias")], "lower")
    same = kept([*changed(WITHOUT, "accuracy"), *changed(WITH, "accuracy")])
    yield (
        "Less bias in the reasoning goes with no loss of accuracy",
        "RQ3",
        given(unshown("Less bias", less), same),
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
    if side_of(estimate.low, estimate.high):
        return "fails", why
    small = max(abs(estimate.low), abs(estimate.high)) < _SMALL
    return ("holds", why) if small else untold(f"{why}; a correlation of {_SMALL} is not excluded")


_SMALL = 0.5
"""A correlation that is surely smaller than this counts as none."""


# --- the arms of MABRF's runs, pooled by any metadata key, and which row of which table each of them fills ---


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
        told = {each.id: told_metrics(runs, each.scorers, more, each.arm.method) for each in sources}
        tallies = {source: Tally(metrics, group_key) for source, metrics in told.items()}
        tally_up(sources, {source: [tally] for source, tally in tallies.items()}, ())
        metrics = {source: {each.name: each for each in some} for source, some in told.items()}
        return [PooledArm(each.id, each.arm.key, metrics[each.id], tallies[each.id]) for each in sources]


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


# --- rows ---

NAME = "mabrf"
WITHOUT, WITH = "without search", "with search"
SEARCHED = "_with_search"
"""Suffix of columns with search, in rows that have both."""
Metrics = Sequence[tuple[str, str, str]]
"""(name, title, hint) of metrics with two columns, without and with search."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A method setting with its own row or columns."""

    title: str
    method: str
    searches: bool = False
    preset: str = ""
    """The preset; empty for methods without one."""

    def fits(self, key: ArmKey) -> bool:
        searches = key.method == NAME and bool(key.options.get("search"))
        fitting = key.method == self.method and searches == self.searches
        return fitting and (not self.preset or preset_of(key) == self.preset)


def sides(preset: str) -> dict[str, Setting]:
    """Returns MABRF with a preset, without and with search."""
    return {side: Setting(f"MABRF {side}, {preset}", NAME, side == WITH, preset) for side in (WITHOUT, WITH)}


DEFAULT, COT = Setting("Default", "default"), Setting("Chain of thought", "cot")


def presets_in(arms: Sequence[PooledArm], method: str = NAME) -> list[str]:
    """Returns the presets of a method that were run."""
    found = {preset_of(arm.key) for arm in arms if arm.key.method == method}
    return [each for each in PRESETS if each in found]


CLOSED, OPEN = Setting("Closed book", "closed_book"), Setting("Open book", "default")
SEARCH = "search"


def searched(preset: str) -> Setting:
    """Returns the arm of SQuAD that searches, with a preset; as released, it has the passage as well."""
    beside = " and passage" if preset == RELEASED else ""
    return Setting(f"Search{beside}, {preset}", SEARCH, preset=preset)


def our_rows(arms: Sequence[PooledArm], settings: Sequence[Setting], columns: Sequence[PaperColumn]) -> list[PaperRow]:
    rows: list[PaperRow] = []
    for model in models_in(arms):
        for setting in settings:
            arm = find_arm(arms, model, setting.fits)
            cells = [PaperCell(arm.estimate(column.name) if arm else None) for column in columns]
            rows.append(PaperRow.if_run(model, setting.title, cells, ran=arm is not None))
    return rows


def both_sides(metrics: Metrics) -> list[PaperColumn]:
    """Returns the columns without search, then with search."""
    return [
        PaperColumn(name + (SEARCHED if side == WITH else ""), title, hint, side.capitalize())
        for side in (WITHOUT, WITH)
        for name, title, hint in metrics
    ]


def side_cells(arms: Sequence[PooledArm], model: str, preset: str, metrics: Metrics, group: str) -> list[PaperCell]:
    cells: list[PaperCell] = []
    for setting in sides(preset).values():
        arm = find_arm(arms, model, setting.fits)
        cells += [PaperCell(arm.estimate(name, group) if arm else None) for name, _, _ in metrics]
    return cells


# --- Tables 1 and 2: the sizes of BBQ's categories, and the kinds of SQuAD's answers ---

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Age": ("Age",),
    "Disability": ("Disability_status",),
    "Gender": ("Gender_identity",),
    "Nationality": ("Nationality",),
    "Physical Appearance": ("Physical_appearance",),
    "Race/Ethnicity": ("Race_ethnicity",),
    "Religion": ("Religion",),
    "Sexual Orientation": ("Sexual_orientation",),
    "Socioeconomic Status": ("SES",),
    "Race × gender, race × status": ("Race_x_gender", "Race_x_SES"),
}
"""The paper's groups → categories of BBQ; the last is not in its table."""
_KINDS: Mapping[str, tuple[str, ...]] = {
    "Date": ("Date",),
    "Other number": ("Other Numeric",),
    "Name of a person, place or thing": ("Person", "Location", "Other Entity"),
    "Phrase": ("Common Noun Phrase", "Adjective Phrase", "Verb Phrase", "Clause", "Other"),
}
"""Kinds that rules can tell → kinds of the paper, which people told."""
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"\b(?:{_MONTH})\b.*\d|\d.*\b(?:{_MONTH})\b|^(?:in )?(?:1\d|20)\d\d(?:s|[-–]\d+)?$")
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|hundred|thousand|million|billion)\b",
    re.IGNORECASE,
)


def table_one(folder: Path | None) -> PaperTable:
    """Returns the sizes of BBQ as published, and how many questions were asked here."""
    asked = Counter(sample.metadata["category"] for sample in _samples(folder))
    columns = [
        PaperColumn("bbq", "BBQ", "questions"),
        PaperColumn("bbq_hard", "BBQ-Hard", "questions"),
        PaperColumn("asked", "Asked here", "questions"),
    ]
    rows: list[PaperRow] = []
    for name, categories in _GROUPS.items():
        numbers = published("mabrf").tables["table1"].get(name, {})
        count = sum(asked[category] for category in categories)
        ours = PaperCell(Estimate("asked", name, float(count), None, None, count) if asked else None)
        cells = [PaperCell(None, numbers.get("bbq")), PaperCell(None, numbers.get("bbq_hard")), ours]
        rows.append(PaperRow(name, "", cells, ours=bool(asked), published_as=name if numbers else ""))
    return published(NAME).table("table1", [Grid("BBQ", columns, rows, "Social group", digits=0)])


def table_two(folder: Path | None) -> PaperTable:
    """Returns the kinds of answers in SQuAD as published, and of the questions asked here, told by rules."""
    kinds = Counter(kind_of(answer) for sample in _samples(folder) if (answer := _gold(sample)))
    total = kinds.total()
    rows: list[PaperRow] = []
    for name, theirs in _KINDS.items():
        paper = sum(published("mabrf").row("table2", each)["share"] for each in theirs)
        ours = _share(kinds[name], total) if total else None
        rows.append(
            PaperRow(name, "", [PaperCell(ours, round(paper, 1))], ours=total > 0, published_as=", ".join(theirs))
        )
    return published(NAME).table(
        "table2", [Grid("SQuAD v2", [PaperColumn("share", "Share", "per cent of answers")], rows, "Kind of answer")]
    )


def _share(count: int, total: int) -> Estimate:
    return replace(Estimate.of(wilson(count, total).times(100), total, "share", ALL), successes=count)


def kind_of(answer: str) -> str:
    """Tells the kind of an answer by rules."""
    text = answer.strip()
    if _DATE.search(text):
        return "Date"
    if _NUMBER.search(text):
        return "Other number"
    words = [word for word in re.findall(r"[^\W\d_][\w'’.-]*", text) if len(word) > 3]
    return "Name of a person, place or thing" if words and all(w[0].isupper() for w in words) else "Phrase"


def _gold(sample: Sample) -> str:
    answers: list[str] = sample.target or []
    return answers[0] if answers else ""


def _samples(folder: Path | None) -> list[Sample]:
    if folder is None:
        return []
    with open_sources([folder]) as (runs, _):
        return [sample for _, sample in runs[0].store.samples()]


# --- Tables 3, 4 and 5 ---

_TABLE_THREE = published(NAME).columns("table3")
_TABLE_FOUR = published(NAME).columns("table4")
_TABLE_FIVE = (
    ("first_accuracy", "ACC₀", ""),
    ("accuracy", "ACC₁", ""),
    ("legacy_bias_before", "BIAS₀", "legacy"),
    ("legacy_bias", "BIAS₁", "legacy"),
    ("joint_success", "Joint success", ""),
)
_OFFICIAL = (
    ("first_bias_ambig", "Ambiguous, first", "0 is best"),
    ("bias_ambig", "Ambiguous, final", "0 is best"),
    ("first_bias_disambig", "Disambiguated, first", "0 is best"),
    ("bias_disambig", "Disambiguated, final", "0 is best"),
)


ACCURACIES = (
    share_metric("first_accuracy", "Accuracy of the first answer", graded("first_correct")),
    share_metric("accuracy", "Accuracy", graded("correct")),
)
"""Accuracy over both contexts, as in Table 5; the benchmark separates the contexts."""


def table_three(arms: Sequence[PooledArm], sentences: Sequence[str]) -> PaperTable:
    settings = [DEFAULT, COT, *(setting for preset in presets_in(arms) for setting in sides(preset).values())]
    rows = [
        *our_rows(arms, settings, _TABLE_THREE),
        *published(NAME).rows("table3", [each.name for each in _TABLE_THREE]),
    ]
    return published(NAME).table(
        "table3", [Grid("BBQ", _TABLE_THREE, rows, "Model", lanes=("bias_ambig", "accuracy_ambig"))], sentences
    )


def table_four(arms: Sequence[PooledArm], sentences: Sequence[str]) -> PaperTable:
    rows = [
        *our_rows(arms, [CLOSED, *map(searched, presets_in(arms, SEARCH)), OPEN], _TABLE_FOUR),
        *published(NAME).rows("table4", [each.name for each in _TABLE_FOUR]),
    ]
    return published(NAME).table("table4", [Grid("SQuAD v2", _TABLE_FOUR, rows, "Model", lanes=("f1",))], sentences)


def table_five(arms: Sequence[PooledArm]) -> PaperTable:
    grids: list[Grid] = []
    for model in models_in(arms):
        for preset in presets_in(arms):
            name = f"{model}, preset {preset}"
            grids.append(_by_category(arms, model, preset, f"{name}: both contexts", _TABLE_FIVE))
            grids.append(_by_category(arms, model, preset, f"{name}: BBQ's bias by context", _OFFICIAL))
    return published(NAME).table("table5", [*grids, *_published_by_category()])


# --- by category ---


def _by_category(arms: Sequence[PooledArm], model: str, preset: str, name: str, metrics: Metrics) -> Grid:
    rows = [PaperRow("All categories", "", side_cells(arms, model, preset, metrics, ALL))]
    rows += [PaperRow(_shown(each), "", side_cells(arms, model, preset, metrics, each)) for each in CATEGORIES]
    return Grid(name, both_sides(metrics), rows, "Category")


def _published_by_category() -> list[Grid]:
    paper = published(NAME)
    columns = both_sides(_TABLE_FIVE[:4])
    by_model: dict[str, list[PaperRow]] = {}
    for name, numbers in paper.tables["table5"].items():
        model, _, category = name.partition(", ")
        reason = paper.reproducible["table5"].get(name) or _doubt(numbers)
        shares = [numbers[column.name] for column in columns]
        by_model.setdefault(model, []).append(PaperRow.of_paper(_shown(category), shares, name=name, reason=reason))
    return [
        Grid(f"{model}: as published", columns, [_mean_row(rows), *rows], "Category")
        for model, rows in by_model.items()
    ]


def _mean_row(rows: Sequence[PaperRow]) -> PaperRow:
    """Returns the mean of the paper's rows, to compare with our row over all categories."""
    columns = zip(*([cell.published or 0.0 for cell in row.cells] for row in rows), strict=True)
    return PaperRow.of_paper("All categories", map(fmean, columns), "mean of the rows, by us")


def _doubt(numbers: Mapping[str, float]) -> str:
    """Returns why the row's bias cannot be reproduced."""
    repeats = [
        side
        for side, ending in ((WITHOUT, ""), (WITH, SEARCHED))
        if abs(numbers[f"legacy_bias{ending}"] - (numbers[f"accuracy{ending}"] - 100)) < 1e-6
    ]
    if not repeats:
        return "Bias: no, it is not BBQ's score."
    return f"Bias: no, BIAS₁ is ACC₁ less 100{f' {repeats[0]}' if len(repeats) == 1 else ''}."


def _shown(category: str) -> str:
    return category.replace("Race_ethnicity", "Race/ethnicity").replace("_x_", " × ").replace("_", " ")


# --- Figure 4: how the judge's ratings of the reasoning change, question by question ---

BINS = ("−3 or less", "−2", "−1", "0", "+1", "+2", "+3 or more")
"""Bins of the rounded change of relevancy."""
_REASONING = (
    ("relevancy_change", "Relevancy, change", "higher is better"),
    ("reasoning_bias_before", "Bias before", "1 is best"),
    ("reasoning_bias", "Bias after", "1 is best"),
)


def bin_metrics() -> list[Metric]:
    """Returns one metric per bin: the share of questions in it."""
    bins = [share_metric(_bin_name(i), f"Relevancy, change {name}", _in_bin(i)) for i, name in enumerate(BINS)]
    return [replace(each, rests_on=("relevancy",)) for each in bins]


def bin_of(change: float) -> int:
    """Returns the bin of a change of relevancy, rounded to the nearest whole number."""
    middle = len(BINS) // 2
    return min(max(floor(change + 0.5) + middle, 0), len(BINS) - 1)


def _bin_name(index: int) -> str:
    return f"relevancy_change_bin_{index}"


def _in_bin(index: int) -> Callable[[Record], bool | None]:
    def success(record: Record) -> bool | None:
        grade = record.grade
        if grade is None or "relevancy" not in grade or "relevancy_before" not in grade:
            return None
        return bin_of(grade["relevancy"] - grade["relevancy_before"]) == index

    return success


def table_of_reasoning(arms: Sequence[PooledArm]) -> PaperTable:
    columns = both_sides(_REASONING)
    ours = [
        PaperRow(model, f"preset {preset}", side_cells(arms, model, preset, _REASONING, ALL))
        for model in models_in(arms)
        for preset in presets_in(arms)
    ]
    rows = [*ours, *published(NAME).rows("figure4", [each.name for each in columns])]
    return published(NAME).table("figure4_means", [Grid("BBQ", columns, rows, "Model", digits=2)])


def figure_four(arms: Sequence[PooledArm]) -> Figure:
    """Returns the histograms without and with search: of all models together as in the paper, then of each."""
    bars: list[Bar] = []
    models = models_in(arms)
    for preset in presets_in(arms):
        for side, setting in sides(preset).items():
            fitting = [arm for arm in arms if setting.fits(arm.key)]
            groups = {"All models": fitting} if len(models) > 1 else {}
            groups |= {model: [arm for arm in fitting if arm.model == model] for model in models}
            for name, some in groups.items():
                if some and len(shares := _bins(pooled(some))) == len(BINS):
                    bars.append(Bar(name, f"{side}, {preset}", shares))
    bars.sort(key=lambda bar: bar.name != "All models")
    return Figure(
        "figure4",
        "Figure 4: change of relevancy",
        "The share of questions, in per cent, by how far the judge's rating of relevancy moved from the first "
        "reasoning to the one that was kept, rounded to whole points.",
        BINS,
        bars,
        "histogram",
    )


def _bins(arm: PooledArm) -> list[Estimate]:
    found = [arm.estimate(_bin_name(i)) for i in range(len(BINS))]
    return [each for each in found if each is not None]


# --- how many questions were rewritten or searched; an arm whose search finds nothing behaves as without search ---


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """How many of its questions an arm rewrote and searched."""

    label: str
    questions: int
    rewritten: int
    searched: int
    in_vain: Counter[str]
    """Why searches found no evidence, with the number of questions."""


def read_counts(folder: Path) -> dict[str, ArmCounts]:
    """Reads the counts of each arm of a run, by its id."""
    found: dict[str, ArmCounts] = {}
    with open_sources([folder]) as (_, sources):
        for source in sources:
            n, in_vain = Counter[str](), Counter[str]()
            for _, outcome in source.store.answers(source.arm.number):
                about: dict[str, Any] = outcome["notes"].get("search") or {}
                has_searched = bool(about.get("passes"))
                n.update(questions=1, rewritten=len(outcome["snapshots"]) > 1, searched=has_searched)
                if has_searched and not about["with_facts"]:
                    in_vain.update(about.get("problems", ["nothing was found"])[:1])
            found[source.id] = ArmCounts(source.label, n["questions"], n["rewritten"], n["searched"], in_vain)
    return found


def search_warnings(arms: Mapping[str, ArmCounts]) -> list[str]:
    """Returns a sentence for every arm whose search found nothing for some questions."""
    return [
        f"{arm.label}: the search found no evidence for {arm.in_vain.total():,} of {arm.searched:,} questions. "
        f"Most common reason: {arm.in_vain.most_common(1)[0][0].rstrip('.')}."
        for arm in arms.values()
        if arm.in_vain
    ]
