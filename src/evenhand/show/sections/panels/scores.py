"""The sections on judges' scores (differences, means, distributions, tests) and on the coverage of judgements."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import count, limits, number, p_value, plural, share, signed
from evenhand.panels.findings import CHI_SQUARE_CAVEAT, COMBINED, CONTROL, Distribution, PanelAudit
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, estimate_cell, scrolling, section, table
from evenhand.show.sections.panels.elements import (
    PERCENT,
    POINTS,
    AuditedArm,
    as_estimate,
    audited,
    identity_name,
)
from evenhand.show.sections.panels.judges import gap_table
from evenhand.show.view import View, group_label
from evenhand.stats import Interval
from evenhand.studies.results import ArmResult

SHADES = 5
"""Number of shades on either side of 0."""
_HEAT_STEPS = 10
_LEAST_FULL = 0.1
"""Smallest difference in points that can get full colour, so that small differences look small."""


def scores(view: View) -> Html | None:
    """Return a collapsible block per arm, the first one open."""
    arms = audited(view.study)
    if not arms:
        return None
    full = full_colour([each.interval for _, audit in arms for each in audit.matrix])
    lead = "Consensus scores from 0 to 10 of one candidate at a time (phase 1), unless stated otherwise."
    blocks = [_block(view, arm, audit, full, is_open=i == 0) for i, (arm, audit) in enumerate(arms)]
    return section("scores", "Scores", lead, blocks)


def _block(view: View, arm: ArmResult, audit: PanelAudit, full: float, *, is_open: bool) -> Html:
    secondary = f"By metric, and compared with no label: {plural(len(audit.secondary), 'more gap')}"
    return tag(
        "details",
        tag("summary", arm_name(view, arm)),
        tag("h3", "Differences between identities", class_="part-name"),
        _matrix(arm.label, audit, full),
        tag("h3", "Mean scores", class_="part-name"),
        _means(arm.label, audit),
        tag("h3", "Distribution of scores", class_="part-name"),
        _distributions(arm.label, audit),
        tag("h3", "Chi-square tests", class_="part-name"),
        _chi_square(arm.label, audit),
        tag("details", tag("summary", secondary), gap_table(f"{arm.label}: secondary gaps", audit.secondary)),
        class_="arm-block",
        open=is_open,
    )


# --- the matrix ---


def full_colour(intervals: Sequence[Interval]) -> float:
    """Return the difference that gets full colour, the same for all matrices that are compared."""
    return max([_LEAST_FULL, *(abs(each.estimate) for each in intervals if each.estimate is not None)])


def shade(value: float | None, full: float) -> str:
    """Return the CSS class of a difference: `more-1` to `more-5`, `less-1` to `less-5`, `level` near 0."""
    step = 0 if value is None else min(SHADES, round(SHADES * abs(value) / full))
    return "level" if not step or value is None else f"{'more' if value > 0 else 'less'}-{step}"


def _matrix(label: str, audit: PanelAudit, full: float) -> list[Node]:
    identities = audit.identities
    category = {identity: name for name, each in audit.categories.items() for identity in each}
    significant = {frozenset((gap.x, gap.y)) for gap in audit.gaps if gap.found and gap.measure == "score_1"}
    head = tag("tr", tag("th", "x − y", class_="corner"), [tag("th", name, scope="col") for name in identities])
    rows: list[Node] = []
    for y in identities:
        cells: list[Node] = []
        for x in identities:
            same = " tested" if category[x] == category[y] and x != y else ""
            mark = " ✓" if frozenset((x, y)) in significant else ""
            found = audit.difference(x, y) if x != y else None
            cells.append(_difference(found and found.interval, full, same, mark))
        rows.append(tag("tr", tag("th", y, scope="row"), cells))
    body = tag("table", tag("thead", head), tag("tbody", rows), class_="heat differences")
    note = "Mean score of the column's identity minus that of the row's, in points, with its interval. Blue: the "
    note += f"column gets more; orange: the row gets more; full colour at {number(full, POINTS)} points in all arms. "
    note += "Outlined: pairs of the same category, which are tested; ✓: gap found. Other cells are not tested."
    return [scrolling(body, f"{label}: differences between identities"), tag("p", note, class_="footnote")]


def _difference(interval: Interval | None, full: float, css: str, mark: str) -> Html:
    if interval is None or interval.estimate is None:
        return tag("td", "", class_="level")
    value = [signed(interval.estimate, POINTS), mark]
    small = tag("small", limits(interval.low, interval.high, POINTS))
    return tag("td", value, small, class_=shade(interval.estimate, full) + css)


# --- means and distributions ---


def _means(label: str, audit: PanelAudit) -> Html:
    means = {(each.identity, each.metric): each for each in audit.means}
    columns = (COMBINED, *audit.metrics)
    head: list[Node] = ["Identity", "Category", *(_metric(each) for each in columns)]
    rows: list[list[Node]] = []
    for identity in _with_control(audit, [each.identity for each in audit.means]):
        cells = [means.get((identity, metric)) for metric in columns]
        category = next((each.category for each in cells if each is not None), "")
        estimates = [None if each is None else as_estimate(each.interval, each.n) for each in cells]
        rows.append(
            [identity_name(identity), _category(identity, category), *(estimate_cell(e, POINTS) for e in estimates)]
        )
    return table(head, rows, f"{label}: mean scores", "numbers iterations")


def _distributions(label: str, audit: PanelAudit) -> list[Node]:
    together = _levels(f"{label}: all metrics", audit, audit.metrics)
    each_metric = [
        tag("details", tag("summary", _metric(metric)), _levels(f"{label}: {metric}", audit, (metric,)))
        for metric in audit.metrics
    ]
    note = "Per cent of an identity's scores, rounded to whole points; all metrics together, then each separately."
    return [together, tag("p", note, class_="footnote"), *each_metric]


def _levels(label: str, audit: PanelAudit, metrics: Sequence[str]) -> Html:
    """Return a row per identity with the frequency of each score."""
    given = [each for each in audit.distributions if each.metric in metrics]
    levels = len(given[0].counts) if given else 0
    head = tag("tr", tag("th", "score", class_="corner"), [tag("th", str(i), scope="col") for i in range(levels)])
    rows: list[Node] = []
    for identity in _with_control(audit, [each.identity for each in given]):
        counts = _added([each for each in given if each.identity == identity])
        total = sum(counts)
        name = tag("th", identity_name(identity), tag("small", f"n = {count(total)}"), scope="row")
        rows.append(tag("tr", name, [_level(each, total) for each in counts]))
    return scrolling(tag("table", tag("thead", head), tag("tbody", rows), class_="heat levels"), label)


def _added(distributions: Sequence[Distribution]) -> list[int]:
    return [sum(each) for each in zip(*(each.counts for each in distributions), strict=True)]


def _level(n: int, total: int) -> Html:
    step = round(_HEAT_STEPS * n / total) if total else 0
    return tag("td", share(n, total, 0) if n else "", class_=f"heat-{step}")


def _with_control(audit: PanelAudit, present: Sequence[str]) -> list[str]:
    """Return the identities that are present, in the order of all tables, unlabelled last."""
    return [each for each in (*audit.identities, CONTROL) if each in present]


def _category(identity: str, category: str) -> str:
    return "" if identity == CONTROL else group_label(category)


def _metric(metric: str) -> str:
    return "all four" if metric == COMBINED else metric


# --- chi-square ---


def _chi_square(label: str, audit: PanelAudit) -> list[Node]:
    head: list[Node] = ["Category", "Metric", "χ²", "df", "p", "Cramér's V", "n"]
    rows: list[list[Node]] = [
        [
            group_label(each.category),
            _metric(each.metric),
            number(each.statistic),
            str(each.df),
            p_value(each.p_value),
            number(each.cramers_v, 3),
            count(each.n),
        ]
        for each in audit.chi_square
    ]
    return [
        table(head, rows, f"{label}: chi-square tests", "numbers"),
        tag("p", f"{CHI_SQUARE_CAVEAT}.", class_="footnote"),
    ]


# --- coverage ---


def coverage(view: View) -> Html | None:
    """Return how many judgements were requested and given, and which judges never changed a score."""
    arms = audited(view.study)
    if not arms:
        return None
    lead = (
        "A judgement that could not be read, or that a judge declined to give, counts as missing, never as a number. "
    )
    lead += "A judge that keeps all its first scores was not influenced by the discussion."
    head: list[Node] = [
        "Arm",
        "Samples",
        "Graded",
        "Refused",
        "Cut",
        "Unscored",
        "Failed",
        "Judgements",
        "Unread",
        "Declined",
    ]
    rows = [_covered(view, each) for each in arms]
    by_judge: list[list[Node]] = [
        [
            arm_name(view, arm),
            judge.judge,
            count(judge.asked),
            share(judge.missing, judge.asked),
            "–" if judge.unchanged is None else f"{number(PERCENT * judge.unchanged)}%",
        ]
        for arm, audit in arms
        for judge in audit.coverage.judges
    ]
    judge_head: list[Node] = ["Arm", "Judge", "Asked", "Missing", "Changed nothing"]
    return section(
        "coverage",
        "Coverage of judgements",
        lead,
        table(head, rows, "Coverage by arm", "numbers coverage"),
        tag("h3", "By judge", class_="part-name"),
        table(judge_head, by_judge, "Coverage by judge", "numbers"),
    )


def _covered(view: View, audited_arm: AuditedArm) -> list[Node]:
    arm, audit = audited_arm
    counts = audit.coverage
    statuses = (counts.graded, counts.refused, counts.cut, counts.unscored, counts.failed)
    of_samples = [share(each, counts.samples) for each in statuses]
    of_asked = [share(each, counts.asked) for each in (counts.unread, counts.declined)]
    return [arm_name(view, arm), count(counts.samples), *of_samples, count(counts.asked), *of_asked]
