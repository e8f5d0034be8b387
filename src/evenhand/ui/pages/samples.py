"""The sample browser: search, filters and pages on the server; the list and the detail view are the report's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from evenhand.core.format import plural
from evenhand.judging.judge import FAR_APART
from evenhand.show.browser import DATA_ID, panes
from evenhand.show.chart import PALETTE_SIZE
from evenhand.show.markup import Html, Node, embedded_json, escape, join, tag
from evenhand.show.page import nothing
from evenhand.studies.results import ShownOutcome, ShownSample
from evenhand.ui.index import Chosen, RunRow
from evenhand.ui.pages import arm_mark, buttons, field, filters, hidden, link, note, pager, run_link, select
from evenhand.ui.samples import PAGE, SORTS, Listing, Query, SampleEntry

STATUSES = ("graded", "refused", "unscored", "cut", "failed")
_MOST_WORDS = 4000
"""Of both answers together; longer ones are shown without marks."""


def content(row: RunRow, listing: Listing, query: Query, opened: str, reading: bool) -> list[Node]:
    """Return the page; `opened` is the id of the sample to show first, `reading` whether the search index is made."""
    arms = [{"id": f"1.{arm.number}", "label": arm.label, "index": i % PALETTE_SIZE} for i, arm in enumerate(row.arms)]
    data = {"arms": arms, "samples": [_item(each) for each in listing.entries]}
    values = _values(row, query)
    found = plural(listing.found, "sample")
    still = "The samples are being read for the search; judges that disagree come first then."
    box = tag(
        "div",
        _filters(row, listing, query, found),
        tag("p", still, data_reading="1") if reading else None,
        panes(link("/sample.json", run=row.id), opened)
        if listing.entries
        else nothing("No sample matches. Remove a filter to see more."),
        pager("/samples", values, query.page, listing.found, PAGE),
        class_="browser",
    )
    head: list[Node] = [
        tag("p", tag("a", "Runs", href="/"), " › ", run_link(row), class_="eyebrow"),
        tag("h1", "Samples"),
        tag("p", "Use the arrow keys to move through the list.", class_="soft"),
        tag("noscript", nothing("The sample browser needs JavaScript.")),
    ]
    section = tag("section", head, box, id="samples")
    return [section, tag("script", embedded_json(data), type="application/json", id=DATA_ID)]


def _values(row: RunRow, query: Query) -> Mapping[str, str]:
    return {
        "run": row.id,
        "text": query.text,
        "group": query.group,
        "status": query.status,
        "arm": query.arm,
        "differs": "1" if query.differs else "",
        "sort": query.sort if query.sort != "judges" else "",
    }


def _filters(row: RunRow, listing: Listing, query: Query, found: str) -> Html:
    arms = [(str(arm.number), arm.label) for arm in row.arms]
    groups = sorted({*listing.groups, query.group} - {""})
    differ = tag("input", type="checkbox", name="differs", value="1", checked=query.differs)
    return filters(
        "/samples",
        hidden("run", row.id),
        field("text", "Search", query.text, placeholder="words, ids, answers"),
        select("group", "Group", groups, query.group) if groups else None,
        select("status", "Status", STATUSES, query.status),
        select("arm", "Arm", arms, query.arm) if len(arms) > 1 else None,
        select("sort", "Order", SORTS.items(), query.sort, every=""),
        tag("label", differ, "arms differ", class_="check") if len(arms) > 1 else None,
        tag("button", "Search", type="submit"),
        tag("output", found, role="status"),
        label="Filter samples",
        role="search",
    )


def _item(entry: SampleEntry) -> Mapping[str, Any]:
    """Return what the list shows; the script asks for the rest when the sample is opened."""
    outcomes = [{"arm": f"1.{end.arm}", "status": end.status, "answer": end.answer} for end in entry.ends]
    note = "judges disagree" if entry.apart >= FAR_APART else ""
    return {
        "id": entry.id,
        "group": " · ".join(filter(None, (note, entry.group))),
        "context": "",
        "prompt": entry.glance,
        "outcomes": outcomes,
    }


# --- two answers side by side ---


def side_by_side(
    chosen: Sequence[Chosen],
    pairs: Sequence[tuple[ShownSample, ShownOutcome | None, ShownOutcome | None]],
    *,
    differing: int,
    shared: int,
    every: bool,
    page: int,
    size: int,
) -> list[Node]:
    """Return the answers of two arms with the words marked that only one of them has."""
    keys = [each.key for each in chosen]
    values = {"arm": keys, "all": "1" if every else ""}
    other = link("/answers", arm=keys, all="" if every else "1")
    switch = tag("a", "only those that differ" if every else f"all {shared:,}", href=other, class_="button")
    swap = tag("a", "swap sides", href=link("/answers", arm=keys[::-1], all=values["all"]), class_="button")
    counted = f"{plural(differing, 'answer')} of {shared:,} differ." if shared else "They share no sample."
    head = tag(
        "section",
        tag("p", tag("a", "Runs", href="/"), " › ", run_link(chosen[0].row), class_="eyebrow"),
        tag("h1", "Answers side by side"),
        note(counted, " Marked words are in one of the two answers only."),
        buttons(switch, swap),
        tag("div", [tag("strong", arm_mark(i, each.label)) for i, each in enumerate(chosen)], class_="sides"),
        [_pair(chosen, *each) for each in pairs],
        pager("/answers", values, page, shared if every else differing, size),
        id="answers",
    )
    return [head]


def _pair(chosen: Sequence[Chosen], sample: ShownSample, left: ShownOutcome | None, right: ShownOutcome | None) -> Html:
    texts = [_answer(each) for each in (left, right)]
    marked = marked_words(*texts)
    outcomes = zip(chosen, (left, right), marked, strict=True)
    sides = [
        tag(
            "div",
            tag("p", arm_mark(i, each.arm.label), class_="soft"),
            tag("p", text, class_="answer"),
            _grade(outcome),
        )
        for i, (each, outcome, text) in enumerate(outcomes)
    ]
    title = tag("a", sample.id, href=link("/samples", run=chosen[0].row.id, at=sample.id))
    asked = tag("p", f"{sample.context} {sample.prompt}".strip(), class_="asked")
    target = tag("p", f"Target: {_target(sample)}", class_="soft") if sample.target is not None else None
    return tag("figure", tag("figcaption", title, " · ", sample.group, asked, target), sides, class_="pair")


def _answer(outcome: ShownOutcome | None) -> str:
    return "" if outcome is None else outcome.answer


def _grade(outcome: ShownOutcome | None) -> Html:
    if outcome is None:
        return tag("p", "not run", class_="soft")
    values = [f"{name} {value}" for name, value in outcome.grade.items() if value is not None]
    words = ", ".join([outcome.status, *values[:6]])
    return tag("p", tag("small", words, f" – {outcome.reason}" if outcome.reason else ""))


def _target(sample: ShownSample) -> str:
    if isinstance(sample.target, int) and 0 <= sample.target < len(sample.choices):
        return sample.choices[sample.target]
    return str(sample.target)


def marked_words(left: str, right: str) -> tuple[Html, Html]:
    """Return both texts with the words marked that the other does not have."""
    a, b = left.split(" "), right.split(" ")
    if left == right or len(a) + len(b) > _MOST_WORDS:
        return escape(left or "no answer"), escape(right or "no answer")
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return _marked(a, [(kind == "equal", i, j) for kind, i, j, _, _ in blocks]), _marked(
        b, [(kind == "equal", i, j) for kind, _, _, i, j in blocks]
    )


def _marked(words: Sequence[str], parts: Sequence[tuple[bool, int, int]]) -> Html:
    found: list[Node] = []
    for same, start, end in parts:
        text = " ".join(words[start:end])
        if not text:
            continue
        found += [" " if found else "", text if same else tag("mark", text)]
    return join(found) if found else escape("no answer")
