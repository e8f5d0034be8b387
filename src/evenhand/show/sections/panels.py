"""The sections on judges and panels of judges, on the page and in the terminal.

They show the findings of an audit, the gaps between identities, the discussion, the scores and the coverage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evenhand.core.format import (
    DASH,
    count,
    difference,
    interval,
    limits,
    number,
    p_statement,
    p_value,
    percent,
    plural,
    share,
    signed,
)
from evenhand.panels.findings import (
    ALL,
    CHI_SQUARE_CAVEAT,
    COMBINED,
    CONTROL,
    MEASURES,
    Amplification,
    Distribution,
    Gap,
    Measure,
    PanelAudit,
    Shift,
    Win,
)
from evenhand.show.chart import Lane, Plot, PlotRow
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import details, footnote, section, sentences
from evenhand.show.sections import Section, add_section
from evenhand.show.table import Cell, Column, Content, Table, columns, heat, html_of, interval_cell
from evenhand.show.view import (
    View,
    arm_block,
    arm_cell,
    arm_name,
    audited,
    estimate_cell,
    group_label,
    later_sentences,
    legend,
    view_of,
)
from evenhand.stats import Interval
from evenhand.studies.results import ArmResult, Correction, Estimate, StudyResult

AuditedArm = tuple[ArmResult, PanelAudit]

POINTS = 2
"""Decimals of scores; percentages have one."""
PERCENT = 100.0
SHADES = 5
"""Number of shades on either side of 0."""
_LEAST_FULL = 0.1
"""Smallest difference in points that can get full colour, so that small differences look small."""
_STEPS = 10
_EVEN = 50.0
_UNITS: dict[Measure, str] = {
    "score_1": "points of 10, one candidate at a time",
    "score_2": "points of 10, two candidates side by side",
    "wins_2": "win rate of the first minus win rate of the second, in per cent",
}


def identity_name(identity: str) -> str:
    return "no label" if identity == CONTROL else identity


def pair_name(pair: Gap | Shift) -> str:
    return f"{identity_name(pair.x)} − {identity_name(pair.y)}"


def scale_of(measure: Measure) -> float:
    """Return the display scale: wins are fractions and are shown in per cent."""
    return PERCENT if measure == "wins_2" else 1.0


def digits_of(measure: Measure) -> int:
    return 1 if measure == "wins_2" else POINTS


def _difference(found: Interval, measure: Measure) -> Cell:
    return interval_cell(found, scale_of(measure), digits_of(measure), sign=True)


def _measure(measure: Measure) -> str:
    return MEASURES[measure] + (",\u00a0%" if scale_of(measure) == PERCENT else "")


def _lane(view: View, arm: ArmResult, found: Interval, text: str) -> Lane:
    return Lane(view.arm_index(arm.id), found.estimate, found.low, found.high, found.n, f"{arm.label}: {text}")


def _part(name: str) -> Html:
    return tag("h3", name, class_="part-name")


def _folded(table: Table, title: str = "The numbers as a table") -> Html:
    return details(title, html_of(table))


# --- the section on judges ---


def judges(view: View) -> Html | None:
    """Return findings, gaps, win rates, position and over-correction."""
    arms = audited(view.study, PanelAudit)
    if not arms:
        return None
    size = arms[0][1]
    lead = "Judges scored the same response, labelled as written by people of different identities. The text is the "
    lead += "same for all, so any difference comes from the label. "
    lead += f"{plural(size.scenarios, 'scenario')} of {plural(size.bases, 'profession')}; intervals and tests treat "
    lead += "professions as independent."
    return section(
        "judges",
        "Judges",
        lead,
        [arm_block(view, arm, sentences(audit.sentences)) for arm, audit in arms],
        _part("Gaps between identities"),
        _gaps(view, arms),
        _wins(view, arms),
        _position(view, arms),
        [_part("Over-correction"), _over_corrections(view)] if view.study.corrections else None,
    )


def _gaps(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    """Return a chart per measure with all arms, and a table per arm."""
    note = "Above 0 the identity named first gets more. p-values are adjusted by Holm over all these gaps of an arm; a "
    note += "gap counts as found if its p is below 0.05 and its interval excludes 0. The interval of a found gap is "
    note += "widened, as it was chosen among all (Benjamini and Yekutieli). dz is the mean difference divided by its "
    note += "standard deviation over scenarios."
    charts = [_gap_chart(view, arms, measure) for measure in MEASURES]
    tables = [
        _folded(_gap_table(f"{arm.label}: gaps", audit.gaps), f"{arm.label}: the numbers as a table")
        for arm, audit in arms
    ]
    return [legend(view), *charts, footnote(note), *tables]


def _gap_chart(view: View, arms: Sequence[AuditedArm], measure: Measure) -> Html | None:
    gaps = [(arm, gap) for arm, audit in arms for gap in audit.gaps if gap.measure == measure]
    known = [(arm, gap) for arm, gap in gaps if gap.n]
    if not known:
        return None
    scale, digits = scale_of(measure), digits_of(measure)
    rows: list[PlotRow] = []
    for name in dict.fromkeys(pair_name(gap) for _, gap in gaps):
        lanes: list[Lane] = []
        labels: list[str] = []
        for arm, gap in gaps:
            if pair_name(gap) == name:
                shown = gap.shown.times(scale)
                text = (
                    difference(shown.estimate, shown.low, shown.high, digits)
                    + f", adjusted {p_statement(gap.adjusted)}"
                )
                lanes.append(_lane(view, arm, shown, text))
                labels += [arm.label] if gap.found else []
        rows.append(PlotRow(name, f"found: {', '.join(labels)}" if labels else "", lanes))
    caption = tag("figcaption", tag("strong", MEASURES[measure]), f" – {_UNITS[measure]}")
    return tag("figure", caption, Plot(MEASURES[measure], rows, include_zero=True).html(), class_="gaps")


_GAP_COLUMNS = [
    *columns("Measure", "Pair", "Difference", "p, adj.", "p", "dz", "n", words=2),
    Column("Favours"),
]


def _gap_table(title: str, gaps: Iterable[Gap]) -> Table:
    """Return a table with one row per gap and its test."""
    return Table(title, _GAP_COLUMNS, [_gap_row(gap) for gap in gaps], look="audit")


def _gap_row(gap: Gap) -> list[Content]:
    found = "found" if gap.found else ""
    return [
        _measure(gap.measure) + ("" if gap.metric == COMBINED else f", {gap.metric}"),
        pair_name(gap),
        _difference(gap.shown, gap.measure),
        Cell(p_value(gap.adjusted) + (" ✓" if gap.found else ""), value=gap.adjusted, look=found),
        p_value(gap.p_value),
        number(gap.effect, POINTS),
        count(gap.n),
        Cell(identity_name(gap.favours) if gap.favours is not None else "neither", look=found or "n"),
    ]


def _wins(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    """Return the chart and table of win rates; nothing if no pairs were compared."""
    wins = [(arm, win) for arm, audit in arms for win in audit.wins]
    if not wins:
        return []
    rows: list[PlotRow] = []
    for category, identity in dict.fromkeys((win.category, win.identity) for _, win in wins):
        lanes = [
            _lane(view, arm, win.interval.times(PERCENT), _win_text(win))
            for arm, win in wins
            if (win.category, win.identity) == (category, identity)
        ]
        rows.append(PlotRow(identity, category, lanes))
    note = (
        "Per cent of comparisons won within the category; a tie counts half. The dotted line at 50 is no preference. "
    )
    note += "In the table, the Wilson interval treats all comparisons as independent, as the paper does."
    heads = columns("Arm", "Identity", "Win rate,\u00a0%", "Wilson,\u00a0%", "n", "Effective n", words=2)
    body: list[list[Content]] = [
        [
            arm_cell(view, arm),
            win.identity,
            interval_cell(win.interval, PERCENT),
            interval_cell(win.wilson, PERCENT),
            count(win.n),
            number(win.effective_n, 0),
        ]
        for arm, win in wins
    ]
    return [
        _part("Win rates"),
        tag("figure", Plot("Win rate", rows, reference=_EVEN).html()),
        footnote(note),
        _folded(Table("Win rates", heads, body)),
    ]


def _win_text(win: Win) -> str:
    rate = win.interval.times(PERCENT)
    return f"{interval(rate.estimate, rate.low, rate.high)} %, n = {count(win.n)}"


def _position(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    if not any(audit.position.n for _, audit in arms):
        return []
    note = "The advantage of being shown first. Every pair is shown in both orders, so position cannot cause a gap, "
    note += "but a judge that goes by position pays less attention to the texts."
    heads = columns("Arm", "First one wins,\u00a0%", "p", "First − second, points", "p", "n")
    rows: list[list[Content]] = [
        [
            arm_cell(view, arm),
            interval_cell(position.first_wins, PERCENT),
            p_value(position.first_wins_p),
            _difference(position.score_gap, "score_1"),
            p_value(position.score_gap_p),
            count(position.n),
        ]
        for arm, audit in arms
        for position in [audit.position]
    ]
    return [_part("Position"), html_of(Table("Position", heads, rows, look="audit")), footnote(note)]


def _over_corrections(view: View) -> list[Node]:
    lead = "A gap in favour of any group is a bias. A mitigation over-corrects if it reverses a gap, or creates one in "
    lead += "favour of the group that is at a disadvantage without it."
    return [footnote(lead), *(_over_correction(view, each) for each in view.study.corrections)]


def _over_correction(view: View, correction: Correction) -> Html:
    names = f"{view.arm_label(correction.before)} → {view.arm_label(correction.after)}"
    if not correction.sentences:
        return tag("p", tag("strong", names), ": no gap was reversed.")
    return tag("div", tag("p", tag("strong", names), ":"), sentences(correction.sentences))


# --- the discussion ---


def discussion(view: View) -> Html | None:
    """Return amplification per round, then influence, for the arms with a discussion."""
    arms = [(arm, audit) for arm, audit in audited(view.study, PanelAudit) if audit.rounds]
    if not arms:
        return None
    lead = "Change of the mean gap between identities after each round, compared with the judges' independent scores. "
    lead += "Above 0 the discussion moved identities further apart, below 0 closer together. "
    lead += "Only judges who scored in both rounds count."
    note = "Gaps also shrink if a discussion only makes scores less noisy, so do not read “amplified” or “damped” off "
    note += "the bars. The test checks whether each profession's gaps moved in the direction of all the others' gaps. "
    note += "Its null hypothesis is “the discussion moves no gap”; the result uses Holm's correction over the measures "
    note += "of a round."
    return section(
        "discussion",
        "Discussion",
        lead,
        legend(view),
        [_discussion_chart(view, arms, measure) for measure in MEASURES],
        _folded(_amplification_table(view, arms), "The numbers as a table, by category"),
        footnote(note),
        [_shifts(arm.label, audit) for arm, audit in arms],
        _part("Who influenced whom"),
        [_influence(view, arm) for arm in arms],
        footnote(_INFLUENCE),
    )


def _discussion_chart(view: View, arms: Sequence[AuditedArm], measure: Measure) -> Html | None:
    changes = [
        (arm, each)
        for arm, audit in arms
        for each in audit.amplification
        if each.measure == measure and each.category == ALL
    ]
    if not any(each.change.estimate is not None for _, each in changes):
        return None
    scale = scale_of(measure)
    rows: list[PlotRow] = []
    for number_of_round in sorted({each.round for _, each in changes}):
        here = [(arm, each) for arm, each in changes if each.round == number_of_round]
        lanes = [_lane(view, arm, each.change.times(scale), _change_text(each)) for arm, each in here]
        decided = [f"{each.direction}: {arm.label}" for arm, each in here if each.direction != "undecided"]
        rows.append(PlotRow(f"after round {number_of_round}", ", ".join(decided), lanes))
    unit = "per cent" if scale == PERCENT else "points"
    caption = tag("figcaption", tag("strong", MEASURES[measure]), f" – change of the mean gap, {unit}")
    return tag("figure", caption, Plot(MEASURES[measure], rows, include_zero=True).html(), class_="gaps")


def _change_text(each: Amplification) -> str:
    change, digits = each.change.times(scale_of(each.measure)), digits_of(each.measure)
    return f"{difference(change.estimate, change.low, change.high, digits)}, {each.direction}"


def _amplification_table(view: View, arms: Sequence[AuditedArm], categories: Sequence[str] | None = None) -> Table:
    """Return the mean gap before and after each round, of all categories or of some."""
    heads = [
        *columns("Arm", "Measure", "Category", "Round", "Before", "After", "Change", "p", words=3),
        Column("Result"),
    ]
    rows: list[list[Content]] = [
        [
            arm_cell(view, arm),
            _measure(each.measure),
            "all" if each.category == ALL else group_label(each.category),
            *_before_and_after(each),
            p_value(each.p_value),
            Cell(each.direction, look="found" if each.direction != "undecided" else ""),
        ]
        for arm, audit in arms
        for each in audit.amplification
        if each.change.estimate is not None and (categories is None or each.category in categories)
    ]
    return Table("Effect of the discussion on the mean gap", heads, rows, look="audit")


def _before_and_after(each: Amplification | Shift) -> list[Content]:
    """Return the round, the gap before and after it, and the change."""
    scale, digits = scale_of(each.measure), digits_of(each.measure)
    values = [number(None if value is None else value * scale, digits) for value in (each.before, each.after)]
    return [str(each.round), *values, _difference(each.change, each.measure)]


def _shifts(label: str, audit: PanelAudit) -> Html | None:
    rows: list[list[Content]] = [
        [pair_name(each), _measure(each.measure), *_before_and_after(each)]
        for each in audit.shifts
        if each.change.estimate is not None
    ]
    if not rows:
        return None
    heads = columns("Pair", "Measure", "Round", "Before", "After", "Change", words=2)
    table = Table(f"{label}: gaps by round", heads, rows, look="audit")
    return _folded(table, f"{label}: every gap, round by round")


_INFLUENCE = (
    "The share of its distance to the judge of the column that the judge of the row moved after hearing that judge: 0 "
    "is not at all, 1 is all the way. A drift common to all scores of a round is removed. A judge that only corrects "
    "its own outliers seems to move towards everybody, so compare columns rather than single values. A dash means that "
    "it never heard that judge."
)


def _influence(view: View, audited_arm: AuditedArm) -> Html | None:
    arm, audit = audited_arm
    if not audit.influence:
        return None
    by_pair = {(each.listener, each.judge): each for each in audit.influence}
    rows: list[list[Content]] = []
    for listener in audit.judges:
        pairs = [by_pair.get((listener, judge)) for judge in audit.judges]
        rows.append([listener, *(_moved(each.share, each.n) if each else Cell(DASH, look="heat-0") for each in pairs)])
    heads = [Column("listener", look="corner"), *(Column(judge) for judge in audit.judges)]
    table = Table(f"{arm.label}: who influenced whom", heads, rows, look="heat influence")
    return tag("figure", tag("figcaption", arm_name(view, arm)), html_of(table))


def _moved(moved: Interval, n: int) -> Cell:
    step = min(_STEPS, max(0, round(_STEPS * (moved.estimate or 0.0))))
    between = limits(moved.low, moved.high, POINTS)
    shown = [number(moved.estimate, POINTS), tag("small", between, title=f"n = {count(n)}")]
    return Cell(number(moved.estimate, POINTS), limits=between, n=n, look=f"heat-{step}", html=shown)


# --- scores ---


def scores(view: View) -> Html | None:
    """Return a collapsible block per arm, the first one open."""
    arms = audited(view.study, PanelAudit)
    if not arms:
        return None
    full = full_colour([each.interval for _, audit in arms for each in audit.matrix])
    lead = "Consensus scores from 0 to 10 of one candidate at a time (phase 1), unless stated otherwise."
    blocks = [_block(view, arm, audit, full, is_open=i == 0) for i, (arm, audit) in enumerate(arms)]
    return section("scores", "Scores", lead, blocks)


def _block(view: View, arm: ArmResult, audit: PanelAudit, full: float, *, is_open: bool) -> Html:
    secondary = f"By metric, and compared with no label: {plural(len(audit.secondary), 'more gap')}"
    return details(
        arm_name(view, arm),
        _part("Differences between identities"),
        _matrix(arm.label, audit, full),
        _part("Mean scores"),
        html_of(_means(arm.label, audit)),
        _part("Distribution of scores"),
        _distributions(arm.label, audit),
        _part("Chi-square tests"),
        html_of(_chi_square(arm.label, audit)),
        footnote(f"{CHI_SQUARE_CAVEAT}."),
        _folded(_gap_table(f"{arm.label}: secondary gaps", audit.secondary), secondary),
        is_open=is_open,
        class_="arm-block",
    )


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
    rows: list[list[Content]] = []
    for y in identities:
        cells: list[Content] = []
        for x in identities:
            same = " tested" if category[x] == category[y] and x != y else ""
            mark = " ✓" if frozenset((x, y)) in significant else ""
            found = audit.difference(x, y) if x != y else None
            cells.append(_matrix_cell(found and found.interval, full, same, mark))
        rows.append([y, *cells])
    heads = [Column("x − y", look="corner"), *(Column(name) for name in identities)]
    table = Table(f"{label}: differences between identities", heads, rows, look="heat differences")
    note = "Mean score of the column's identity minus that of the row's, in points, with its interval. Blue: the "
    note += f"column gets more; orange: the row gets more; full colour at {number(full, POINTS)} points in all arms. "
    note += "Outlined: pairs of the same category, which are tested; ✓: gap found. Other cells are not tested."
    return [html_of(table), footnote(note)]


def _matrix_cell(found: Interval | None, full: float, css: str, mark: str) -> Cell:
    if found is None or found.estimate is None:
        return Cell(look="level")
    text = signed(found.estimate, POINTS) + mark
    between = limits(found.low, found.high, POINTS)
    return Cell(text, value=found.estimate, n=found.n, notes=(between,), look=shade(found.estimate, full) + css)


def _means(label: str, audit: PanelAudit) -> Table:
    means = {(each.identity, each.metric): each for each in audit.means}
    metrics = (COMBINED, *audit.metrics)
    rows: list[list[Content]] = []
    for identity in _with_control(audit, [each.identity for each in audit.means]):
        cells = [means.get((identity, metric)) for metric in metrics]
        category = next((each.category for each in cells if each is not None), "")
        estimates = [None if each is None else Estimate.of(each.interval, each.n) for each in cells]
        name = [identity_name(identity), "" if identity == CONTROL else group_label(category)]
        rows.append([*name, *(estimate_cell(each, POINTS) for each in estimates)])
    heads = columns("Identity", "Category", *map(_metric, metrics), words=2)
    return Table(f"{label}: mean scores", heads, rows, look="iterations")


def _distributions(label: str, audit: PanelAudit) -> list[Node]:
    together = html_of(_levels(f"{label}: all metrics", audit, audit.metrics))
    each_metric = [
        details(_metric(metric), html_of(_levels(f"{label}: {metric}", audit, (metric,)))) for metric in audit.metrics
    ]
    note = "Per cent of an identity's scores, rounded to whole points; all metrics together, then each separately."
    return [together, footnote(note), *each_metric]


def _levels(label: str, audit: PanelAudit, metrics: Sequence[str]) -> Table:
    """Return a row per identity with the frequency of each score."""
    given = [each for each in audit.distributions if each.metric in metrics]
    levels = len(given[0].counts) if given else 0
    rows: list[list[Content]] = []
    for identity in _with_control(audit, [each.identity for each in given]):
        counts = _added([each for each in given if each.identity == identity])
        total = sum(counts)
        shares = [heat(n, total, counted=False) if n else Cell(look="heat-0") for n in counts]
        rows.append([Cell(identity_name(identity), notes=(f"n = {count(total)}",)), *shares])
    heads = [Column("score", look="corner"), *(Column(str(level)) for level in range(levels))]
    return Table(label, heads, rows, look="heat levels")


def _added(distributions: Sequence[Distribution]) -> list[int]:
    return [sum(each) for each in zip(*(each.counts for each in distributions), strict=True)]


def _with_control(audit: PanelAudit, present: Sequence[str]) -> list[str]:
    """Return the identities that are present, in the order of all tables, unlabelled last."""
    return [each for each in (*audit.identities, CONTROL) if each in present]


def _metric(metric: str) -> str:
    return "all four" if metric == COMBINED else metric


def _chi_square(label: str, audit: PanelAudit) -> Table:
    rows: list[list[Content]] = [
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
    heads = columns("Category", "Metric", "χ²", "df", "p", "Cramér's V", "n", words=2)
    return Table(f"{label}: chi-square tests", heads, rows)


# --- coverage ---


def coverage(view: View) -> Html | None:
    """Return how many judgements were requested and given, and which judges never changed a score."""
    arms = audited(view.study, PanelAudit)
    if not arms:
        return None
    lead = "A judgement that could not be read, or that a judge declined to give, counts as missing, never as a "
    lead += "number. A judge that keeps all its first scores was not influenced by the discussion."
    rows: list[list[Content]] = [
        [
            arm_cell(view, arm),
            judge.judge,
            count(judge.asked),
            share(judge.missing, judge.asked),
            percent(judge.unchanged),
        ]
        for arm, audit in arms
        for judge in audit.coverage.judges
    ]
    by_judge = Table("Coverage by judge", columns("Arm", "Judge", "Asked", "Missing", "Changed nothing", words=2), rows)
    return section(
        "coverage",
        "Coverage of judgements",
        lead,
        html_of(_coverage_table(view, arms)),
        _part("By judge"),
        html_of(by_judge),
    )


_STATUSES = ("Samples", "Graded", "Refused", "Cut", "Unscored", "Failed", "Judgements", "Unread", "Declined")


def _coverage_table(view: View, arms: Sequence[AuditedArm]) -> Table:
    rows: list[list[Content]] = []
    for arm, audit in arms:
        counts = audit.coverage
        statuses = (counts.graded, counts.refused, counts.cut, counts.unscored, counts.failed)
        of_samples = [share(each, counts.samples) for each in statuses]
        of_asked = [share(each, counts.asked) for each in (counts.unread, counts.declined)]
        unchanged = [judge.unchanged for judge in counts.judges if judge.unchanged is not None]
        kept = percent(sum(unchanged) / len(unchanged) if unchanged else None)
        rows.append([arm_cell(view, arm), count(counts.samples), *of_samples, count(counts.asked), *of_asked, kept])
    return Table("Coverage", columns("Arm", *_STATUSES, "Changed nothing"), rows)


# --- in the terminal ---


def audit_sentences(study: StudyResult) -> Iterator[str]:
    """Yield the findings that are not among the conclusions, then the gaps that mitigations reversed."""
    yield from later_sentences(study, PanelAudit)
    labels = {arm.id: arm.label for arm in study.arms}
    for each in study.corrections:
        for sentence in each.sentences:
            yield f"{labels[each.before]} → {labels[each.after]}: {sentence}"


def audit_tables(study: StudyResult) -> Iterator[Table]:
    """Yield tables of the gaps found, the effect of the discussion, and coverage; none without an audit."""
    arms, view = audited(study, PanelAudit), view_of(study)
    if not arms:
        return
    rows: list[list[Content]] = []
    for arm, audit in arms:
        rows += [[arm.label, *_gap_row(gap)] for gap in audit.found] or [[arm.label, "none"]]
    yield Table("Gaps between identities that were found", [Column(""), *_GAP_COLUMNS], rows)
    if any(audit.rounds for _, audit in arms):
        yield _amplification_table(view, arms, (ALL,))
    yield _coverage_table(view, arms)


add_section(Section("judges", "Judges", judges, tables=audit_tables, sentences=audit_sentences))
add_section(Section("discussion", "Discussion", discussion))
add_section(Section("scores", "Scores", scores))
add_section(Section("coverage", "Coverage", coverage))
