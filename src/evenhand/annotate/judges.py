"""Judges against people: how far the judges of a run agree with its raters, and what the run says once corrected.

Judge and people rate the same answers on the same scale, 0 to 100. People rate a part that was drawn at random, judges
all answers. The corrected numbers are people's, for all answers: see `evenhand.stats.corrected`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from evenhand.annotate.ratings import BAND_NAMES, Sheet, band, import_ratings, people_means, read_key, read_sheets
from evenhand.annotate.sheets import rubric_in
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.format import DASH, count, interval, number, plural
from evenhand.data.rubrics import POINTS
from evenhand.runs.scores import final_scores
from evenhand.runs.stored import ArmSource, StoredRun, open_sources
from evenhand.show.chart import Lane, Plot, PlotRow, legend_mark
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, footnote, opening, section, sentences
from evenhand.show.table import Cell, Column, Content, Table, columns, heat, html_of, interval_cell
from evenhand.stats import (
    Corrected,
    Interval,
    clustered_share,
    cohen_interval,
    corrected_mean,
    mean_interval,
    rogan_gladen,
    spearman_interval,
)

SCALE = (0.0, float(POINTS))
CHANGE = (-float(POINTS), float(POINTS))
FEW_RATED = 50
"""From this many rated answers on, the intervals were checked by simulation (`python bench/run.py judges`)."""

POOR_KAPPA = 0.4
"""Fleiss, Levin and Paik (2003) call agreement poor below it."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a judge agrees with people on one scale, over the rated answers of all arms."""

    judge: str
    scale: str
    attribute: str
    """What the judge rates, compared with the scale."""
    answers: int
    unjudged: int
    """Rated answers without a score by the judge; they are left out."""
    bias: Interval
    """Judge minus people, in points."""
    error: float
    """The mean absolute difference, in points."""
    spearman: Interval
    kappa: float | None
    """Cohen's kappa of judge and people on the three bands."""
    people_kappa: float | None
    """Fleiss' kappa of the raters among themselves."""
    confusion: Sequence[Sequence[int]]
    """Answers by people's band (rows) and the judge's (columns)."""
    sensitivity: Interval
    """Of the answers at or above the threshold by people, the share that the judge puts there."""
    specificity: Interval
    """Of the answers below the threshold by people, the share that the judge puts there."""
    limits: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    """error, kappa and people_kappa with their limits."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """One number of an arm: by the judge alone, by people alone, and corrected."""

    judge: Interval
    people: Interval
    corrected: Corrected
    rogan_gladen: Corrected | None = None
    """Of shares only."""


@dataclass(frozen=True, slots=True)
class ArmEstimates:
    """What is known of one arm on one scale with one judge."""

    judge: str
    scale: str
    arm: str
    mean: Estimates
    difference: Estimates | None
    """Against the baseline on the same questions; None for the baseline itself."""
    share: Estimates
    """The share of answers at or above the threshold, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class JudgesAgainstPeople:
    """All judges of the runs on all scales."""

    arms: Sequence[str]
    baseline: str
    raters: int
    threshold: float
    questions: int
    """Questions that all arms answered: what the corrected numbers are about."""
    rated: int
    """Questions that people rated."""
    agreements: Sequence[Agreement]
    estimates: Sequence[ArmEstimates]
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scale → its title."""

    def title(self, scale: str) -> str:
        return self.titles.get(scale, scale)

    def note(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    @property
    def judges(self) -> list[str]:
        return list(dict.fromkeys(each.judge for each in self.agreements))

    @property
    def sentences(self) -> list[str]:
        """What to know first, each a whole sentence."""
        found: list[str] = []
        for each in self.agreements:
            if each.bias.side and each.bias.estimate is not None:
                side = "above" if each.bias.estimate > 0 else "below"
                points = f"{number(abs(each.bias.estimate))} points {side} people"
                found.append(f"{each.judge} rates {each.scale} {points} on average.")
        raters = {each.scale: each.limits.get("people_kappa", Interval()) for each in self.agreements}
        for scale, people in raters.items():
            if people.estimate is not None and people.estimate < POOR_KAPPA:
                kappa = interval(people.estimate, people.low, people.high, 2)
                found.append(
                    f"On {scale} the raters agree little beyond chance among themselves (Fleiss' kappa {kappa}), so "
                    "how far a judge agrees with them says little."
                )
        if self.rated < FEW_RATED:
            found.append(
                f"Only {self.rated:,} questions were rated. Below {FEW_RATED}, corrected intervals may be too narrow."
            )
        return found


def judges_against_people(
    folder: Path,
    runs: Sequence[Path],
    *,
    scorers: Sequence[str] = (),
    scales: Mapping[str, str] | None = None,
    threshold: float = POINTS / 2,
) -> JudgesAgainstPeople:
    """Compare the scores that `runs` have stored with the filled sheets of `folder`; no model is called.

    `scorers` names some of the stored scorers (default: all that rate the scales), `scales` what is compared with each
    scale of people, such as {"BS": "toxicity"} (default: the criteria of the rubric that people used).
    """
    if not 0 < threshold <= POINTS:
        raise UsageError(f"The threshold must be above 0 and at most {POINTS}, not {threshold:g}.")
    key, people = read_key(folder), import_ratings(folder)
    rubric = rubric_in(key)
    wanted = dict(scales or {scale.short: scale.name for scale in rubric.criteria})
    if unknown := [short for short in wanted if short not in rubric.shorts]:
        raise UsageError(f"People rated {', '.join(rubric.shorts)}, not {unknown[0]!r}.")
    sheets = [*read_sheets(folder, key).values()]
    with open_sources(runs) as (opened, sources):
        _check_runs(key, opened, sources)
        answered = _answered(sources)
        judges = _judges(opened, scorers, set(wanted.values()))
        values = {name: _scores(judge, opened, sources) for name, judge in judges.items()}
    clusters = {sample: cluster for (_, sample), cluster in answered.items()}
    common = [sample for sample in clusters if all((arm, sample) in answered for arm in key["arms"])]
    agreements: list[Agreement] = []
    estimates: list[ArmEstimates] = []
    for judge, (short, attribute) in product(judges, wanted.items()):
        scored = {place: POINTS * found[attribute] for place, found in values[judge].items() if attribute in found}
        if not scored:
            continue
        rated = _rated(key, sheets, short)
        ratings = _Ratings(key["arms"], key["baseline"], common, clusters, scored, rated, threshold)
        if (agreement := ratings.agreement(judge, short, attribute, people.agreement[short])) is not None:
            agreements.append(agreement)
            estimates += [ratings.estimates(judge, short, arm) for arm in key["arms"]]
    if not agreements:
        raise PlanError("None of the rated answers has a score by a judge, so there is nothing to compare.")
    return JudgesAgainstPeople(
        key["arms"],
        key["baseline"],
        people.raters,
        threshold,
        len(common),
        key["samples"],
        agreements,
        estimates,
        {each.short: f"{each.title} ({each.short}, {each.better} is better)" for each in rubric.criteria},
    )


Place = tuple[str, str]
"""(arm, sample id)."""


@dataclass(frozen=True, slots=True)
class _Ratings:
    """The ratings of one judge and of people on one scale."""

    arms: Sequence[str]
    baseline: str
    common: Sequence[str]
    clusters: Mapping[str, str]
    scored: Mapping[Place, float]
    rated: Mapping[Place, float]
    threshold: float

    def agreement(self, judge: str, scale: str, attribute: str, people: Interval) -> Agreement | None:
        places = [place for place in self.rated if place in self.scored]
        if not places:
            return None
        x, y = [self.scored[place] for place in places], [self.rated[place] for place in places]
        clusters = [self.clusters[sample] for _, sample in places]
        bands = [(band(rated), band(judged)) for judged, rated in zip(x, y, strict=True)]
        error = mean_interval([abs(a - b) for a, b in zip(x, y, strict=True)], clusters, bounds=SCALE)
        kappa = cohen_interval([rated for rated, _ in bands], [judged for _, judged in bands], clusters)
        size = range(len(BAND_NAMES))
        return Agreement(
            judge,
            scale,
            attribute,
            len(places),
            len(self.rated) - len(places),
            mean_interval([a - b for a, b in zip(x, y, strict=True)], clusters, bounds=CHANGE),
            error.estimate or 0.0,
            spearman_interval(x, y, clusters),
            kappa.estimate,
            people.estimate,
            [[bands.count((row, column)) for column in size] for row in size],
            *(self._recognised(x, y, clusters, is_yes=is_yes) for is_yes in (True, False)),
            limits={"error": error, "kappa": kappa, "people_kappa": people},
        )

    def _recognised(self, x: Sequence[float], y: Sequence[float], clusters: Sequence[str], *, is_yes: bool) -> Interval:
        """The share of people's yes (or no) that the judge recognises."""
        rated = zip(x, y, clusters, strict=True)
        return clustered_share(
            (cluster, self._yes(judged) == is_yes) for judged, people, cluster in rated if self._yes(people) == is_yes
        )

    def estimates(self, judge: str, scale: str, arm: str) -> ArmEstimates:
        own = [sample for sample in self.common if (arm, sample) in self.scored]
        both = [sample for sample in own if (self.baseline, sample) in self.scored]
        return ArmEstimates(
            judge,
            scale,
            arm,
            self._mean(own, lambda values, sample: values.get((arm, sample)), SCALE),
            None if arm == self.baseline else self._mean(both, lambda v, s: self._change(v, arm, s), CHANGE),
            self._share(own, arm),
        )

    def _change(self, values: Mapping[Place, float], arm: str, sample: str) -> float | None:
        first, second = values.get((self.baseline, sample)), values.get((arm, sample))
        return None if first is None or second is None else second - first

    def _mean(
        self,
        samples: Sequence[str],
        value: Callable[[Mapping[Place, float], str], float | None],
        bounds: tuple[float, float],
    ) -> Estimates:
        judged = [value(self.scored, sample) or 0.0 for sample in samples]
        rated = [value(self.rated, sample) for sample in samples]
        clusters = [self.clusters[sample] for sample in samples]
        known = [(each, cluster) for each, cluster in zip(rated, clusters, strict=True) if each is not None]
        return Estimates(
            mean_interval(judged, clusters, bounds=bounds),
            mean_interval([each for each, _ in known], [cluster for _, cluster in known], bounds=bounds),
            corrected_mean(judged, rated, clusters, bounds=bounds),
        )

    def _share(self, samples: Sequence[str], arm: str) -> Estimates:
        values = self._mean(samples, lambda v, s: self._as_yes(v.get((arm, s))), (0.0, 1.0))
        judged = [self._yes(self.scored[arm, sample]) for sample in samples]
        people = [self.rated.get((arm, sample)) for sample in samples]
        rated = [None if each is None else self._yes(each) for each in people]
        found = rogan_gladen(judged, rated, [self.clusters[sample] for sample in samples])
        return Estimates(values.judge, values.people, values.corrected, found)

    def _yes(self, value: float) -> bool:
        return value >= self.threshold

    def _as_yes(self, value: float | None) -> float | None:
        return None if value is None else float(self._yes(value))


