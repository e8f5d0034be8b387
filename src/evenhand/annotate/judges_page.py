"""Judges against people as an HTML page, and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.annotate.judges import Agreement, ArmEstimates, Estimates, JudgesAgainstPeople
from evenhand.annotate.ratings import BANDS
from evenhand.core.format import DASH, count, interval, number, plural
from evenhand.data.rubrics import POINTS
from evenhand.show.chart import Lane, Plot, PlotRow, legend_mark
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, footnote, opening, section, sentences
from evenhand.show.table import Cell, Column, Content, Table, columns, heat, html_of, interval_cell
from evenhand.stats import Interval

BAND_NAMES = (f"0–{BANDS[0] - 1}", f"{BANDS[0]}–{BANDS[1] - 1}", f"{BANDS[1]}–{POINTS}")
_SOURCES = ("judge alone", "people alone", "corrected", "Rogan–Gladen")
_AGREEMENT = columns(
    "Judge", "Scale", "n", "Judge − people", "Error", "Pearson", "Spearman", "Kappa", "People's kappa", "Sensitivity",
    "Specificity", words=2,
)  # fmt: skip


def agreement_table(title: str, found: JudgesAgainstPeople, agreements: Sequence[Agreement]) -> Table:
    """The agreement of judges with people, a row for each scale."""
    return Table(title, _AGREEMENT, [_agreement_row(found, each) for each in agreements])


def _agreement_row(found: JudgesAgainstPeople, each: Agreement) -> list[Content]:
    return [
        each.judge,
        Cell(each.scale, html=found.title(each.scale)),
        count(each.answers),
        interval_cell(each.bias, sign=True),
        number(each.error),
        number(each.pearson, 2),
        number(each.spearman, 2),
        number(each.kappa, 2),
        number(each.people_kappa, 2),
        interval_cell(each.sensitivity, 100),
        interval_cell(each.specificity, 100),
    ]


def terminal_tables(found: JudgesAgainstPeople) -> list[Table]:
    """The agreement of each judge, and the corrected numbers of each arm."""
    title = f"Judges against {plural(found.raters, 'rater')}; yes: {found.threshold:g} or more"
    corrected = f"Corrected: {count(found.rated)} of {count(found.questions)} questions rated by people"
    return [agreement_table(title, found, found.agreements), _means_table(corrected, found, found.estimates)]


def judges_page(found: JudgesAgainstPeople) -> Page:
    """Return the page."""
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
