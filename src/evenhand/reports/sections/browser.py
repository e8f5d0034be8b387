"""The sample browser: an empty frame that the script fills, and the embedded data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evenhand.reports.format import count, plural
from evenhand.reports.markup import Html, Node, embedded_json, tag
from evenhand.reports.sections.elements import nothing, section
from evenhand.reports.view import PALETTE_SIZE, View, planned
from evenhand.studies.results import ShownOutcome, ShownSample, ShownTurn
from evenhand.studies.story import Step, first_answer, story

DATA_ID = "sample-data"
MOST_BYTES = 8_000_000
"""Of all embedded samples; the rest of a report is far smaller."""


def browser(view: View, shown: int) -> Html | None:
    """Return search, filters, list and detail view; without JavaScript, only a notice. None without samples."""
    if not shown:
        return None
    whole = planned(view.study)
    samples = f"{plural(shown, 'sample')} of {count(whole)}" if shown < whole else plural(shown, "sample")
    lead = f"{samples}, with all messages. Use the arrow keys to move through the list."
    off = tag("noscript", nothing("The sample browser needs JavaScript; the rest of the report does not."))
    return section("samples", "Samples", lead, off, tag("div", _filters(), panes(), class_="needs-js browser"))


def _filters() -> Html:
    return tag(
        "form",
        tag(
            "label",
            "Search",
            tag("input", type="search", id="sample-search", placeholder="words, ids, answers"),
        ),
        [_select(name) for name in ("group", "status", "arm")],
        tag("label", tag("input", type="checkbox", id="sample-disagree"), "arms disagree", class_="check"),
        tag("output", id="sample-count", role="status"),
        class_="filters",
        role="search",
        aria_label="Filter samples",
        autocomplete="off",
    )


def _select(name: str) -> Html:
    every = tag("option", "any", value="")
    return tag("label", name.capitalize(), tag("select", every, id=f"sample-{name}"))


def panes(source: str = "", opened: str = "") -> Html:
    """Return the empty list and detail view.

    With a `source`, samples are fetched from this address when they are opened, with their id as `id`; `opened` is the
    id of the sample that is shown first.
    """
    return tag("div", _list(), _detail(source, opened), class_="panes")


def _list() -> Html:
    more = tag("button", "Show more", type="button", id="sample-more", hidden=True)
    return tag("div", tag("ul", id="sample-list", aria_label="Samples"), more, class_="list")


def _detail(source: str, opened: str) -> Html:
    hint = tag("p", "Choose a sample from the list.", class_="nothing")
    attributes = {"data_source": source or None, "data_opened": opened or None}
    return tag("article", hint, id="sample-detail", tabindex=-1, aria_label="Sample", **attributes)


def embedded(samples: Iterable[ShownSample]) -> list[Html]:
    """Return samples as JSON: all, or the first that fit a page of a size that browsers open at once."""
    chosen: list[Html] = []
    size = 0
    for sample in samples:
        text = embedded_json(sample_payload(sample))
        size += len(text.encode(errors="replace"))
        if size > MOST_BYTES:
            break
        chosen.append(text)
    return chosen


def sample_data(view: View, samples: Iterable[Html]) -> Html:
    """Return the embedded samples in a script element that is not executed."""
    arms = [{"id": a.id, "label": a.label, "index": i % PALETTE_SIZE} for i, a in enumerate(view.arms)]
    data = Html(f'{{"arms":{embedded_json(arms)},"samples":[{",".join(samples)}]}}')
    return tag("script", data, type="application/json", id=DATA_ID)


def sample_payload(sample: ShownSample) -> Mapping[str, Any]:
    """Return a sample as the script shows it."""
    return {
        "id": sample.id,
        "group": sample.group,
        "kind": sample.kind,
        "context": sample.context,
        "prompt": sample.prompt,
        "choices": list(sample.choices),
        "target": sample.target,
        "metadata": sample.metadata,
        "outcomes": [_outcome(o) for o in sample.outcomes],
    }


def _outcome(outcome: ShownOutcome) -> Mapping[str, Any]:
    return {
        "arm": outcome.arm,
        "status": outcome.status,
        "answer": outcome.answer,
        "reason": outcome.reason,
        "stop": outcome.stop,
        "grade": outcome.grade,
        "before": first_answer(outcome),
        "story": [_step(s) for s in story(outcome)],
        "turns": [_turn(t) for t in outcome.turns],
    }


def _step(step: Step) -> Mapping[str, Any]:
    return {
        "kind": step.kind,
        "who": step.who if step.kind == "answer" else step.label,
        "text": step.text,
        "passed": step.passed,
        "details": step.details,
    }


def _turn(turn: ShownTurn) -> Mapping[str, Any]:
    return {
        "agent": turn.agent,
        "role": turn.role,
        "model": turn.model,
        "prompt": turn.prompt_id,
        "hash": turn.prompt_hash,
        "messages": [list(m) for m in turn.messages],
        "outputs": list(turn.outputs),
        "thoughts": list(turn.thoughts),
        "error": turn.error,
        "tokens": turn.tokens,
        "latency": turn.latency,
        "cached": turn.cached,
    }


def navigation(titles: Iterable[tuple[str, str]]) -> Html:
    """Return links to the sections and the switch between light and dark."""
    links: list[Node] = [tag("li", tag("a", title, href=f"#{name}")) for name, title in titles]
    switch = tag("button", "◐ Dark", type="button", id="theme", class_="needs-js", aria_pressed="false")
    return tag("nav", tag("span", "Evenhand", class_="brand"), tag("ul", links), switch, aria_label="Sections")
