"""A model's attention over the prompt under each framing of a text, as an HTML page and as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from evenhand.core.format import DASH, count, number
from evenhand.methods.framing import FramedAttention
from evenhand.models.hf.attention import Attention
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, details, footnote, opening, section
from evenhand.show.table import Table, columns, html_of

_STEPS = 10
_LINE_END = "↵"


def passages_table(title: str, framed: Sequence[FramedAttention]) -> Table:
    """Return, per framing, the percentage of attention on each passage of the prompt and on the rest."""
    rows: list[list[str]] = []
    for each in framed:
        shares = [each.attention.on(passage) for passage in each.passages.values()]
        rest = 1 - sum(share for share in shares if share is not None)
        rows.append([each.name, *(_percent(share) for share in (*shares, rest))])
    heads = columns("Framing", *(f"{name}, %" for name in framed[0].passages), "All else, %")
    return Table(title, heads, rows, look="heat")


def attention_page(title: str, lead: str, framed: Sequence[FramedAttention], *, layers: bool) -> Page:
    """Return the HTML page; `layers` adds every layer of each framing."""
    note = "Attention shows where a model looks, not why it gives its answer. Longer passages get more attention "
    note += "simply because they are longer, and in most models the first token gets a lot, whatever it is."
    table = passages_table("Attention by passage of the prompt", framed)
    first = opening(title, "attention over the prompt", tag("p", lead, class_="lead"), html_of(table), footnote(note))
    return Page(title, [first, *(Part(e.name, e.name.capitalize(), _framing(e, framed, layers)) for e in framed)])


def write_attention_csv(path: Path, framed: Sequence[FramedAttention], *, layers: bool) -> None:
    """Write one line per framing, layer and word; layer `mean` is the average over all layers."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("framing", "layer", "place", "word", "attention"))
        for each in framed:
            for layer, shares in _layers(each.attention, layers):
                for place, (word, share) in enumerate(zip(each.attention.words, shares, strict=True), 1):
                    writer.writerow((each.name, layer, place, word, f"{share:.6g}"))


def _layers(attention: Attention, layers: bool) -> Iterator[tuple[str, Sequence[float]]]:
    yield "mean", attention.mean
    if layers:
        yield from ((str(layer), shares) for layer, shares in enumerate(attention.layers, 1))


def _framing(shown: FramedAttention, framed: Sequence[FramedAttention], layers: bool) -> Html:
    means = [each.attention.mean for each in framed]
    words = len(shown.attention.words)
    lead = f"{count(words)} words, including the model's chat template. A stronger colour means more attention. "
    lead += "All framings share one square-root scale. Point at a word to see its share."
    whole = _map(shown.attention.words, shown.attention.mean, _most(means))
    return section(shown.name, shown.name.capitalize(), lead, whole, _by_layer(shown.attention) if layers else None)


def _by_layer(attention: Attention) -> Html:
    """Return a map of every layer, each on its own scale."""
    maps = [
        details(f"Layer {layer}", _map(attention.words, shares, _most([shares])))
        for layer, shares in enumerate(attention.layers, 1)
    ]
    return details(f"All {len(maps)} layers, each on its own scale", tag("div", maps))


def _most(rows: Sequence[Sequence[float]]) -> float:
    """Return the share that gets full colour: the largest except the first word's, which would outshine all others."""
    return max((share for row in rows for share in row[1:]), default=1.0)


def _map(words: Sequence[str], shares: Sequence[float], most: float) -> Html:
    return tag("p", [_word(word, share, most) for word, share in zip(words, shares, strict=True)], class_="heat")


def _word(word: str, share: float, most: float) -> list[Node]:
    step = min(_STEPS, round(_STEPS * math.sqrt(share / most))) if most > 0 else 0
    shown = word.replace("\n", _LINE_END)
    ends = [tag("br")] if "\n" in word else []
    return [tag("span", shown, class_=f"heat-{step}", title=f"{_percent(share)} %"), *ends]


def _percent(share: float | None) -> str:
    return DASH if share is None else number(100 * share, 2)