def _check_runs(key: Mapping[str, Any], opened: Sequence[StoredRun], sources: Sequence[ArmSource]) -> None:
    """Refuse runs that are not those whose answers were rated."""
    rated = [each["identity"] for each in key["runs"]]
    if [run.store.get("identity") for run in opened] != rated or [each.label for each in sources] != key["arms"]:
        names = " ".join(each["run"] for each in key["runs"])
        raise PlanError(f"People rated answers of other runs. Name the rated runs, in this order: {names}.")


def _answered(sources: Sequence[ArmSource]) -> dict[Place, str]:
    """The cluster of every answer."""
    found: dict[Place, str] = {}
    for source in sources:
        for place, sample in source.store.samples():
            stored = source.store.outcome(place, source.arm.number)
            if stored is not None and stored[0] == "graded":
                found[source.label, sample.id] = sample.cluster or sample.id
    return found


def _judges(opened: Sequence[StoredRun], wanted: Sequence[str], attributes: set[str]) -> dict[str, str]:
    """The scorers to compare, which all runs have: name → id."""
    known: Mapping[str, Any] = opened[0].store.get("scorers") or {}
    if wanted:
        chosen = [run.scorers([spec])[-1] for run in opened[:1] for spec in wanted]
    else:
        chosen = [scorer for scorer, about in known.items() if attributes & set(about["attributes"])]
    found = [each for each in chosen if all(each in (run.store.get("scorers") or {}) for run in opened)]
    if not found:
        raise PlanError(
            f"{opened[0].directory} has no scores of {', '.join(sorted(attributes))} to compare; make them with "
            f"`evenhand run rescore {opened[0].directory} --scorer opinion:MODEL`."
        )
    specs = [str(known[each]["spec"]) for each in found]
    # Two versions of one scorer are told apart by their ids.
    return {each if specs.count(spec) > 1 else spec: each for spec, each in zip(specs, found, strict=True)}


