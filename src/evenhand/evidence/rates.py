"""Selection rates and impact ratios in the form of New York City's Local Law 144 and its rules (6 RCNY § 5-300 ff.).

- Selection rate: the share of a category that was selected. Without selections, the scoring rate: the share whose score
  is above the median of all.
- Impact ratio: a category's rate divided by that of the category with the highest rate.
- Tables by sex, by race and by both; people of unknown category are counted and left out; a category with less than 2 %
  of the people is marked, because the rules allow to leave it out of impact ratios with a justification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import NOT_NEGATIVE, Person
from evenhand.core.format import count
from evenhand.show.markup import Html, tag
from evenhand.show.page import footnote
from evenhand.show.table import Content, Table, columns, html_of, measured
from evenhand.stats import Interval, RatioTest, cluster_jackknife, lowest_ratio, lowest_ratio_interval, share_interval

SMALL = 0.02
"""A smaller share of the people is marked."""
FOUR_FIFTHS = 0.8
Floats = NDArray[np.float64]
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Decided:
    """A person, and the cluster (template, job) of the decision about them."""

    person: Person
    cluster: str


@dataclass(frozen=True, slots=True)
class RateRow:
    """One category of a table."""

    category: str
    people: int
    selected: int
    rate: float | None
    low: float | None
    high: float | None
    ratio: float | None
    """The impact ratio; None where no category was ever selected."""
    ratio_low: float | None
    ratio_high: float | None
    """At least 1 unless the test of the table excludes equal rates, since the highest rate was chosen by looking."""
    is_small: bool
    """Whether it has less than 2 % of the people, or fewer than are needed for a rate; then it has none."""


@dataclass(frozen=True, slots=True)
class RateTable:
    """One table: by one attribute, or by several at once."""

    by: tuple[str, ...]
    kind: str
    """`selection` or `scoring`."""
    rows: tuple[RateRow, ...]
    unknown: int
    """People whose category is not known; they are in none of the rows."""
    p_uncorrected: float | None
    """The p-value of "all categories have the same rate"."""
    lowest: Interval
    """The lowest rate divided by the highest, of the categories that are not too small.

    Its upper limit holds for all tables at once (Bonferroni).
    """

    @property
    def below(self) -> list[str]:
        """The categories below four fifths of the highest rate, of those that are not too small."""
        return [
            row.category for row in self.rows if row.ratio is not None and row.ratio < FOUR_FIFTHS and not row.is_small
        ]


def rate_tables(decided: Sequence[Decided], *, smallest: int = 0) -> list[RateTable]:
    """Return the tables for each attribute and for every two of them together.

    A category with fewer than `smallest` people is counted, and has no rate.
    """
    attributes = list(dict.fromkeys(name for each in decided for name in each.person.categories))
    chosen, kind = _chosen(decided)
    if not chosen:
        return []
    cells = [(name,) for name in attributes] + [*combinations(attributes, 2)]
    return [_table(chosen, cell, kind, smallest, len(cells)) for cell in cells]


def _chosen(decided: Sequence[Decided]) -> tuple[list[tuple[Decided, bool]], str]:
    """Return who counts as selected, and whether that is a selection or a score above the median."""
    if any(each.person.selected is not None for each in decided):
        return [(each, each.person.selected) for each in decided if each.person.selected is not None], "selection"
    scores = [(each, each.person.score) for each in decided if each.person.score is not None]
    middle = median(score for _, score in scores) if scores else 0.0
    return [(each, score > middle) for each, score in scores], "scoring"


def _table(
    chosen: Sequence[tuple[Decided, bool]], by: tuple[str, ...], kind: str, smallest: int, tables: int
) -> RateTable:
    clusters = {name: place for place, name in enumerate(dict.fromkeys(each.cluster for each, _ in chosen))}
    counts: defaultdict[str, Floats] = defaultdict(lambda: np.zeros((len(clusters), 2)))
    unknown = 0
    for each, selected in chosen:
        values = [each.person.categories.get(name) for name in by]
        if None in values:
            unknown += 1
            continue
        counts[", ".join(map(str, values))][clusters[each.cluster]] += (float(selected), 1.0)
    total = float(sum(table[:, 1].sum() for table in counts.values()))
    large = [table for table in counts.values() if table[:, 1].sum() >= smallest]
    highest = max(large, key=_rate, default=None)
    p = _test(large).p_value(1.0) if large else None
    may_be_equal = p is None or p > _ALPHA
    rows = tuple(
        _row(category, counts[category], highest, total, smallest, may_be_equal) for category in sorted(counts)
    )
    compared = [table for table in large if table[:, 1].sum() >= SMALL * total]
    return RateTable(by, kind, rows, unknown, p, _lowest(compared, tables))


def _rate(table: Floats) -> float:
    return float(table[:, 0].sum() / table[:, 1].sum())


def _test(tables: Sequence[Floats]) -> RatioTest:
    cells = np.stack(tables, axis=1)
    independent = bool(cells[..., 1].sum(axis=1).max() <= 1)  # people one by one, so their sums suffice
    return RatioTest(cells.sum(axis=0, keepdims=True) if independent else cells, alone=True, independent=independent)


def _lowest(categories: Sequence[Floats], tables: int) -> Interval:
    if len(categories) < 2:
        return Interval()
    return lowest_ratio_interval(np.hstack(categories), _lowest_ratio, [_test(categories)], tables)


def _lowest_ratio(sums: Floats) -> Floats:
    return lowest_ratio(sums[..., ::2] / sums[..., 1::2])


def _row(
    category: str, table: Floats, highest: Floats | None, total: float, smallest: int, may_be_equal: bool
) -> RateRow:
    selected, people = (round(value) for value in table.sum(axis=0).tolist())
    if people < smallest:
        return RateRow(category, people, selected, None, None, None, None, None, None, is_small=True)
    share = share_interval(table[table[:, 1] > 0])
    ratio = Interval()
    if table is highest:
        ratio = Interval(1.0 if selected else None)
    elif highest is not None:
        ratio = cluster_jackknife(np.hstack([table, highest]), _ratio_of_rates, bounds=NOT_NEGATIVE).interval
    if may_be_equal and ratio.high is not None:
        ratio = replace(ratio, high=max(1.0, ratio.high))
    return RateRow(
        category,
        people,
        selected,
        share.estimate,
        share.low,
        share.high,
        ratio.estimate,
        ratio.low,
        ratio.high,
        people < SMALL * total,
    )


def _ratio_of_rates(sums: Floats) -> Floats:
    return (sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3])


def as_table(found: RateTable) -> Table:
    selection = found.kind == "selection"
    name = " × ".join(found.by)
    heads = columns(
        name.capitalize(),
        "People",
        "Selected" if selection else "Above the median",
        "Selection rate" if selection else "Scoring rate",
        "Impact ratio",
    )
    return Table(name, heads, [*map(_cells, found.rows)])


def rates_html(found: RateTable) -> Html:
    return tag("div", html_of(as_table(found)), footnote(f"Unknown category, in no row: {count(found.unknown)}."))


def _cells(row: RateRow) -> list[Content]:
    return [
        f"{row.category}{'*' if row.is_small else ''}",
        count(row.people),
        count(row.selected),
        measured(row.rate, row.low, row.high, 2, n=row.people),
        measured(row.ratio, row.ratio_low, row.ratio_high, 2),
    ]
