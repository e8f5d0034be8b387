"""The checks of judges by pairs as an HTML page, and as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenhand.core.format import DASH, count, interval, limits, number, plural, share, signed
from evenhand.judging.pairs import JudgeFindings, PairFindings, PairVerdict
from evenhand.show.charts import Segment, bar, stacked
from evenhand.show.html import page
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import nothing, section, table
from evenhand.show.tables import plain_table, safe_text
from evenhand.stats import Interval

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = ("page.css", "tables.css", "charts.css", "browser.css")
_SCRIPTS = ("page.js",)
_CASES = 10
HEAD = (
    "Judge",
    "Pairs",
    "Consistent, %",
    "Shown first wins, %",
    "Longer wins, %",
    "Own wins, %",
    "Own: against others",
)


def cells(each: JudgeFindings) -> list[str]:
    """The numbers of a judge, in the order of `HEAD`."""
    own = each.own
    return [
        each.judge,
        count(each.pairs),
        percent(each.consistent),
        percent(each.first),
        percent(each.longer),
        DASH if own is None else percent(own.rate),
        DASH if own is None or own.preference is None else _points(own.preference),
    ]


def terminal_table(found: PairFindings) -> Table:
    """One row per judge."""
    shown = plain_table(
        f"{count(found.pairs)} pairs of answers to {plural(found.questions, 'question')}, in both orders"
    )
    for place, name in enumerate(HEAD):
        shown.add_column(name, justify="right" if place else "left", overflow="fold")
    for each in found.judges:
        shown.add_row(*map(safe_text, cells(each)))
    return shown


def render(found: PairFindings) -> str:
    """Return the page."""
    sections = [
        ("overview", "Overview", _overview(found)),
        ("order", "Order", _order(found)),
        ("own", "Own answers", _own(found)),
        ("length", "Length", _length(found)),
        ("cases", "Cases", _cases(found)),
    ]
    content = tag("main", [html for _, _, html in sections])
    return page("Judges on pairs", [each[:2] for each in sections], content, _STYLES, _SCRIPTS)


def _overview(found: PairFindings) -> Html:
    lead = f"{plural(len(found.judges), 'judge')} compared {count(found.pairs)} pairs of answers to "
    lead += f"{plural(found.questions, 'question')}, each pair in both orders."
    left = f" {count(found.same)} pairs of equal answers are left out." if found.same else ""
    return tag(
        "section",
        tag("p", "Evenhand", tag("span", "judges on pairs", class_="benchmark"), class_="eyebrow"),
        tag("h1", "Does order or authorship decide?", id="overview-title"),
        tag("p", lead + left, class_="lead"),
        tag("ul", [tag("li", each) for each in found.sentences], class_="verdicts"),
        table(HEAD, [cells(each) for each in found.judges], "Judges", "numbers"),
        id="overview",
        aria_labelledby="overview-title",
    )


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
    label = f"{each.judge}: the answer shown first wins {percent(each.first)} % of decided verdicts"
    return tag(
        "figure",
        tag("figcaption", tag("strong", each.judge)),
        stacked(segments, f"{each.judge}: " + "; ".join(segment.text for segment in segments)),
        tag("ul", [tag("li", f"{name}: {share(n, each.pairs)} ({count(n)})") for _, n, name in parts], class_="plain"),
        nothing("Every verdict is a tie.") if first is None else bar(first, 0.5, "arm-0", label),
        tag("p", f"Shown first wins: {percent(each.first)} %; ties: {count(each.ties)} verdicts.", class_="footnote"),
        tag("p", f"{plural(each.unread, 'pair')} could not be read.", class_="footnote") if each.unread else None,
    )


def _own(found: PairFindings) -> Html:
    lead = "How often a judge prefers the answer that it wrote itself, and how often judges that wrote neither of the "
    lead += "two prefer it. Only the difference is self-preference: own answers may simply be better. A tie, or one "
    lead += "win in each order, counts half."
    rows: list[list[Node]] = []
    for each in found.judges:
        if each.own is not None:
            others, preference = each.own.by_others, each.own.preference
            rows.append(
                [each.judge, ", ".join(each.own.arms), count(each.own.rate.n), percent(each.own.rate),
                 DASH if others is None else percent(others), DASH if preference is None else _points(preference)]
            )  # fmt: skip
    head = ("Judge", "Its answers", "Pairs", "By itself, %", "By the others, %", "Difference, points")
    content = table(head, rows, "Own answers", "numbers") if rows else nothing("No judge wrote answers of this run.")
    arms = list(dict.fromkeys(arm for each in found.judges for arm in each.wins))
    wins = [
        [each.judge, *(number(100 * each.wins[arm]) if arm in each.wins else DASH for arm in arms)]
        for each in found.judges
    ]
    return section(
        "own", "Does a judge prefer its own answers?", lead, content, tag("h3", "How often each arm wins, %"),
        table(["Judge", *arms], wins, "Wins by arm", "numbers"),
    )  # fmt: skip


def _length(found: PairFindings) -> Html:
    lead = "Of pairs with the same winner in both orders, how often the longer answer won. Longer answers may be "
    lead += "better, so this is no proof of a bias; compare judges with each other."
    rows = [[each.judge, count(each.longer.n), percent(each.longer)] for each in found.judges]
    return section(
        "length", "Does length decide?", lead, table(("Judge", "Pairs", "Longer wins, %"), rows, "Length", "numbers")
    )


def _cases(found: PairFindings) -> Html:
    lead = "Pairs in which the place won in both orders, whatever stood there."
    followed = [(judge, each) for judge, all_of in found.verdicts.items() for each in all_of if each.followed]
    shown = [_case(judge, each) for judge, each in followed[:_CASES]]
    more = f"{count(len(followed) - _CASES)} more are in the JSON file." if len(followed) > _CASES else ""
    body: Sequence[Node] = shown or [nothing("There is no such pair.")]
    return section("cases", "Decided by place", lead, body, tag("p", more, class_="footnote") if more else None)


def _case(judge: str, each: PairVerdict) -> Html:
    texts = [
        tag("blockquote", tag("p", tag("strong", arm)), tag("p", text[:1200]))
        for arm, text in zip(each.pair.arms, each.pair.texts, strict=True)
    ]
    return tag(
        "details", tag("summary", f"{judge}: always the {each.followed}. {each.pair.sample.prompt[:200]}"), texts
    )


def percent(found: Interval) -> str:
    """A share with its interval, in per cent."""
    value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
    return interval(value, low, high)


def _points(found: Interval) -> str:
    value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
    return f"{signed(value)} {limits(low, high)}"
