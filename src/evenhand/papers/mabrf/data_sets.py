"""Tables 1 and 2 of the MABRF paper: the sizes of BBQ's categories, and the kinds of SQuAD's answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from evenhand.core.types import Sample
from evenhand.papers.base import Cell, Column, Grid, Row, Table, published
from evenhand.runs.stored import open_sources
from evenhand.stats import wilson
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Age": ("Age",),
    "Disability": ("Disability_status",),
    "Gender": ("Gender_identity",),
    "Nationality": ("Nationality",),
    "Physical Appearance": ("Physical_appearance",),
    "Race/Ethnicity": ("Race_ethnicity",),
    "Religion": ("Religion",),
    "Sexual Orientation": ("Sexual_orientation",),
    "Socioeconomic Status": ("SES",),
    "Race × gender, race × status": ("Race_x_gender", "Race_x_SES"),
}
"""The paper's groups → categories of BBQ; the last is not in its table."""
_KINDS: Mapping[str, tuple[str, ...]] = {
    "Date": ("Date",),
    "Other number": ("Other Numeric",),
    "Name of a person, place or thing": ("Person", "Location", "Other Entity"),
    "Phrase": ("Common Noun Phrase", "Adjective Phrase", "Verb Phrase", "Clause", "Other"),
}
"""Kinds that rules can tell → kinds of the paper, which people told."""
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"\b(?:{_MONTH})\b.*\d|\d.*\b(?:{_MONTH})\b|^(?:in )?(?:1\d|20)\d\d(?:s|[-–]\d+)?$")
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|hundred|thousand|million|billion)\b",
    re.IGNORECASE,
)


def table_one(folder: Path | None) -> Table:
    """Returns the sizes of BBQ as published, and how many questions were asked here."""
    asked = Counter(sample.metadata["category"] for sample in _samples(folder))
    columns = [
        Column("bbq", "BBQ", "questions"),
        Column("bbq_hard", "BBQ-Hard", "questions"),
        Column("asked", "Asked here", "questions"),
    ]
    rows: list[Row] = []
    for name, categories in _GROUPS.items():
        numbers = published("mabrf").tables["table1"].get(name, {})
        count = sum(asked[category] for category in categories)
        ours = Cell(Estimate("asked", name, float(count), None, None, count) if asked else None)
        cells = [Cell(None, numbers.get("bbq")), Cell(None, numbers.get("bbq_hard")), ours]
        rows.append(Row(name, "", cells, ours=bool(asked), published_as=name if numbers else ""))
    return Table(
        "table1",
        "Table 1: BBQ",
        "The paper's counts of BBQ are about half of each category, without the two intersections; the whole has "
        "58,492 questions. It drew its 110 questions from what it calls BBQ-Hard.",
        [Grid("BBQ", columns, rows, "Social group", digits=0)],
    )


def table_two(folder: Path | None) -> Table:
    """Returns the kinds of answers in SQuAD as published, and of the questions asked here, told by rules."""
    kinds = Counter(kind_of(answer) for sample in _samples(folder) if (answer := _gold(sample)))
    total = kinds.total()
    rows: list[Row] = []
    for name, theirs in _KINDS.items():
        paper = sum(published("mabrf").row("table2", each)["share"] for each in theirs)
        ours = _share(kinds[name], total) if total else None
        rows.append(Row(name, "", [Cell(ours, round(paper, 1))], ours=total > 0, published_as=", ".join(theirs)))
    return Table(
        "table2",
        "Table 2: answers in SQuAD",
        "The share of answers of each kind, in per cent. Rules tell ours; people told the paper's, which are of the "
        "first SQuAD and had ten kinds, here joined as far as rules cannot tell them apart.",
        [Grid("SQuAD v2", [Column("share", "Share", "per cent of answers")], rows, "Kind of answer")],
    )


def _share(count: int, total: int) -> Estimate:
    found = wilson(count, total)
    value, low, high = (None if each is None else 100 * each for each in (found.estimate, found.low, found.high))
    return Estimate("share", ALL, value, low, high, total, count)


def kind_of(answer: str) -> str:
    """Tells the kind of an answer by rules."""
    text = answer.strip()
    if _DATE.search(text):
        return "Date"
    if _NUMBER.search(text):
        return "Other number"
    words = [word for word in re.findall(r"[^\W\d_][\w'’.-]*", text) if len(word) > 3]
    return "Name of a person, place or thing" if words and all(w[0].isupper() for w in words) else "Phrase"


def _gold(sample: Sample) -> str:
    answers: list[str] = sample.target or []
    return answers[0] if answers else ""


def _samples(folder: Path | None) -> list[Sample]:
    if folder is None:
        return []
    with open_sources([folder]) as (runs, _):
        return [sample for _, sample in runs[0].store.samples()]
