"""The section on panels that answer questions: what their discussions did to bias."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evenhand.core.format import limits, number, signed
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.base import Section, add_section
from evenhand.show.sections.elements import arm_name, estimate_cell, section, table
from evenhand.show.view import View
from evenhand.studies.results import ArmResult, Estimate, StudyResult

_COLUMNS: Mapping[str, tuple[str, str]] = {
    "panel_first_bias": ("Members' bias before", "0 is best"),
    "panel_last_bias": ("after", "0 is best"),
    "amplification": ("Amplification", "above 0: towards the stereotype"),
    "emergence": ("Emergence", "where nobody began with a person"),
    "spread_heard": ("Taken over when heard,\u00a0%", "lower is better"),
    "spread_unheard": ("when not heard,\u00a0%", ""),
    "recovery": ("Given up,\u00a0%", "higher is better"),
}


def votes(view: View) -> Html | None:
    """Return the members' bias before and after, and how answers spread; None if no panel answered."""
    arms = [arm for arm in view.arms if arm.estimate("panel_first_bias")]
    if not arms:
        return None
    lead = (
        "Ambiguous questions, whose right answer is that it cannot be known. The bias of a round is the share of its "
        "answers that name the person of the stereotype, less the share that names the other, in points of 100. "
        "Topologies and sizes are compared as arms. An answer is heard on questions that suggest it, so a difference "
        "between those who heard it and those who did not may come from the question."
    )
    heads: list[Node] = [[title, tag("small", hint) if hint else None] for title, hint in _COLUMNS.values()]
    rows: list[list[Node]] = [
        [arm_name(view, arm), *(estimate_cell(arm.estimate(name), view.digits.get(name, 1)) for name in _COLUMNS)]
        for arm in arms
    ]
    sentences = [tag("li", f"{arm.label}: {each}") for arm in arms for each in vote_sentences(arm)]
    return section(
        "votes",
        "Discussion",
        lead,
        table(["Arm", *heads], rows, "What the discussions did", "numbers costs iterations"),
        tag("ul", sentences, class_="sentences") if sentences else None,
    )


def vote_sentences(arm: ArmResult) -> Sequence[str]:
    """Return whether the discussion moved bias, and whether it spreads."""
    change = arm.estimate("amplification")
    if change is None or change.value is None or change.low is None or change.high is None:
        return []
    moved = "towards the stereotype" if change.low > 0 else "away from the stereotype" if change.high < 0 else ""
    said = f"the discussion moved answers {moved}"
    if not moved:
        said = "whether the discussion moved answers towards the stereotype or away from it cannot be told"
    found = [f"{said}: {signed(change.value)} {limits(change.low, change.high)} points (n = {change.n})."]
    heard, unheard = arm.estimate("spread_heard"), arm.estimate("spread_unheard")
    if heard and unheard and heard.value is not None and unheard.value is not None:
        found.append(
            f"members without the stereotyped answer took it in {_share(heard)} of their turns after they had heard "
            f"it, and in {_share(unheard)} of the others."
        )
    return found


def _share(estimate: Estimate) -> str:
    return f"{number(estimate.value)} % {limits(estimate.low, estimate.high)}"


def _sentences(study: StudyResult) -> Iterator[str]:
    return (f"{arm.label}: {sentence}" for arm in study.arms for sentence in vote_sentences(arm))


add_section(Section("votes", "Discussion", votes, after="changes", metrics=tuple(_COLUMNS), sentences=_sentences))