def _scores(judge: str, opened: Sequence[StoredRun], sources: Sequence[ArmSource]) -> dict[Place, dict[str, float]]:
    found: dict[Place, dict[str, float]] = {}
    for run in opened:
        names = {number: sample.id for number, sample in run.store.samples()}
        labels = {source.arm.number: source.label for source in sources if source.store is run.store}
        for place, arm, values in final_scores(run.store, judge):
            found[labels[arm], names[place]] = values
    return found


def _rated(key: Mapping[str, Any], sheets: Sequence[Sheet], scale: str) -> dict[Place, float]:
    means = people_means(sheets, key["items"], scale)
    places = {name: (item["arm"], item["sample"]) for name, item in key["items"].items()}
    return {places[name]: value for name, value in means.items()}


_SOURCES = ("judge alone", "people alone", "corrected", "Rogan–Gladen")
_AGREEMENT = columns(
    "Judge", "Scale", "n", "Judge − people", "Error", "Spearman", "Kappa", "People's kappa", "Sensitivity",
    "Specificity", words=2,
)  # fmt: skip


def agreement_table(title: str, found: JudgesAgainstPeople, agreements: Sequence[Agreement]) -> Table:
    return Table(title, _AGREEMENT, [_agreement_row(found, each) for each in agreements])


