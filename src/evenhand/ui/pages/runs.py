"""The first page, with all runs, filters, and arms to be chosen for a comparison; and the page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.format import plural, share
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import facts, nothing
from evenhand.ui.index import Chosen, RunRow
from evenhand.ui.pages import buttons, cost, date, field, filters, link, pager, problem, run_link, select, state

PAGE = 100
STATES = ("complete", "running", "stopped", "failed", "damaged")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the list of runs is limited to."""

    text: str = ""
    model: str = ""
    benchmark: str = ""
    method: str = ""
    state: str = ""
    since: str = ""
    until: str = ""
    folder: str = ""
    page: int = 1

    def values(self) -> Mapping[str, str]:
        names = ("text", "model", "benchmark", "method", "state", "since", "until", "folder")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def accepts(self, row: RunRow) -> bool:
        words = f"{row.id} {row.benchmark} {' '.join(row.answering)} {' '.join(row.methods)} {row.headline}".lower()
        return (
            all(word in words for word in self.text.lower().split())
            and self.model in ("", *row.answering)
            and self.benchmark in ("", row.benchmark)
            and self.method in ("", *row.methods)
            and self.state in ("", row.kind)
            and (not self.since or row.created[:10] >= self.since)
            and (not self.until or row.created[:10] <= self.until)
            and (not self.folder or row.id == self.folder or row.id.startswith(f"{self.folder}/"))
        )


def content(folder: str, rows: Sequence[RunRow], asked: Filters, headlines: Mapping[str, str], unread: int) -> Html:
    """Return the page's main part; `headlines` are those that were computed here, with intervals and n."""
    matching = [row for row in rows if asked.accepts(row)]
    start = PAGE * (asked.page - 1)
    shown = matching[start : start + PAGE]
    counted = plural(len(matching), "run") if len(matching) == len(rows) else f"{len(matching):,} of {len(rows):,} runs"
    still = tag("p", f"{plural(unread, 'run')} still to be read.", class_="footnote", data_unread=str(unread))
    table = _table(shown, headlines) if shown else nothing(_nothing(rows, unread))
    compare = tag("div", tag("button", "Compare the chosen arms", type="submit", class_="primary"), class_="tools")
    return tag(
        "section",
        tag("h1", "Runs"),
        tag("p", "In ", tag("code", folder), ". Choose arms and compare them on the samples that they share."),
        _filters(rows, asked, counted),
        still if unread else None,
        tag("form", compare if shown else None, table, action="/compare", method="get"),
        pager("/", asked.values(), asked.page, len(matching), PAGE),
        id="runs",
    )


def _nothing(rows: Sequence[RunRow], unread: int) -> str:
    if rows:
        return "No run matches. Remove a filter to see more."
    return "The runs are being read." if unread else "There are no runs in this folder yet. The page Start makes one."


def _filters(rows: Sequence[RunRow], asked: Filters, counted: str) -> Html:
    def values(all_of: list[str]) -> list[str]:
        return sorted(set(all_of) - {""})

    folders = values([row.group for row in rows])
    return filters(
        "/",
        field("text", "Search", asked.text, placeholder="run, model, method"),
        select("model", "Model", values([each for row in rows for each in row.answering]), asked.model),
        select("benchmark", "Benchmark", values([row.benchmark for row in rows]), asked.benchmark),
        select("method", "Method", values([each for row in rows for each in row.methods]), asked.method),
        select("state", "State", STATES, asked.state),
        select("folder", "Folder", folders, asked.folder) if folders else None,
        field("since", "From", asked.since, "date"),
        field("until", "To", asked.until, "date"),
        tag("button", "Filter", type="submit"),
        tag("a", "Clear", href="/", class_="button") if asked.values() else None,
        tag("output", counted, role="status"),
        label="Filter runs",
        role="search",
    )


def _table(rows: Sequence[RunRow], headlines: Mapping[str, str]) -> Html:
    head = [tag("th", each, scope="col") for each in ("Run", "Arms", "Headline", "State", "Cost")]
    body = [_row(row, headlines.get(row.id) or row.headline) for row in rows]
    return tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_="runs")


def in_lines(headline: str) -> str:
    """Return the verdict and the value of each arm on lines of their own."""
    verdict, end, values = headline.rpartition(". ")
    by_arm = values.replace("; ", ";\n")
    return f"{verdict}{end.strip()}\n{by_arm}".strip()


def _row(row: RunRow, headline: str) -> Html:
    parent = tag("a", f"{row.group}/", href=link("/", folder=row.group), class_="soft") if row.group else None
    about: list[Node] = [tag("span", each) for each in (row.benchmark, *row.answering) if each]
    name = tag("th", parent, run_link(row, row.name), tag("small", date(row.created), about), scope="row")
    arms = [_arm(Chosen(row, arm)) for arm in row.arms]
    return tag(
        "tr",
        name,
        tag("td", tag("ul", arms, class_="arms") if arms else row.fault, data_label="Arms"),
        tag("td", in_lines(headline) or "–", data_label="Headline", class_="said"),
        tag("td", state(row), data_label="State"),
        tag("td", cost(row.usage.cost) if not row.fault else "–", data_label="Cost"),
    )


def _arm(chosen: Chosen) -> Html:
    box = tag("input", type="checkbox", name="arm", value=chosen.key, aria_label=f"Choose {chosen.label}")
    return tag("li", tag("label", box, tag("span", chosen.arm.label), class_="check"))


def head(row: RunRow, actions: Node = None) -> Html:
    """Return what is known before the report is computed."""
    links: list[Node] = [tag("a", "Samples", href=link("/samples", run=row.id), class_="button primary")]
    keys = [f"{row.id}::{arm.number}" for arm in row.arms]
    if len(keys) > 1:
        links.append(tag("a", "Answers side by side", href=link("/answers", arm=keys[:2]), class_="button"))
        links.append(tag("a", "Compare its arms", href=link("/compare", arm=keys), class_="button"))
    return tag(
        "section",
        tag("p", tag("a", "Runs", href="/"), _parents(row), class_="eyebrow"),
        tag("h1", row.name),
        facts(
            [
                ("Benchmark", tag("a", row.benchmark, href=link("/board", benchmark=row.benchmark))),
                ("Models", _models(row)),
                ("Arms", _arms(row)),
                ("State", state(row)),
                ("Begun", date(row.created)),
                ("Calls", f"{row.usage.calls:,}"),
                ("Cost", cost(row.usage.cost)),
            ]
        )
        if not row.fault
        else problem(row.fault),
        buttons(links if not row.fault else None, actions),
        id="run",
    )


def report(found: Mapping[str, Any]) -> list[Html]:
    sections: Sequence[tuple[str, str, str]] = found["sections"]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    contents = tag("ul", links, class_="contents", aria_label="Sections of the report")
    return [tag("div", contents, class_="contents-box"), *(Html(html) for _, _, html in sections)]


def _parents(row: RunRow) -> list[Node]:
    return [" › ", tag("a", f"{row.group}/", href=link("/", folder=row.group))] if row.group else []


def _models(row: RunRow) -> list[Node]:
    found: list[Node] = []
    for model in row.answering:
        found += [", " if found else "", tag("a", model, href=link("/history", model=model, benchmark=row.benchmark))]
    return found


def _arms(row: RunRow) -> Html:
    items = [
        tag(
            "li",
            f"{arm.label}: {arm.done:,} of {plural(arm.done + arm.pending, 'sample')} run",
            f", {share(arm.ungraded, arm.done)} without a grade" if arm.ungraded else "",
        )
        for arm in row.arms
    ]
    return tag("ul", items, class_="plain")
