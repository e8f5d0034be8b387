"""What controls show of judges and scorers, as an HTML page and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, cast

from evenhand.core.format import DASH, count, number, plural
from evenhand.judging.card import Calibration, RatedText
from evenhand.judging.certificate import LEAST_AUC, LEAST_BOUND, Certificate, certificate_of, worst
from evenhand.judging.instruments import Checked
from evenhand.show.chart import Lane, Plot, PlotRow
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, details, footnote, nothing, opening, section, sentences
from evenhand.show.table import Cell, Column, Content, Table, columns, html_of, interval_cell, verdict
from evenhand.studies.results import StudyResult

_KINDS = {
    "low": "should be low",
    "mild": "mildly so",
    "open": "openly so",
    "high": "should be high",
    "shuffled": "words in disorder",
    "other": "of another text",
    "refusal": "refusal",
    "nonsense": "nonsense",
    "off_topic": "beside the question",
    "short": "very short",
    "long": "very long",
    "language": "not in English",
}
"""Kind of control → its name in the picture, in this order; the kinds of methods have names of their own."""
_SIDES = {True: ", has it", False: ", has it not", None: ""}


def certificates_table(certificates: Sequence[Certificate]) -> Table:
    """One row per rating: whether it can be believed, and why not."""
    rows = [_row(each) for each in certificates]
    heads = [
        Column("Rating"),
        Column("Verdict"),
        Column("Read by"),
        Column("AUC", numeric=True),
        Column("Held out", numeric=True),
        Column("Low", numeric=True, hint="median"),
        Column("High", numeric=True, hint="median"),
        Column("Scale used", numeric=True),
        Column("Refusal", numeric=True),
        Column("Nonsense", numeric=True),
        Column("Again", numeric=True, hint="difference"),
    ]
    return Table("What the controls show", heads, rows, look="certificates")


def _row(each: Certificate) -> list[Content]:
    low, high = each.middle or (None, None)
    scale = DASH if each.scale is None else f"{_points(each.scale[0])}–{_points(each.scale[1])}"
    return [
        each.rating,
        verdict("sees it", True) if each.sees else Cell("; ".join(each.faults), look="worse"),
        each.reading,
        interval_cell(each.auc, digits=2),
        number(each.held_out, 2),
        _points(low),
        _points(high),
        scale,
        _points(each.kinds.get("refusal")),
        _points(each.kinds.get("nonsense")),
        DASH if each.repeated is None else number(100 * each.repeated, 1),
    ]


def run_certificates(study: StudyResult) -> Html | None:
    """The part of a report on the judges and scorers that its metrics rest on; None if none was checked."""
    runs = [cast("Mapping[str, Any]", facts) for facts in study.provenance.values() if isinstance(facts, Mapping)]
    notes = [each for facts in runs for each in facts.get("certificates") or ()]
    if not notes:
        return None
    lead = "Before the run, every judge and scorer that a metric rests on rated texts of known value. A metric whose "
    lead += "judge does not see what it rates cannot be told."
    found = list({each.rating: each for each in map(certificate_of, notes)}.values())
    return section("instruments", "Can the judge see it?", lead, html_of(certificates_table(found)))


def readings_table(checked: Sequence[Checked]) -> Table | None:
    """The AUC of every reading that was tried, on the half that it was chosen by and on the other."""
    tried = [(rating, readings) for each in checked for rating, readings in each.tried.items() if len(readings) > 1]
    if not tried:
        return None
    names = list(dict.fromkeys(name for _, readings in tried for name in readings))
    rows: list[list[Content]] = [
        [rating, *(_halves(readings[name]) if name in readings else DASH for name in names)]
        for rating, readings in tried
    ]
    return Table("AUC of each reading: tuning half / held-out half", columns("Rating", *names), rows)


def _halves(each: Certificate) -> Cell:
    return Cell(f"{number(each.tuned, 2)} / {number(each.held_out, 2)}", "estimate", value=each.held_out)


def people_sentences(checked: Sequence[Checked]) -> list[str]:
    """Say of every rating how far it agrees with people, or that this is not known."""
    found: list[str] = []
    unknown: list[str] = []
    for each in (one for several in checked for one in several.certificates):
        for name, area in each.people.items():
            shown = f"{number(area.estimate, 2)} [{number(area.low, 2)}, {number(area.high, 2)}], n = {count(area.n)}"
            found.append(f"{each.rating} against people's labels in {name}: AUC {shown}.")
        if not each.people:
            unknown.append(each.rating)
    return [*found, f"Not validated against people: {', '.join(unknown)}."] if unknown else found


def certificates_page(model: str, checked: Sequence[Checked]) -> Page:
    """Return the page of one model."""
    every = [one for each in checked for one in each.certificates]
    good = [one.rating for one in every if one.sees]
    lead = f"{model} rated texts of known value. {count(len(good))} of {plural(len(every), 'rating')} can be believed: "
    lead += f"AUC at least {LEAST_AUC}, its lower 95 % bound at least {LEAST_BOUND}, and neither refusals nor nonsense "
    lead += "rated like texts with the property."
    said = [f"{one.rating}: the judge {'; '.join(one.faults)}." for one in every if not one.sees]
    readings = readings_table(checked)
    first = opening(
        f"What {model} sees",
        "judges and scorers by controls",
        tag("p", lead, class_="lead"),
        sentences(said, "verdicts") if said else None,
        html_of(certificates_table(every)),
    )
    parts = [
        first,
        Part("pictures", "Ratings by kind of text", _pictures(checked)),
        Part("readings", "Readings", _readings(readings)) if readings else None,
        Part("people", "People", _people(checked)),
        Part("worst", "Rated most wrongly", _worst(checked)),
    ]
    return Page(f"{model} as a judge", parts, ("browser.css",))


def _pictures(checked: Sequence[Checked]) -> Html:
    lead = (
        "The median rating of each kind of text, and the range of all, from 0 to 100. A judge that sees the property "
    )
    lead += "puts what should be high clearly above what should be low, and refusals and nonsense with the low ones."
    figures = [
        tag("figure", tag("figcaption", tag("strong", one.rating)), _picture(found, one))
        for each in checked
        for found, one in zip(each.calibrations, each.certificates, strict=True)
    ]
    return section("pictures", "Ratings by kind of text", lead, tag("div", figures, class_="multiples"))


def _picture(found: Calibration, each: Certificate) -> Node:
    rows = [_kind_row(name, texts) for name, texts in _by_kind(found)]
    return Plot(each.rating, rows, include_zero=True).html() if rows else nothing("Nothing could be read.")


def _by_kind(found: Calibration) -> list[tuple[str, list[RatedText]]]:
    kinds = list(dict.fromkeys(each.kind for each in found.texts))
    ordered = [*(kind for kind in _KINDS if kind in kinds), *(kind for kind in kinds if kind not in _KINDS)]
    groups: list[tuple[str, list[RatedText]]] = []
    for kind in ordered:
        for side in (False, True, None):
            texts = [each for each in found.texts if each.kind == kind and each.high is side]
            split = kind in ("short", "long", "language") or kind not in _KINDS
            if texts:
                groups.append((f"{_KINDS.get(kind, kind)}{_SIDES[side] if split else ''}", texts))
    return groups


def _kind_row(name: str, texts: Sequence[RatedText]) -> PlotRow:
    values = [100 * each.value for each in texts]
    middle, low, high = median(values), min(values), max(values)
    text = f"{name}: median {number(middle, 0)}, {number(low, 0)} to {number(high, 0)}, n = {len(values)}"
    arm = 1 if texts[0].high else 0 if texts[0].high is False else 2
    # The range of all values, however few there are.
    return PlotRow(name, f"n = {len(values)}", [Lane(arm, middle, low, high, max(10, len(values)), text)])


def _readings(table: Table) -> Html:
    lead = (
        "How a rating is read decides how much a model sees. The reading was chosen by the first number of each cell; "
    )
    lead += "the second is of texts that neither prompts nor this choice were tuned on."
    return section("readings", "Which reading sees most", lead, html_of(table))


def _people(checked: Sequence[Checked]) -> Html:
    lead = "Controls are our own words. Where public texts with the labels of people are at hand, the same rating is "
    lead += "held against these labels."
    said = people_sentences(checked)
    return section("people", "Against people", lead, sentences(said) if said else nothing("Nothing was compared."))


def _worst(checked: Sequence[Checked]) -> Html:
    lead = "The texts of known value whose ratings are furthest from it."
    shown = [
        details(
            f"{each.rating}: {plural(len(texts), 'text')}",
            [
                tag("blockquote", tag("p", tag("strong", f"{_points(one.value)} of 100")), tag("p", _text(one)))
                for one in texts
            ],
        )
        for several in checked
        for found, each in zip(several.calibrations, several.certificates, strict=True)
        if (texts := worst(found))
    ]
    return section("worst", "Rated most wrongly", lead, shown or [nothing("There are none.")], footnote(_NOTE))


_NOTE = "The texts were written to test instruments. They state prejudice in plain words, and nobody's opinion."


def _text(each: RatedText) -> str:
    if each.control is None:
        return ""
    side = "should be high" if each.high else "should be low"
    return f"({side}) {each.control.context} {each.control.text[:600]}"


def _points(value: float | None) -> str:
    return DASH if value is None else number(100 * value, 0)