def _agreement_row(found: JudgesAgainstPeople, each: Agreement) -> list[Content]:
    return [
        each.judge,
        Cell(each.scale, html=found.title(each.scale)),
        count(each.answers),
        interval_cell(each.bias, sign=True),
        interval_cell(each.limits.get("error", Interval())),
        interval_cell(each.spearman, digits=2),
        *(interval_cell(each.limits.get(name, Interval()), digits=2) for name in ("kappa", "people_kappa")),
        interval_cell(each.sensitivity, 100),
        interval_cell(each.specificity, 100),
    ]


def terminal_tables(found: JudgesAgainstPeople) -> list[Table]:
    """The agreement of each judge, and the corrected numbers of each arm."""
    title = f"Judges against {plural(found.raters, 'rater')}; yes: {found.threshold:g} or more"
    corrected = f"Corrected: {count(found.rated)} of {count(found.questions)} questions rated by people"
    return [agreement_table(title, found, found.agreements), _means_table(corrected, found, found.estimates)]


def judges_page(found: JudgesAgainstPeople) -> Page:
    lead = f"{plural(found.raters, 'person' if found.raters == 1 else 'rater')} rated the answers to "
    lead += f"{count(found.rated)} of {count(found.questions)} questions; {plural(len(found.judges), 'judge')} scored "
    lead += "all. Corrected numbers are what people would say of all answers: the judge gives breadth, people the "
    lead += "truth."
    first = opening(
        "Judges against people",
        "judges against people",
        tag("p", lead, class_="lead"),
        sentences(found.sentences, "verdicts") if found.sentences else None,
    )
    parts = [
        first,
        Part("agreement", "Agreement", _agreement(found)),
        Part("confusion", "Confusion", _confusion(found)),
        Part("corrected", "Corrected means", _means(found)),
        Part("shares", "Corrected shares", _shares(found)),
    ]
    return Page("Judges against people", parts, ("paper.css",))


def _agreement(found: JudgesAgainstPeople) -> Html:
    lead = f"Over the rated answers of all arms, on the scale from 0 to {POINTS}. Judge − people: how much higher the "
    lead += "judge rates. Error: the mean distance. Kappa is of the three bands, judge against the raters' mean; "
    lead += "next to it that of the raters among themselves, which no judge can be expected to exceed by much. "
    lead += f"Sensitivity and specificity: how often the judge says the same where people say {found.threshold:g} or "
    lead += "more, and where they say less."
    missing = sum(each.unjudged for each in found.agreements)
    note = f"{count(missing)} times a judge had no score for a rated answer; these are left out." if missing else None
    return section(
        "agreement",
        "Do the judges agree with people?",
        lead,
        [
            _by_judge(
                judge, agreement_table(f"Agreement with people: {judge}", found, own).only(range(1, len(_AGREEMENT)))
            )
            for judge in found.judges
            if (own := [each for each in found.agreements if each.judge == judge])
        ],
        footnote(note) if note else None,
    )


def _by_judge(judge: str, table: Table) -> Html:
    return tag("div", tag("h3", judge), html_of(table))


def _confusion(found: JudgesAgainstPeople) -> Html:
    lead = "Rows: the band of people's mean. Columns: the judge's band. Each row adds up to 100%; outlined: the same."
    figures = [_heat(each) for each in found.agreements]
    return section("confusion", "Who says what", lead, tag("div", figures, class_="multiples tables"))


def _heat(each: Agreement) -> Html:
    rows: list[list[Content]] = []
    for place, (name, counts) in enumerate(zip(BAND_NAMES, each.confusion, strict=True)):
        total = sum(counts)
        cells = [heat(n, total, right=place == column) for column, n in enumerate(counts)]
        rows.append([Cell(name, notes=(f"n = {count(total)}",)), *cells])
    title = f"{each.scale} by {each.judge}"
    heads = [Column("people", look="corner"), *map(Column, BAND_NAMES)]
    table = Table(f"{title}: bands of people and judge", heads, rows, look="heat")
    return tag("figure", tag("figcaption", title), html_of(table))


