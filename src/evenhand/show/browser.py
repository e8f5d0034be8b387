"""The sample browser: an empty frame that the script fills, and the embedded data."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from evenhand.core.format import count, plural
from evenhand.show.chart import PALETTE_SIZE
from evenhand.show.markup import Html, Node, embedded_json, tag
from evenhand.show.page import nothing, section
from evenhand.show.view import View, planned
from evenhand.studies.results import ShownSample
from evenhand.studies.samples import Step, first_answer, story

DATA_ID = "sample-data"
MOST_BYTES = 8_000_000
"""Of all embedded samples before they are compressed: what a phone searches without a pause."""
_LEVEL = 9
_BASE64 = 4 / 3
"""Length of base64 by bytes."""


def browser(view: View, shown: int) -> Html | None:
    """Return search, filters, list and detail view; without JavaScript, only a notice. None without samples."""
    if not shown:
        return None
    whole = planned(view.study)
    samples = f"{plural(shown, 'sample')} of {count(whole)}" if shown < whole else plural(shown, "sample")
    lead: list[Node] = [f"{samples}, with all messages. Use the arrow keys to move through the list."]
    if shown < whole:
        show = "evenhand run show RUN SAMPLE --turns"
        lead += [" To see the others, run ", tag("code", "evenhand ui"), " or ", tag("code", show), "."]
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


def embedded(samples: Iterable[ShownSample], room: int) -> list[Html]:
    """Return samples as JSON, sorted by id: all, or the first that fit into `room` bytes of a page."""
    chosen: list[tuple[str, Html]] = []
    packer = zlib.compressobj(_LEVEL)
    size = packed = 0
    for sample in samples:
        text = embedded_json(sample_payload(sample))
        data = text.encode(errors="replace")
        size += len(data)
        packed += len(packer.compress(data)) + len(packer.flush(zlib.Z_SYNC_FLUSH))
        if size > MOST_BYTES or packed * _BASE64 > room:
            break
        chosen.append((sample.id, text))
    return [text for _, text in sorted(chosen)]


def sample_data(view: View, samples: Iterable[Html]) -> Html:
    """Return the embedded samples, compressed, in a script element that is not executed."""
    arms = [{"id": a.id, "label": a.label, "index": i % PALETTE_SIZE} for i, a in enumerate(view.arms)]
    data = f'{{"arms":{embedded_json(arms)},"samples":[{",".join(samples)}]}}'
    packed = base64.b64encode(zlib.compress(data.encode(errors="replace"), _LEVEL)).decode()
    return tag("script", Html(packed), type="text/plain", id=DATA_ID, data_packed="deflate")


def sample_payload(sample: ShownSample) -> Mapping[str, Any]:
    shown = asdict(sample)
    for each, outcome in zip(shown["outcomes"], sample.outcomes, strict=True):
        del each["snapshots"]
        each |= {"before": first_answer(outcome), "story": [_step(step) for step in story(outcome)]}
    return shown


def _step(step: Step) -> Mapping[str, Any]:
    return {**asdict(step), "who": step.who if step.kind == "answer" else step.label}
