"""The checks of judges by pairs as an HTML page, and as a table for the terminal."""

from __future__ import annotations

from evenhand.core.format import DASH, count, number, plural, share
from evenhand.judging.pairs import JudgeFindings, PairFindings, PairVerdict
from evenhand.show.chart import Segment, bar, stacked
from evenhand.show.markup import Html, tag
from evenhand.show.page import Page, Part, details, footnote, nothing, opening, section, sentences
from evenhand.show.table import Cell, Content, Table, columns, html_of, interval_cell, text_of
from evenhand.stats import Interval

_CASES = 10


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


def pairs_page(found: PairFindings) -> Page:
    """Return the page."""
    lead = f"{plural(len(found.judges), 'judge')} compared {count(found.pairs)} pairs of answers to "
    lead += f"{plural(found.questions, 'question')}, each pair in both orders."
    left = f" {count(found.same)} pairs of equal answers are left out." if found.same else ""
    first = opening(
        "Does order or authorship decide?",
        "judges on pairs",
        tag("p", lead + left, class_="lead"),
        sentences(found.sentences, "verdicts"),
        html_of(judges_table(found)),
    )
    parts = [
        first,
        Part("order", "Order", _order(found)),
        Part("own", "Own answers", _own(found)),
        Part("length", "Length", _length(found)),
        Part("cases", "Cases", _cases(found)),
    ]
    return Page("Judges on pairs", parts, ("browser.css",))


def _order(found: PairFindings) -> Html:
    lead = "Every pair was shown twice, with the answers swapped. A judge that looks at the answers names the same one "
    lead += "both times, and the answer shown first wins half of the time (the vertical line)."
    figures = [_order_figure(each) for each in found.judges]
    return section("order", "Does the order decide?", lead, tag("div", figures, class_="multiples narrow"))


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
        html_of(own_answers) if rows else nothing("No judge wrote answers of this run."),
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