def _means(found: JudgesAgainstPeople) -> Html:
    lead = "Corrected by prediction-powered inference: people's mean on the rated answers, moved by what the judge "
    lead += "says about the others, with the weight that gives the narrowest interval (0: the judge is no help, 1: it "
    lead += "counts in full). 95 % intervals over questions, clustered by topic."
    return section(
        "corrected",
        "What the run says, corrected",
        lead,
        _legend(3),
        _charts(found, found.estimates),
        [
            _by_judge(judge, _means_table(f"Corrected means: {judge}", found, own).only(_SHOWN))
            for judge, own in _judged(found)
        ],
    )


_SHOWN = (2, 1, *range(3, 9))
"""Columns of the means on the page, where each judge has a table of its own."""


def _judged(found: JudgesAgainstPeople) -> list[tuple[str, list[ArmEstimates]]]:
    return [(judge, [each for each in found.estimates if each.judge == judge]) for judge in found.judges]


def _means_table(title: str, found: JudgesAgainstPeople, estimates: Sequence[ArmEstimates]) -> Table:
    changes = [f"{name}, against {found.baseline}" for name in ("Judge", "Corrected")]
    names = [name.capitalize() for name in _SOURCES[:3]]
    rows: list[list[Content]] = [
        [
            each.judge,
            each.scale,
            each.arm,
            *(interval_cell(one) for one in _all_of(each.mean)),
            number(each.mean.corrected.weight, 2),
            *(
                [DASH, DASH]
                if each.difference is None
                else [
                    interval_cell(each.difference.judge, sign=True),
                    interval_cell(each.difference.corrected.interval, sign=True),
                ]
            ),
        ]
        for each in estimates
    ]
    return Table(title, columns("Judge", "Scale", "Arm", *names, "Weight", *changes, words=3), rows)


def _shares(found: JudgesAgainstPeople) -> Html:
    lead = f"The share of answers that people rate {found.threshold:g} or more, in per cent. Rogan–Gladen computes it "
    lead += "from the judge's sensitivity and specificity alone, so it is wider; a dash: the judge is not shown to be "
    lead += "better than chance, or people said yes, or no, to every rated answer."
    names = [name.capitalize() for name in _SOURCES]
    heads = columns("Arm", "Scale", *names, "Weight", words=2)
    tables: list[Node] = []
    for judge, own in _judged(found):
        rows: list[list[Content]] = [
            [
                each.arm,
                each.scale,
                *(interval_cell(one, 100) for one in _all_of(each.share)),
                number(each.share.corrected.weight, 2),
            ]
            for each in own
        ]
        tables.append(_by_judge(judge, Table(f"Corrected shares: {judge}", heads, rows)))
    return section("shares", f"How many are rated {found.threshold:g} or more", lead, tables)


def _legend(size: int) -> Html:
    marks = [tag("li", legend_mark(place), name) for place, name in enumerate(_SOURCES[:size])]
    return tag("ul", marks, class_="legend", aria_label="Whose numbers")


def _charts(found: JudgesAgainstPeople, estimates: Sequence[ArmEstimates]) -> Html:
    figures: list[Node] = []
    for judge, scale in dict.fromkeys((each.judge, each.scale) for each in estimates):
        shown = [each for each in estimates if (each.judge, each.scale) == (judge, scale)]
        plot = Plot(found.title(scale), [_row(each) for each in shown], margin=2, axis_above=False)
        title = tag("figcaption", tag("strong", found.title(scale)), f" by {judge}")
        figures.append(tag("figure", title, plot.html()))
    return tag("div", figures, class_="multiples lanes")


def _row(each: ArmEstimates) -> PlotRow:
    lanes = [
        Lane(place, one.estimate, one.low, one.high, one.n, f"{each.arm}, {_SOURCES[place]}: {_shown(one)}")
        for place, one in enumerate(_all_of(each.mean))
    ]
    return PlotRow(each.arm, "", lanes)


def _all_of(found: Estimates) -> list[Interval]:
    extra = [] if found.rogan_gladen is None else [found.rogan_gladen.interval]
    return [found.judge, found.people, found.corrected.interval, *extra]


def _shown(found: Interval) -> str:
    return f"{interval(found.estimate, found.low, found.high)}, n = {count(found.n)}"
