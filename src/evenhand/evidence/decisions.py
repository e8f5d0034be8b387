"""Logged decisions about people, by group: selection rates, impact ratios, errors where outcomes are known, drift.

A row of the file is one person. Rates and impact ratios are those of `rates`. Where it is known how a person
turned out, equalised odds compare the rates among those who did well and among those who did not.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Person
from evenhand.core.errors import DataError, UsageError, check_names
from evenhand.core.format import count, interval, limits, number, p_value, percent, plural
from evenhand.data.texts import TextFile
from evenhand.evidence.rates import FOUR_FIFTHS, Decided, RateRow, RateTable, as_table, rate_tables, rates_html
from evenhand.show.markup import Html
from evenhand.show.page import Page, Part, opening, section, sentences
from evenhand.show.table import Content, Table, columns, html_of, measured
from evenhand.stats import cluster_jackknife, holm

Every = Literal["month", "quarter", "year"]
_YES = frozenset({"1", "1.0", "true", "yes", "y"})
_NO = frozenset({"0", "0.0", "false", "no", "n"})
_UNKNOWN = frozenset({"", "unknown", "n/a", "na", "none", "null"})


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the file say what; `selected` and `outcome` may name the value that counts: `stage=offer`."""

    by: Sequence[str]
    selected: str | None = None
    score: str | None = None
    outcome: str | None = None
    time: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """A decision of the file."""

    decided: Decided
    outcome: bool | None
    period: str
    """Empty without a column of times."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How the rate of a category differs from that of all others, early and late."""

    attribute: str
    category: str
    early: float
    late: float
    change: float
    low: float | None
    high: float | None


def read_decisions(path: Path, named: Columns, every: Every = "month") -> list[Logged]:
    """Read the file; a cell that cannot be read is named with its line."""
    if (named.selected is None) == (named.score is None):
        raise UsageError("Name the column of the decision with --selected, or of a score with --score; one of them.")
    if not named.by:
        raise UsageError("Name the columns of the groups: --by sex --by race.")
    found: list[Logged] = []
    for line, row in TextFile(path).numbered():
        reader = _Row(path, line, row)
        categories = {name: reader.category(name) for name in named.by}
        person = Person(
            categories,
            reader.yes(named.selected) if named.selected else None,
            reader.number(named.score) if named.score else None,
        )
        cluster = reader.cell(named.cluster) if named.cluster else str(line)
        found.append(
            Logged(
                Decided(person, cluster),
                reader.yes(named.outcome, may_lack=True) if named.outcome else None,
                reader.period(named.time, every) if named.time else "",
            )
        )
    if not found:
        raise DataError("The file holds no decisions.", file=path)
    selected, outcomes = {each.decided.person.selected for each in found}, {each.outcome for each in found}
    for spec, seen in ((named.selected, selected), (named.outcome, outcomes)):
        name, equals, wanted = (spec or "").partition("=")
        if equals and True not in seen:
            raise DataError(f"In no row {name!r} is {wanted!r}.", file=path)
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    fields: Mapping[str, Any]

    def cell(self, name: str) -> str:
        check_names("column", list(self.fields), name)
        value = self.fields[name]
        return "" if value is None else str(value).strip()

    def category(self, name: str) -> str | None:
        value = self.cell(name)
        return None if value.lower() in _UNKNOWN else value

    def yes(self, spec: str, *, may_lack: bool = False) -> bool | None:
        name, equals, wanted = spec.partition("=")
        value = self.cell(name)
        if not value and may_lack:
            return None
        if not value:
            raise DataError(f"{name!r} is empty; leave out rows without a decision.", file=self.path, line=self.line)
        if equals:
            return value == wanted
        if value.lower() not in _YES | _NO:
            message = f"{name!r} is {value!r}, not yes or no; name the value that counts: {name}=VALUE."
            raise DataError(message, file=self.path, line=self.line)
        return value.lower() in _YES

    def number(self, name: str) -> float:
        with contextlib.suppress(ValueError):
            if math.isfinite(value := float(self.cell(name))):
                return value
        raise DataError(f"{name!r} is not a number.", file=self.path, line=self.line)

    def period(self, name: str, every: Every) -> str:
        try:
            day = date.fromisoformat(self.cell(name)[:10])
        except ValueError as error:
            message = f"{name!r} is {self.cell(name)!r}; dates look like 2026-03-31."
            raise DataError(message, file=self.path, line=self.line) from error
        quarter = f"{day.year}, quarter {(day.month + 2) // 3}"
        return {"month": f"{day:%Y-%m}", "quarter": quarter, "year": str(day.year)}[every]


