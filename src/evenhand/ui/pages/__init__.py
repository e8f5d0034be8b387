"""The HTML of the workbench, one module per page, and the parts that several pages have.

Values come in, escaped markup goes out; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

from evenhand.core.format import count, money
from evenhand.show.chart import legend_mark
from evenhand.show.markup import Html, Node, join, tag
from evenhand.show.view import NO_PRICE
from evenhand.ui.index import RunRow

Values = Mapping[str, "str | Sequence[str]"]


def link(path: str, **values: str | Sequence[str]) -> str:
    """Return an address with a query; empty values are left out."""
    given = {name: value for name, value in values.items() if value}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def run_link(row: RunRow, title: str = "") -> Html:
    return tag("a", title or row.id, href=link("/run", id=row.id))


def select(name: str, label: str, options: Iterable[str | tuple[str, str]], chosen: str, every: str = "any") -> Html:
    """Return a labelled select box; its first option means all, unless `every` is empty."""
    first = [("", every)] if every else []
    pairs = [*first, *((each, each) if isinstance(each, str) else each for each in options)]
    items = [tag("option", text, value=value, selected=value == chosen) for value, text in pairs]
    return tag("label", label, tag("select", items, name=name))


def hidden(name: str, value: str) -> Html:
    return tag("input", type="hidden", name=name, value=value)


def filters(path: str, *content: Node, label: str = "", role: str | None = None) -> Html:
    """Return the form that limits what a page shows."""
    return tag("form", content, class_="filters", role=role, aria_label=label or None, action=path, method="get")


def buttons(*content: Node) -> Html:
    return tag("div", content, class_="row-of-buttons")


def note(*content: Node) -> Html:
    """Return the sentence below a heading."""
    return tag("p", content, class_="sentence")


def field(name: str, label: str, value: str, kind: str = "search", **more: str | bool | int) -> Html:
    return tag("label", label, tag("input", type=kind, name=name, value=value, **more))


def pager(path: str, values: Values, page: int, found: int, size: int) -> Html | None:
    last = max(1, -(-found // size))
    if last == 1:
        return None

    def to(number: int, text: str, label: str) -> Html:
        if not 1 <= number <= last or number == page:
            return tag("span", text, class_="button off", aria_hidden="true")
        return tag("a", text, href=link(path, **values, page=str(number)), class_="button", aria_label=label)

    return tag(
        "nav",
        to(1, "« first", "First page"),
        to(page - 1, "‹ back", "Previous page"),
        tag("span", f"page {count(page)} of {count(last)}", aria_current="page"),
        to(page + 1, "next ›", "Next page"),
        to(last, "last »", "Last page"),
        class_="pager",
        aria_label="Pages of the list",
    )


def state(row: RunRow) -> Html:
    """Return a run's state, with a bar while it is running."""
    if row.running:
        bar = tag("progress", max=max(1, row.total), value=row.done, aria_label=f"Progress of {row.id}")
        words = tag("span", progress_words(row.done, row.total), data_words=True)
        return tag("span", bar, words, class_="live", data_running=row.id)
    kind = {"complete": "graded", "failed": "failed", "damaged": "failed"}.get(row.kind, "refused")
    return tag("span", row.state, class_=f"state state-{kind}")


def progress_words(done: int, total: int) -> str:
    return f"running, {count(done)} of {count(total)}"


def cost(value: float | None) -> Html:
    return tag("abbr", "–", title=NO_PRICE) if value is None else join(money(value))


def date(text: str) -> Html:
    return tag("time", text[:16].replace("T", " "), datetime=text[:19])


def arm_mark(index: int, label: str) -> Html:
    return tag("span", legend_mark(index), tag("span", label), class_="arm")


def computing(what: str) -> Html:
    """Return a notice that the style hides when more of the page has come."""
    return tag("p", tag("progress", aria_label=what), f" {what}", class_="computing", role="status")


def problem(text: str) -> Html:
    return tag("p", text, class_="why", role="alert")


def post_button(path: str, token: Html, text: str, **values: str) -> Html:
    given = [hidden(name, value) for name, value in values.items()]
    return tag("form", token, given, tag("button", text, type="submit"), method="post", action=path)
