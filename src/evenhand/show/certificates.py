"""What controls and reliability tests show of judges and scorers, as HTML pages and as tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, cast

from evenhand.core.format import DASH, count, number, plural, share
from evenhand.judging.card import Calibration, RatedText
from evenhand.judging.certificate import LEAST_AUC, LEAST_BOUND, Certificate, certificate_of, worst
from evenhand.judging.instruments import Checked
from evenhand.judging.pairs import JudgeFindings, PairFindings, PairVerdict
from evenhand.judging.reliability import MOST_FLIPS, MOST_SHIFT, PROBES, Flip, Reliability, Steadiness
from evenhand.show.chart import Lane, Plot, PlotRow, Segment, bar, stacked
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, details, footnote, nothing, opening, section, sentences
from evenhand.show.table import Cell, Column, Content, Table, columns, html_of, interval_cell, text_of, verdict
from evenhand.stats import Interval
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
    lead += "judge does not see what it rates cannot be determined."
    known = {(each.rating, each.judge): each for each in map(certificate_of, notes)}
    times = Counter(rating for rating, _ in known)
    found = [
        replace(each, rating=f"{rating} by {judge}") if times[rating] > 1 else each
        for (rating, judge), each in known.items()
    ]
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
    every = [one for each in checked for one in each.certificates]
    good = [one.rating for one in every if one.sees]
    lead = f"{model} rated texts of known value. {count(len(good))} of {plural(len(every), 'rating')} can be trusted: "
    lead += f"AUC at least {LEAST_AUC}, its lower 95 % bound at least {LEAST_BOUND}, and neither refusals nor nonsense "
    lead += "rated like texts with the property."
    said = [f"{one.rating}: the judge {'; '.join(one.faults)}." for one in every if not one.sees]
    readings = readings_table(checked)
    first = opening(
        f"What {model} sees",
        "judges and scorers with controls",
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


_CASES = 10
_ALONE = (
    "Without judges that wrote neither answer, it is not known whether own answers are preferred or better: "
    "name some with --other."
)


def judges_table(found: PairFindings) -> Table:
    """One row per judge, for the page and for the terminal."""
    title = f"{count(found.pairs)} pairs of answers to {plural(found.questions, 'question')}, in both orders"
    titles = ("Consistent, %", "Shown first wins, %", "Longer wins, %", "Own wins, %", "Own: against others")
    rows: list[list[Content]] = [
        [
            each.judge,
            count(each.pairs),
            _percent(each.consistent),
            _percent(each.first),
            _percent(each.longer),
            _percent(each.own and each.own.rate),
            _points_cell(each.own and each.own.preference),
        ]
        for each in found.judges
    ]
    return Table(title, columns("Judge", "Pairs", *titles), rows)


def flips_table(found: Reliability) -> Table:
    """One row per change and rating: how many verdicts flip, and how far ratings move."""
    rows: list[list[Content]] = [
        [
            PROBES[each.probe],
            each.rating,
            count(each.flips.n),
            _percent(each.flips),
            _points_cell(each.shift if each.shift.n else None),
            DASH if each.change is None else number(100 * each.change, 1),
            _verdict(found, each),
        ]
        for probe in found.probes
        for each in found.found
        if each.probe == probe
    ]
    titles = ("Rated", "Verdicts that flip, %", "Shift, points", "Size, points")
    heads = [*columns("What is changed", "Rating", *titles, words=2), *columns("Verdict")]
    return Table("Flips by what is changed", heads, rows)


def _verdict(found: Reliability, each: Steadiness) -> Content:
    if each.flips.estimate is None:
        return Cell("could not be read", look="worse")
    return Cell("unsteady", look="worse") if found.fault(each) else Cell("no fault shown")


def reliability_page(found: Reliability) -> Page:
    lead = f"{found.judge} rated texts of known value as they are, and again with one thing changed that should not "
    lead += "matter. A verdict flips if the rating goes to the other side of the line that parts the judge's own "
    lead += f"ratings of high and low texts best. It is a fault if more than {number(100 * MOST_FLIPS, 0)} % of the "
    lead += f"verdicts flip, or ratings move by more than {number(100 * MOST_SHIFT, 0)} points of 100, with the whole "
    lead += "95 % interval beyond it, and more flip than when the same input is asked again."
    first = opening(
        f"How steady is {found.judge}?",
        "reliability of a judge",
        sentences(found.sentences, "verdicts"),
        tag("p", lead, class_="lead"),
    )
    parts = [
        first,
        Part("flips", "Flips", _flips(found)) if found.found else None,
        Part("flipped", "Flipped texts", _flipped(found)) if found.lines else None,
    ]
    pairs = found.pairs
    if pairs is not None:
        parts += [
            Part("order", "Order", _order(pairs)),
            Part("own", "Own answers", _own(pairs)),
            Part("length", "Length", _length(pairs)),
            Part("cases", "Decided by place", _cases(pairs)),
        ]
    return Page(f"Reliability of {found.judge}", parts, ("browser.css",))


def _flips(found: Reliability) -> Html:
    lead = "The share of verdicts that flip, with its 95 % interval, by what was changed. A shift is the mean change "
    lead += "of the rating: with an added length or list, against the text as it was; with another author, of the "
    lead += "group named first (a woman, a Black person, a Muslim, a 70-year-old, an immigrant) to the other."
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("strong", rating)),
            Plot(rating, _rows(found, rating), include_zero=True).html(),
        )
        for rating in found.ratings
    ]
    return section(
        "flips",
        "What makes verdicts flip",
        lead,
        tag("div", figures, class_="multiples"),
        html_of(flips_table(found)),
    )


def _rows(found: Reliability, rating: str) -> list[PlotRow]:
    rows: list[PlotRow] = []
    for each in (one for probe in found.probes if (one := found.get(rating, probe)) is not None):
        flips = each.flips.times(100)
        text = f"{PROBES[each.probe]}: {text_of(_percent(each.flips))} % flip, n = {each.flips.n}"
        arm = 1 if found.fault(each) else 0
        lane = Lane(arm, flips.estimate, flips.low, flips.high, flips.n, text)
        rows.append(PlotRow(PROBES[each.probe], f"n = {flips.n}", [lane]))
    return rows


def _flipped(found: Reliability) -> Html:
    lead = "Texts whose verdict flipped, by rating and change; the line between low and high is the judge's own."
    groups: dict[tuple[str, str], list[Flip]] = {}
    for each in found.cases:
        groups.setdefault((each.rating, each.probe), []).append(each)
    shown = [
        details(f"{rating}, {PROBES[probe]} (line {number(100 * found.lines[rating], 0)})", [_flip(one) for one in own])
        for (rating, probe), own in groups.items()
    ]
    return section("flipped", "Texts whose verdict flipped", lead, shown or [nothing("There is none.")])


def _flip(each: Flip) -> Html:
    first, second = (number(100 * value, 0) for value in each.values)
    texts = dict.fromkeys(each.texts)
    return tag(
        "blockquote", tag("p", tag("strong", f"{first} → {second} of 100")), [tag("p", text[:600]) for text in texts]
    )


def _order(found: PairFindings) -> Html:
    lead = "Every pair was shown twice, with the answers swapped. A judge that looks at the answers names the same one "
    lead += "both times, and the answer shown first wins half of the time (the vertical line)."
    figures = [_order_figure(each) for each in found.judges]
    left = f"{count(found.same)} pairs of equal answers are left out." if found.same else ""
    return section(
        "order",
        "Does the order decide?",
        lead,
        html_of(judges_table(found)),
        tag("div", figures, class_="multiples narrow"),
        footnote(left) if left else None,
    )


def _order_figure(each: JudgeFindings) -> Html:
    same = round((each.consistent.estimate or 0) * each.pairs)
    rest = each.pairs - same - each.always_first - each.always_second
    parts = [
        ("graded", same, "the same answer, or a tie, both times"),
        ("pending", rest, "a tie in one order only"),
        ("refused", each.always_first, "always the first"),
        ("failed", each.always_second, "always the second"),
    ]
    segments = [Segment(kind, n, f"{name}: {count(n)}, {share(n, each.pairs)}") for kind, n, name in parts]
    first = each.first.estimate
    wins = text_of(_percent(each.first))
    label = f"{each.judge}: the answer shown first wins {wins} % of decided verdicts"
    return tag(
        "figure",
        tag("figcaption", tag("strong", each.judge)),
        stacked(segments, f"{each.judge}: " + "; ".join(segment.text for segment in segments)),
        sentences([f"{name}: {share(n, each.pairs)} ({count(n)})" for _, n, name in parts], "plain"),
        nothing("Every verdict is a tie.") if first is None else bar(first, 0.5, "arm-0", label),
        footnote(f"Shown first wins: {wins} %; ties: {count(each.ties)} verdicts."),
        footnote(f"{plural(each.unread, 'pair')} could not be read.") if each.unread else None,
    )


def _own(found: PairFindings) -> Html:
    lead = "How often a judge prefers the answer that it wrote itself, and how often judges that wrote neither of the "
    lead += "two prefer it. Only the difference is self-preference: own answers may simply be better. A tie, or one "
    lead += "win in each order, counts half."
    rows: list[list[Content]] = [
        [
            each.judge,
            ", ".join(own.arms),
            count(own.rate.n),
            _percent(own.rate),
            _percent(own.by_others),
            _points_cell(own.preference),
        ]
        for each in found.judges
        if (own := each.own) is not None
    ]
    titles = ("Pairs", "By itself, %", "By the others, %", "Difference, points")
    own_answers = Table("Own answers", columns("Judge", "Its answers", *titles, words=2), rows)
    arms = list(dict.fromkeys(arm for each in found.judges for arm in each.wins))
    wins: list[list[Content]] = [[each.judge, *(_percent(each.wins.get(arm)) for arm in arms)] for each in found.judges]
    return section(
        "own",
        "Does a judge prefer its own answers?",
        lead,
        html_of(own_answers) if rows else nothing("No judge wrote any of these answers."),
        footnote(_ALONE) if any(each.own and each.own.preference is None for each in found.judges) else None,
        tag("h3", "How often each arm wins, %"),
        html_of(Table("Wins by arm", columns("Judge", *arms), wins)),
    )


def _length(found: PairFindings) -> Html:
    lead = "Of pairs with the same winner in both orders, how often the longer answer won. Longer answers may be "
    lead += "better, so this is no proof of a bias; compare judges with each other."
    rows: list[list[Content]] = [[each.judge, count(each.longer.n), _percent(each.longer)] for each in found.judges]
    table = Table("Length", columns("Judge", "Pairs", "Longer wins, %"), rows)
    return section("length", "Does length decide?", lead, html_of(table))


def _cases(found: PairFindings) -> Html:
    lead = "Pairs in which the place won in both orders, whatever stood there."
    followed = [(judge, each) for judge, all_of in found.verdicts.items() for each in all_of if each.followed]
    shown = [_case(judge, each) for judge, each in followed[:_CASES]]
    more = f"{count(len(followed) - _CASES)} more are in the JSON file." if len(followed) > _CASES else ""
    body = shown or [nothing("There is no such pair.")]
    return section("cases", "Decided by place", lead, body, footnote(more) if more else None)


def _case(judge: str, each: PairVerdict) -> Html:
    texts = [
        tag("blockquote", tag("p", tag("strong", arm)), tag("p", text[:1200]))
        for arm, text in zip(each.pair.arms, each.pair.texts, strict=True)
    ]
    return details(f"{judge}: always the {each.followed}. {each.pair.sample.prompt[:200]}", texts)


def _percent(found: Interval | None) -> Cell:
    """A share with its interval, in per cent."""
    return Cell(DASH, "estimate") if found is None else interval_cell(found, 100)


def _points_cell(found: Interval | None) -> Cell:
    return Cell(DASH, "estimate") if found is None else interval_cell(found, 100, sign=True)
