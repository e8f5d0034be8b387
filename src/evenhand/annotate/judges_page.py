"""Judges against people as an HTML page, and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenhand.annotate.judges import Agreement, ArmEstimates, Estimates, JudgesAgainstPeople
from evenhand.annotate.ratings import BANDS
from evenhand.benchmarks.opinions import HIGHEST, opinion_scales
from evenhand.core.format import DASH, count, interval, limits, number, plural, share, signed
from evenhand.show.charts import Lane, legend_mark, reach, strip, tick_labels
from evenhand.show.charts.axis import Axis, axis_for
from evenhand.show.html import page
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import scrolling, section, table
from evenhand.show.tables import plain_table, safe_text
from evenhand.stats import Interval

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = ("page.css", "tables.css", "charts.css", "paper.css")
_SCRIPTS = ("page.js",)
_STEPS = 10
_TITLES = {scale.short: f"{scale.title} ({scale.short}, {scale.better} is better)" for scale in opinion_scales()}
BAND_NAMES = (f"0–{BANDS[0] - 1}", f"{BANDS[0]}–{BANDS[1] - 1}", f"{BANDS[1]}–{HIGHEST}")
_SOURCES = ("judge alone", "people alone", "corrected", "Rogan–Gladen")
AGREEMENT_HEAD = (
    "Judge", "Scale", "n", "Judge − people", "Error", "Pearson", "Spearman", "Kappa", "People's kappa", "Sensitivity",
    "Specificity",
)  # fmt: skip


def agreement_cells(each: Agreement) -> list[str]:
    """The numbers of a judge on a scale, in the order of `AGREEMENT_HEAD`."""
    return [
        each.judge,
        each.scale,
        count(each.answers),
        f"{signed(each.bias.estimate)} {limits(each.bias.low, each.bias.high)}",
        number(each.error),
        number(each.pearson, 2),
        number(each.spearman, 2),
        number(each.kappa, 2),
        number(each.people_kappa, 2),
        _percent(each.sensitivity),
        _percent(each.specificity),
    ]


def terminal_tables(found: JudgesAgainstPeople) -> list[Table]:
    """The agreement of each judge, and the corrected numbers of each arm."""
    title = f"Judges against {plural(found.raters, 'rater')}; yes: {found.threshold:g} or more"
    return [
        _terminal_table(title, AGREEMENT_HEAD, [agreement_cells(each) for each in found.agreements], 2),
        _terminal_table(
            f"Corrected: {count(found.rated)} of {count(found.questions)} questions rated by people",
            ("Judge", "Scale", "Arm", "Judge alone", "People alone", "Corrected", "Against the baseline"),
            [
                [
                    each.judge, each.scale, each.arm, _shown(each.mean.judge), _shown(each.mean.people),
                    _shown(each.mean.corrected.interval),
                    "" if each.difference is None else _change(each.difference.corrected.interval),
                ]
                for each in found.estimates
            ],
            3,
        ),
    ]  # fmt: skip


def _terminal_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> Table:
    shown = plain_table(title)
    for place, name in enumerate(head):
        shown.add_column(name, justify="left" if place < words else "right", overflow="fold")
    for row in rows:
        shown.add_row(*map(safe_text, row))
    return shown


def render(found: JudgesAgainstPeople) -> str:
    """Return the page."""
    sections = [
        ("overview", "Overview", _overview(found)),
        ("agreement", "Agreement", _agreement(found)),
        ("confusion", "Confusion", _confusion(found)),
        ("corrected", "Corrected means", _means(found)),
        ("shares", "Corrected shares", _shares(found)),
    ]
    content = tag("main", [html for _, _, html in sections])
    return page("Judges against people", [each[:2] for each in sections], content, _STYLES, _SCRIPTS)


def _overview(found: JudgesAgainstPeople) -> Html:
    lead = f"{plural(found.raters, 'person' if found.raters == 1 else 'rater')} rated the answers to "
    lead += (
        f"{count(found.rated)} of {count(found.questions)} questions; {plural(len(found.judges), 'judge')} scored all. "
    )
    lead += "Corrected numbers are what people would say of all answers: the judge gives breadth, people the truth."
    return tag(
        "section",
        tag("p", "Evenhand", tag("span", "judges against people", class_="benchmark"), class_="eyebrow"),
        tag("h1", "Judges against people", id="overview-title"),
        tag("p", lead, class_="lead"),
        tag("ul", [tag("li", each) for each in found.sentences], class_="verdicts") if found.sentences else None,
        id="overview",
        aria_labelledby="overview-title",
    )


def _agreement(found: JudgesAgainstPeople) -> Html:
    lead = f"Over the rated answers of all arms, on the scale from 0 to {HIGHEST}. Judge − people: how much higher the "
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
        [_agreement_table(judge, found) for judge in found.judges],
        tag("p", note, class_="footnote") if note else None,
    )


def _agreement_table(judge: str, found: JudgesAgainstPeople) -> Html:
    rows: list[list[Node]] = [
        [
            _TITLES[each.scale],
            count(each.answers),
            _cell(each.bias, sign=True),
            number(each.error),
            number(each.pearson, 2),
            number(each.spearman, 2),
            number(each.kappa, 2),
            number(each.people_kappa, 2),
            _cell(each.sensitivity, 100),
            _cell(each.specificity, 100),
        ]
        for each in found.agreements
        if each.judge == judge
    ]
    return _by_judge(judge, AGREEMENT_HEAD[1:], rows, "Agreement with people")


def _by_judge(judge: str, head: Sequence[str], rows: Sequence[Sequence[Node]], label: str) -> Html:
    return tag("div", tag("h3", judge), table(head, rows, f"{label}: {judge}", "numbers"))


def _confusion(found: JudgesAgainstPeople) -> Html:
    lead = "Rows: the band of people's mean. Columns: the judge's band. Each row adds up to 100%; outlined: the same."
    figures = [_heat(each) for each in found.agreements]
    return section("confusion", "Who says what", lead, tag("div", figures, class_="multiples tables"))


def _heat(each: Agreement) -> Html:
    head = tag("tr", tag("th", "people", class_="corner"), [tag("th", name, scope="col") for name in BAND_NAMES])
    rows: list[Node] = []
    for row, (name, counts) in enumerate(zip(BAND_NAMES, each.confusion, strict=True)):
        total = sum(counts)
        cells = [_heat_cell(n, total, is_right=row == column) for column, n in enumerate(counts)]
        rows.append(tag("tr", tag("th", name, tag("small", f"n = {count(total)}"), scope="row"), cells))
    body = tag("table", tag("thead", head), tag("tbody", rows), class_="heat")
    title = f"{each.scale} by {each.judge}"
    return tag("figure", tag("figcaption", title), scrolling(body, f"{title}: bands of people and judge"))


def _heat_cell(n: int, total: int, *, is_right: bool) -> Html:
    step = round(_STEPS * n / total) if total else 0
    return tag("td", share(n, total, 0), tag("small", count(n)), class_=f"heat-{step}{' right' if is_right else ''}")


def _means(found: JudgesAgainstPeople) -> Html:
    lead = "Corrected by prediction-powered inference: people's mean on the rated answers, moved by what the judge "
    lead += "says about the others, with the weight that gives the narrowest interval (0: the judge is no help, 1: it "
    lead += "counts in full). 95 % intervals over questions, clustered by topic."
    return section(
        "corrected",
        "What the run says, corrected",
        lead,
        _legend(3),
        _charts(found.estimates),
        [_means_table(judge, found) for judge in found.judges],
    )


def _means_table(judge: str, found: JudgesAgainstPeople) -> Html:
    rows: list[list[Node]] = [
        [
            each.arm,
            each.scale,
            *(_cell(one) for one in _all_of(each.mean)),
            number(each.mean.corrected.weight, 2),
            DASH if each.difference is None else _cell(each.difference.judge, sign=True),
            DASH if each.difference is None else _cell(each.difference.corrected.interval, sign=True),
        ]
        for each in found.estimates
        if each.judge == judge
    ]
    names = [name.capitalize() for name in _SOURCES[:3]]
    changes = [f"{name}, against {found.baseline}" for name in ("Judge", "Corrected")]
    return _by_judge(judge, ("Arm", "Scale", *names, "Weight", *changes), rows, "Corrected means")


def _shares(found: JudgesAgainstPeople) -> Html:
    lead = f"The share of answers that people rate {found.threshold:g} or more, in per cent. Rogan–Gladen computes it "
    lead += "from the judge's sensitivity and specificity alone, so it is wider; a dash: the judge is not shown to be "
    lead += "better than chance, or people said yes, or no, to every rated answer."
    tables: list[Node] = []
    for judge in found.judges:
        rows: list[list[Node]] = [
            [
                each.arm,
                each.scale,
                *(_cell(one, 100) for one in _all_of(each.share)),
                number(each.share.corrected.weight, 2),
            ]
            for each in found.estimates
            if each.judge == judge
        ]
        names = [name.capitalize() for name in _SOURCES[:3]]
        tables.append(_by_judge(judge, ("Arm", "Scale", *names, _SOURCES[3], "Weight"), rows, "Corrected shares"))
    return section("shares", f"How many are rated {found.threshold:g} or more", lead, tables)


def _cell(found: Interval, scale: float = 1, *, sign: bool = False) -> Html:
    """A value above its interval; a dash if undefined."""
    value, low, high = (None if each is None else scale * each for each in (found.estimate, found.low, found.high))
    if value is None:
        return tag("span", DASH, class_="value undefined")
    shown = signed(value) if sign else number(value)
    return tag(
        "span", tag("span", shown, class_="value"), tag("span", limits(low, high), class_="limits"), class_="estimate"
    )


def _legend(size: int) -> Html:
    marks = [tag("li", legend_mark(place), name) for place, name in enumerate(_SOURCES[:size])]
    return tag("ul", marks, class_="legend", aria_label="Whose numbers")


def _charts(estimates: Sequence[ArmEstimates]) -> Html:
    figures: list[Node] = []
    for judge, scale in dict.fromkeys((each.judge, each.scale) for each in estimates):
        shown = [each for each in estimates if (each.judge, each.scale) == (judge, scale)]
        axis = axis_for([v for each in shown for one in _all_of(each.mean) for v in _reach(one)])
        rows: list[Node] = [_row(axis, each) for each in shown]
        ticks = tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
        title = tag("figcaption", tag("strong", _TITLES[scale]), f" by {judge}")
        figures.append(tag("figure", title, tag("div", rows, ticks, class_="plot")))
    return tag("div", figures, class_="multiples lanes")


def _row(axis: Axis, each: ArmEstimates) -> Html:
    lanes = [
        Lane(
            place, one.estimate, one.low, one.high, one.n, f"{each.arm}, {_SOURCES[place]}: {_shown(one)}, n = {one.n}"
        )
        for place, one in enumerate(_all_of(each.mean))
    ]
    label = "; ".join(lane.text for lane in lanes)
    return tag("div", tag("span", each.arm, class_="row-name"), strip(axis, lanes, label, margin=2), class_="row")


def _all_of(found: Estimates) -> list[Interval]:
    extra = [] if found.rogan_gladen is None else [found.rogan_gladen.interval]
    return [found.judge, found.people, found.corrected.interval, *extra]


def _reach(found: Interval) -> list[float | None]:
    return reach(found.estimate, found.low, found.high, found.n)


def _shown(found: Interval) -> str:
    return interval(found.estimate, found.low, found.high)


def _change(found: Interval) -> str:
    return DASH if found.estimate is None else f"{signed(found.estimate)} {limits(found.low, found.high)}"


def _percent(found: Interval) -> str:
    value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
    return interval(value, low, high)
