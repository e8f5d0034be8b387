"""A paper's claims on the page: the count as its first answer, and each claim with its verdicts and reasons."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import plural
from evenhand.papers.claims import VERDICTS, Claim, Verdict, counted
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import section

_WORDS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "cannot be told": ("cannot be told", "cannot be told"),
}
_CLASSES: dict[Verdict, str] = {"holds": "holds", "fails": "fails", "cannot be told": "untold"}
_NAMED = 3
"""Claims that the first screen names for each verdict."""
_LEAD = (
    "Each claim is tested on our own runs. It holds or fails if the difference is significant after Holm's correction; "
    "otherwise it cannot be told. Answers that are far shorter, longer or rarer than those they are compared with "
    "decide nothing."
)


def variants(claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
    """Returns (model, preset) → its name; the model is left out where there is only one."""
    keys = list(dict.fromkeys((claim.model, claim.preset) for claim in claims))
    several = len({model for model, _ in keys}) > 1
    return {key: " · ".join(filter(None, [key[0] if several or not key[1] else "", _preset(key[1])])) for key in keys}


def main_variants(claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
    """Returns the variants without a model's claims that hold for all presets, which count in each of them."""
    found = variants(claims)
    with_presets = {model for model, preset in found if preset}
    return {(model, preset): name for (model, preset), name in found.items() if preset or model not in with_presets}


def claims_of(claims: Sequence[Claim], variant: tuple[str, str]) -> list[Claim]:
    """Returns the claims about a model and preset, those for all its presets included."""
    return [claim for claim in claims if claim.model == variant[0] and claim.preset in (variant[1], "")]


def _preset(name: str) -> str:
    return f"preset {name}" if name else ""


def counts_sentence(claims: Sequence[Claim]) -> str:
    """Says how many claims hold, fail and cannot be told."""
    counts = counted(claims)
    parts = [f"{n:,} {_WORDS[verdict][n != 1]}" for verdict, n in counts.items()]
    return f"{plural(len(claims), 'claim')}: {', '.join(parts)}"


def answer(claims: Sequence[Claim]) -> Html | None:
    """Returns the answer of the first screen: a line and a bar for each model and preset."""
    if not claims:
        return None
    lines: list[Node] = []
    for key, name in main_variants(claims).items():
        own = claims_of(claims, key)
        lines.append(
            tag(
                "li",
                tag("span", name, class_="variant"),
                tag("span", counts_sentence(own), class_="count"),
                _bar(own),
                [_listed(verdict, own) for verdict in ("holds", "fails")],
            )
        )
    return tag(
        "div",
        tag("h2", "Does what the paper says hold here?"),
        tag("ul", lines),
        tag("p", tag("a", "Every claim, with its reason", href="#claims")),
        class_="answer",
    )


def _listed(verdict: Verdict, claims: Sequence[Claim]) -> Html | None:
    texts = [claim.text for claim in claims if claim.verdict == verdict]
    if not texts:
        return None
    more = [f"and {len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    said = "; ".join([*texts[:_NAMED], *more])
    return tag("span", tag("b", f"{_WORDS[verdict][len(texts) != 1].capitalize()}: "), f"{said}.", class_="named")


def _bar(claims: Sequence[Claim]) -> Html:
    """Returns the shares of the verdicts as one bar; the sentence beside it says the same."""
    counts, start = counted(claims), 0.0
    parts: list[Node] = []
    for verdict in VERDICTS:
        width = 100 * counts[verdict] / len(claims)
        parts.append(tag("rect", x=f"{start:.2f}%", width=f"{width:.2f}%", height=9, class_=_CLASSES[verdict]))
        start += width
    return tag("svg", parts, class_="tally", width="100%", height=9, aria_hidden="true")


def claims_section(claims: Sequence[Claim]) -> Html:
    """Returns every claim with the verdict and the reason for each model and preset."""
    named = variants(claims)
    items: list[Node] = []
    for text, place in dict.fromkeys((claim.text, claim.place) for claim in claims):
        verdicts = [
            tag(
                "div",
                tag(
                    "dt",
                    tag("span", claim.verdict, class_=f"chip {_CLASSES[claim.verdict]}"),
                    tag("span", named[claim.model, claim.preset], class_="variant"),
                ),
                tag("dd", claim.why),
            )
            for claim in claims
            if (claim.text, claim.place) == (text, place)
        ]
        items.append(tag("li", tag("h3", text), tag("p", place, class_="place"), tag("dl", verdicts)))
    return section("claims", "What the paper says", _LEAD, tag("ol", items, class_="claims"))