@dataclass(frozen=True)
class Decisions:
    """What a file of decisions says about groups."""

    name: str
    logged: Sequence[Logged]
    clustered: bool
    smallest: int
    """A category with fewer people has no rate."""

    @cached_property
    def rates(self) -> list[RateTable]:
        return self._tables(self.logged)

    @cached_property
    def odds(self) -> Mapping[str, list[RateTable]]:
        """The same tables for those who did well and for those who did not, where outcomes are known."""
        parts = {"did well": True, "did not do well": False}
        found = {name: [each for each in self.logged if each.outcome is value] for name, value in parts.items()}
        return {name: self._tables(part) for name, part in found.items() if part}

    @cached_property
    def periods(self) -> Mapping[str, list[RateTable]]:
        ordered = sorted((each for each in self.logged if each.period), key=lambda each: each.period)
        return {name: self._tables([*part]) for name, part in groupby(ordered, lambda each: each.period)}

    @cached_property
    def drift(self) -> list[Drift]:
        """The change of each category's distance from the others between the first and the second half of periods.

        The intervals hold for all categories at once with 95 % (Bonferroni), since the largest change is looked at.
        """
        names = [*self.periods]
        late = {*names[len(names) // 2 :]}
        if len(names) < 2:
            return []
        rows = [(table.by[0], row.category) for table in self.groups for row in table.rows if row.rate is not None]
        confidence = 1 - 0.05 / max(1, len(rows))
        found = [self._drift(attribute, category, late, confidence) for attribute, category in rows]
        return [each for each in found if each is not None]

    @cached_property
    def tests(self) -> Mapping[tuple[str, ...], float | None]:
        """The p-value of "all categories have the same rate" for each table, corrected over the tables."""
        return {table.by: value for table, value in zip(self.rates, self._corrected(self.rates), strict=True)}

    @cached_property
    def odds_tests(self) -> Mapping[str, float | None]:
        """The p-value of "all categories have the same rates at the same outcome" for each attribute, corrected."""
        tables = [table for part in self.odds.values() for table in part if len(table.by) == 1]
        found: dict[str, float | None] = {}
        for table, value in zip(tables, self._corrected(tables), strict=True):
            known = [each for each in (found.get(table.by[0]), value) if each is not None]
            found[table.by[0]] = min(known, default=None)
        return found if len(self.odds) > 1 else {}

    @property
    def groups(self) -> list[RateTable]:
        return [table for table in self.rates if len(table.by) == 1]

    def _tables(self, part: Sequence[Logged]) -> list[RateTable]:
        return rate_tables([each.decided for each in part], smallest=self.smallest)

    def _corrected(self, tables: Sequence[RateTable]) -> list[float | None]:
        """None with clusters: the test is too bold where they are few."""
        return holm([None if self.clustered else table.p_uncorrected for table in tables])

    def _drift(self, attribute: str, category: str, late: set[str], confidence: float) -> Drift | None:
        clusters = {name: place for place, name in enumerate(dict.fromkeys(e.decided.cluster for e in self.logged))}
        sums = np.zeros((len(clusters), 8))
        for each in self.logged:
            person = each.decided.person
            group = person.categories[attribute]
            if group is None or person.selected is None or not each.period:
                continue
            place = 4 * (each.period in late) + 2 * (group != category)
            sums[clusters[each.decided.cluster], place : place + 2] += (float(person.selected), 1.0)
        if (sums.sum(axis=0)[1::2] < max(1, self.smallest)).any():
            return None
        found = cluster_jackknife(sums[sums.any(axis=1)], _change, confidence=confidence).interval
        early, now = (float(_gap(sums.sum(axis=0)[None, place : place + 4])[0]) for place in (0, 4))
        return Drift(attribute, category, early, now, now - early, found.low, found.high)


def _gap(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]


def _change(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return _gap(sums[..., 4:]) - _gap(sums[..., :4])


def spread(table: RateTable) -> float | None:
    """The highest rate less the lowest; of two such tables by outcome, the larger is the equalised odds difference."""
    rates = [row.rate for row in table.rows if row.rate is not None]
    return max(rates) - min(rates) if len(rates) > 1 else None


# --- in words ---


def findings(found: Decisions) -> list[str]:
    """What was found, worst first; the first sentence decides."""
    said = _four_fifths(found)
    tests = [("rates", _name(table), found.tests[table.by]) for table in found.rates]
    tests += [("rates at the same outcome", attribute, p) for attribute, p in found.odds_tests.items()]
    for rates, attribute, p in tests:
        if p is not None:
            differ = "differ more than by chance" if p < 0.05 else "differ no more than chance explains"
            said.append(f"By {attribute}, {rates} {differ} (corrected p {p_value(p)}).")
    for each in found.drift:
        if each.low is not None and each.high is not None and (each.low > 0 or each.high < 0):
            way = "gained" if each.change > 0 else "lost"
            said.append(
                f"Over time {each.category} ({each.attribute}) {way} {number(100 * abs(each.change))} points against "
                f"the others {limits(100 * each.low, 100 * each.high)}."
            )
    small = sum(row.rate is None for table in found.rates for row in table.rows)
    if small:
        said.append(f"Cells with fewer than {found.smallest} people, which have no rate: {small}.")
    for table in found.groups:
        rare = [each for each in table.rows if each.is_small and each.ratio is not None]
        if rare:
            shown = ", ".join(f"{each.category} {number(each.ratio, 2)}" for each in rare)
            said.append(f"By {table.by[0]}, left out as less than 2 % of the people, impact ratio: {shown}.")
        if table.unknown:
            said.append(f"{count(table.unknown)} of {plural(len(found.logged), 'row')} have no known {table.by[0]}.")
    return said


def _name(table: RateTable) -> str:
    return " × ".join(table.by)


def _four_fifths(found: Decisions) -> list[str]:
    """What is certain, then what is not: of one column, then of two at once, which may hide each other's bias."""
    certain: list[str] = []
    alone: list[str] = []
    together: list[str] = []
    for table in sorted(found.rates, key=lambda each: (len(each.by), each.lowest.estimate or 0)):
        by, ratio = _name(table), table.lowest
        undecided = alone if len(table.by) == 1 else together
        if ratio.low is None or ratio.high is None:
            undecided.append(f"Cannot tell by {by}: no two categories are large enough, or nobody was selected.")
            continue
        category = min((row.rate, row.category) for row in table.rows if row.rate is not None and not row.is_small)[1]
        shown = interval(ratio.estimate, ratio.low, ratio.high, 2)
        if ratio.high < FOUR_FIFTHS:
            certain.append(f"Found: by {by}, {category} has {shown} of the highest rate, less than four fifths.")
        elif ratio.low < FOUR_FIFTHS:
            undecided.append(
                f"Cannot tell whether, by {by}, a category has less than four fifths of the highest rate: "
                f"the lowest ratio is {shown} ({category})."
            )
    if not certain and not alone:
        which = "No category of one column" if together else "No category"
        alone = [f"{which} that is large enough has less than four fifths of the highest rate."]
    return [*certain, *alone, *together]


def _odds_gaps(found: Decisions) -> dict[str, float]:
    gaps: dict[str, float] = {}
    for tables in found.odds.values():
        for table in tables:
            if len(table.by) == 1 and len(found.odds) > 1 and (gap := spread(table)) is not None:
                gaps[table.by[0]] = max(gap, gaps.get(table.by[0], 0.0))
    return gaps


def as_json(found: Decisions) -> dict[str, Any]:
    """All figures as plain values."""
    return {
        "file": found.name,
        "people": len(found.logged),
        "findings": findings(found),
        "rates": [{**asdict(each), "below_four_fifths": each.below, "p": found.tests[each.by]} for each in found.rates],
        "odds": {name: [asdict(each) for each in tables] for name, tables in found.odds.items()},
        "equalised_odds_difference": _odds_gaps(found),
        "periods": {name: [asdict(each) for each in tables] for name, tables in found.periods.items()},
        "drift": [asdict(each) for each in found.drift],
    }


# --- as tables and a page ---


def odds_table(found: Decisions, attribute: str) -> Table:
    """The rates of an attribute's categories among those who did well and those who did not."""
    parts = {name: {row.category: row for row in _only(tables, attribute).rows} for name, tables in found.odds.items()}
    categories = sorted({category for rows in parts.values() for category in rows})
    rows: list[list[Content]] = []
    for category in categories:
        each = [rows.get(category) for rows in parts.values()]
        rows.append([category, *(_rate(row) for row in each)])
    gaps = (spread(_only(tables, attribute)) for tables in found.odds.values())
    rows.append(["Gap (chance included)", *(measured(gap, digits=2) for gap in gaps)])
    heads = columns(attribute.capitalize(), *(f"Rate of those who {name}" for name in parts))
    return Table(f"Equalised odds by {attribute}", heads, rows)


def periods_table(found: Decisions, attribute: str) -> Table:
    parts = {name: {row.category: row for row in _only(each, attribute).rows} for name, each in found.periods.items()}
    categories = sorted({category for rows in parts.values() for category in rows})
    rows: list[list[Content]] = [
        [name, *(_rate(rows.get(category)) for category in categories)] for name, rows in parts.items()
    ]
    return Table(f"Over time by {attribute}", columns("Period", *categories), rows)


def drift_table(found: Decisions) -> Table:
    """How far each category lies from the others, early and late, in points."""
    rows: list[list[Content]] = [
        [
            f"{each.category} ({each.attribute})",
            measured(100 * each.early, sign=True),
            measured(100 * each.late, sign=True),
            measured(
                100 * each.change,
                None if each.low is None else 100 * each.low,
                None if each.high is None else 100 * each.high,
                sign=True,
            ),
        ]
        for each in found.drift
    ]
    heads = columns("Against all others, in points", "First half", "Second half", "Change")
    return Table("Drift", heads, rows)


def tables(found: Decisions) -> list[Table]:
    """Every table, in the order in which they are read."""
    attributes = [table.by[0] for table in found.groups]
    return [
        *map(as_table, found.rates),
        *([odds_table(found, each) for each in attributes] if found.odds else []),
        *([periods_table(found, each) for each in attributes] if found.periods else []),
        *([drift_table(found)] if found.drift else []),
    ]


def _only(tables: Sequence[RateTable], attribute: str) -> RateTable:
    return next(each for each in tables if each.by == (attribute,))


def _rate(row: RateRow | None) -> Content:
    return "" if row is None else measured(row.rate, row.low, row.high, 2, n=row.people)


@dataclass(frozen=True, slots=True)
class Disclosed:
    """What a published summary under Local Law 144 states besides the figures."""

    tool: str = ""
    source: str = ""
    distributed: str = ""


def decisions_page(found: Decisions, about: Disclosed) -> Page:
    """All tables, and the summary that New York City's Local Law 144 asks for."""
    attributes = [table.by[0] for table in found.groups]
    title = f"Decisions in {found.name}"
    parts: list[Part | None] = [
        opening(title, "decisions", sentences(findings(found), "verdicts")),
        Part("summary", "Summary", section("summary", "Summary of the bias audit", _LEAD, _summary(found, about))),
        Part(
            "rates",
            "Rates",
            section("rates", "Selection rates and impact ratios", _RATES, [*map(rates_html, found.rates)]),
        ),
        _part("odds", "Outcomes", _ODDS, [odds_table(found, each) for each in attributes] if found.odds else []),
        _part("time", "Over time", _TIME, [periods_table(found, each) for each in attributes] if found.periods else []),
        _part("drift", "Drift", _DRIFT, [drift_table(found)] if found.drift else []),
    ]
    return Page(title, parts, ("paper.css",))


_LEAD = (
    "The figures that the rules of New York City's Local Law 144 (6 RCNY § 5-300 ff.) ask a published summary to "
    "state. Whether the law applies, and whether this suffices, is for a lawyer and an independent auditor to say."
)
_RATES = (
    "A category's rate divided by the highest is its impact ratio. Below four fifths is a rule of thumb of US "
    "agencies; Local Law 144 sets no threshold. * marks categories with less than 2 % of the people or "
    "too few for a rate; the findings leave them out. The upper limit of a ratio is at least 1 unless a test excludes "
    "equal rates."
)
_ODDS = (
    "Rates among those who turned out well and those who did not; equal rates within both are equalised odds. The gap, "
    "the highest rate less the lowest, is above 0 by chance alone."
)
_TIME = "Selection rates of each period."
_DRIFT = (
    "The distance of each category's rate from that of all others, in the first and the second half of the periods. "
    "The 95 % intervals hold for all rows at once."
)


def _part(name: str, title: str, lead: str, tables: Sequence[Table]) -> Part | None:
    return Part(name, title, section(name, title, lead, [html_of(each) for each in tables])) if tables else None


def _summary(found: Decisions, about: Disclosed) -> Html:
    periods = [*found.periods]
    given = Counter(each.decided.person.selected for each in found.logged)
    rows: list[list[Content]] = [
        ["Tool", about.tool or "not stated: --tool"],
        ["Date of this audit", date.today().isoformat()],
        ["Distribution date of the tool", about.distributed or "not stated: --distributed"],
        ["Source and explanation of the data", about.source or "not stated: --source"],
        ["Period of the data", f"{periods[0]} to {periods[-1]}" if periods else "not stated: --time"],
        ["People assessed", count(len(found.logged))],
        ["Selected", _selected(given) if given[True] or given[False] else "nobody: these are scores"],
        *([f"Unknown category by {' × '.join(each.by)}", count(each.unknown)] for each in found.rates),
        ["Rates and impact ratios", "by each category and by two at once: next section"],
    ]
    return html_of(Table("Summary", columns("", "", words=2), rows))


def _selected(given: Mapping[bool | None, int]) -> str:
    return f"{count(given[True])} ({percent(given[True] / (given[True] + given[False]))})"
