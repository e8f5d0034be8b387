"""The reliability of a judge as an HTML page, and as tables for the terminal."""

from __future__ import annotations

from evenhand.core.format import DASH, count, number, plural, share
from evenhand.judging.pairs import JudgeFindings, PairFindings, PairVerdict
from evenhand.judging.reliability import MOST_FLIPS, MOST_SHIFT, PROBES, Flip, Reliability, Steadiness
from evenhand.show.chart import Lane, Plot, PlotRow, Segment, bar, stacked
from evenhand.show.markup import Html, tag
from evenhand.show.page import Page, Part, details, footnote, nothing, opening, section, sentences
from evenhand.show.table import Cell, Content, Table, columns, html_of, interval_cell, text_of
from evenhand.stats import Interval

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
            _points(each.own and each.own.preference),
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
            _points(each.shift if each.shift.n else None),
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
    """Return the page."""
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
        value, low, high = (
            None if one is None else 100 * one for one in (each.flips.estimate, each.flips.low, each.flips.high)
        )
        text = f"{PROBES[each.probe]}: {text_of(_percent(each.flips))} % flip, n = {each.flips.n}"
        arm = 1 if found.fault(each) else 0
        rows.append(
            PlotRow(PROBES[each.probe], f"n = {each.flips.n}", [Lane(arm, value, low, high, each.flips.n, text)])
        )
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
            _points(own.preference),
        ]
        for each in found.judges
        if (own := each.own) is not None
    ]
    titles = ("Pairs", "By itself, %", "By the others, %", "Difference, points")
    own_answers = Table("Own answers", columns("Judge", "Its answers", *titles, words=2), rows)
    arms = list(dict.fromkeys(arm for each in found.judges for arm in each.wins))
    wins: list[list[Content]] = [
        [each.judge, *(number(100 * each.wins[arm]) if arm in each.wins else DASH for arm in arms)]
        for each in found.judges
    ]
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


def _points(found: Interval | None) -> Cell:
    return Cell(DASH, "estimate") if found is None else interval_cell(found, 100, sign=True)
