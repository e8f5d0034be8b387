"""The sections of BBQ: a judge's ratings of the reasoning, and what the discussions of panels did to bias."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evenhand.core.format import count, difference, limits, number
from evenhand.show.markup import Html, tag
from evenhand.show.page import details, section, sentences
from evenhand.show.sections import Section, add_section
from evenhand.show.table import Cell, Column, Content, Table, html_of
from evenhand.show.view import ALL, View, arm_cell, estimate_cell, group_label
from evenhand.stats import side_of
from evenhand.studies.results import ArmResult, Estimate

_METRICS = ("reasoning_bias_before", "reasoning_bias", "relevancy_before", "relevancy", "joint_success")
_LEGACY_METRICS = ("legacy_bias_before", "legacy_bias")

Columns = Mapping[str, tuple[str, str]]
"""Metric without its context → (title, which direction is better)."""

_CONTEXTS = {"": "all", "_ambig": "ambiguous", "_disambig": "disambiguated"}
"""Suffix of a metric's name → its context."""
_TOWARD = {-1: "away from the stereotype", 0: "", 1: "towards the stereotype"}
_RATINGS: Columns = {
    "reasoning_bias_before": ("Bias before", "1 is none"),
    "reasoning_bias": ("after", ""),
    "reasoning_bias_change": ("change", "lower is better"),
    "relevancy_before": ("Relevancy before", "10 is best"),
    "relevancy": ("after", ""),
    "relevancy_change": ("change", "higher is better"),
    "debiased": ("Debiased,\u00a0%", "higher is better"),
    "joint_success": ("Right and debiased,\u00a0%", "higher is better"),
}
_ANSWERS: Columns = {
    "first_accuracy": ("Accuracy first,\u00a0%", ""),
    "accuracy": ("final,\u00a0%", "higher is better"),
    "first_bias": ("Bias first", ""),
    "bias": ("final", "0 is best"),
}
_LEGACY: Columns = {
    "legacy_bias_before": ("Legacy bias first", ""),
    "legacy_bias": ("final", "not the BBQ score"),
}


def reasoning(view: View) -> Html | None:
    """Return ratings before and after, then first and final answers; None if no reasoning was rated."""
    if not any(metric.name in (*_METRICS, *_LEGACY_METRICS) for metric in view.metrics):
        return None
    lead = "A judge rated the reasoning behind the answers from 1 to 10. Before: the first reasoning. After: the "
    lead += "reasoning behind the final answer. Changes are computed per sample, so every sample is its own control."
    arms = [arm for arm in view.arms if arm.estimate("reasoning_bias")]
    has_legacy = any(metric.name in _LEGACY_METRICS for metric in view.metrics)
    answers = {**_ANSWERS, **_LEGACY} if has_legacy else _ANSWERS
    return section(
        "reasoning",
        "Reasoning",
        lead,
        html_of(_by_context(view, arms, _RATINGS, ("", "_ambig", "_disambig"), "Ratings by context")),
        tag("h3", "First and final answers"),
        html_of(_by_context(view, arms, answers, ("_ambig", "_disambig"), "First and final answers")),
        details("Ratings by group, as a table", html_of(_by_group(view, arms))),
    )


def _by_context(view: View, arms: Sequence[ArmResult], shown: Columns, contexts: Sequence[str], title: str) -> Table:
    rows: list[list[Content]] = []
    for arm in arms:
        for i, context in enumerate(contexts):
            names = [f"{name}{context}" for name in shown]
            name = arm_cell(view, arm) if i == 0 else None
            rows.append([name, _CONTEXTS[context], *_cells(view, arm, names, ALL)])
    return Table(title, [Column("Arm"), Column("Context"), *_heads(shown)], rows, look="costs iterations")


def _by_group(view: View, arms: Sequence[ArmResult]) -> Table:
    groups = [group for group in view.groups if group != ALL]
    rows: list[list[Content]] = [
        [group_label(group) if i == 0 else None, arm_cell(view, arm), *_cells(view, arm, list(_RATINGS), group)]
        for group in groups
        for i, arm in enumerate(arms)
    ]
    heads = [Column("Group"), Column("Arm"), *_heads(_RATINGS)]
    return Table("Ratings by group", heads, rows, look="costs iterations")


def _heads(shown: Columns) -> list[Column]:
    return [Column(title, numeric=True, hint=hint) for title, hint in shown.values()]


def _cells(view: View, arm: ArmResult, names: Sequence[str], group: str) -> list[Cell]:
    return [estimate_cell(arm.estimate(name, group), view.digits.get(name, 1)) for name in names]


add_section(Section("reasoning", "Reasoning", reasoning, after="changes", metrics=(*_METRICS, *_LEGACY_METRICS)))


# --- panels that answer questions ---

_VOTES: Columns = {
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
    rows: list[list[Content]] = [[arm_cell(view, arm), *_cells(view, arm, list(_VOTES), ALL)] for arm in arms]
    table = Table("What the discussions did", [Column("Arm"), *_heads(_VOTES)], rows, look="costs iterations")
    said = _sentences(arms)
    return section(
        "votes",
        "Discussion",
        lead,
        html_of(table),
        sentences(said) if said else None,
        *(html_of(each) for each in _node_tables(arms)),
    )


def _sentences(arms: Sequence[ArmResult]) -> list[str]:
    return [f"{arm.label}: {each}" for arm in arms for each in (*vote_sentences(arm), *node_sentences(arm))]


_NODES: Columns = {
    "node_first": ("Bias alone", "0 is best"),
    "node_last": ("after the discussion", "0 is best"),
    "node_change": ("Change", "above 0: towards the stereotype"),
    "node_over_alone": ("Over the model without a panel", "paired by question"),
    "node_over_shuffled": ("Over the role in the shuffled graph", "paired by question"),
}
_EDGES: Columns = {
    "edge_taken": ("Stereotype taken over when heard from it,\u00a0%", "lower is better"),
    "edge_taken_otherwise": ("after another answer of it,\u00a0%", ""),
    "edge_carried": ("Move after its stereotype", "above 0: towards the stereotype"),
}


def _node_tables(arms: Sequence[ArmResult]) -> Iterator[Table]:
    """Yield the bias of each member, and what passes from whom to whom."""
    for title, first, shown in (("Bias by node", "Node", _NODES), ("Along the edges", "From → to", _EDGES)):
        rows: list[list[Content]] = []
        for arm in arms:
            by_name: dict[str, dict[str, Estimate]] = {}
            for each in arm.nodes:
                if each.metric in shown:
                    by_name.setdefault(each.group, {})[each.metric] = each
            for place, (name, found) in enumerate(by_name.items()):
                label = arm.label if place == 0 else None
                rows.append([label, name, *(estimate_cell(found.get(metric)) for metric in shown)])
        if rows:
            yield Table(title, [Column("Arm"), Column(first), *_heads(shown)], rows, look="costs iterations")


def node_sentences(arm: ArmResult) -> Iterator[str]:
    """Yield the members and edges whose limits, which hold for all of them at once, are beyond 0."""
    words = {
        "node_first": "{} is biased before it hears anybody",
        "node_change": "the discussion moves {}",
        "node_over_alone": "{} ends otherwise than the model without a panel",
        "node_over_shuffled": "{} ends otherwise than in the shuffled graph",
        "edge_carried": "{}: the listener moves after a stereotyped answer",
    }
    for each in arm.nodes:
        toward = _TOWARD[side_of(each.low, each.high)]
        if each.metric in words and each.value is not None and toward:
            value = difference(each.value, each.low, each.high)
            yield f"{words[each.metric].format(each.group)}, {toward}: {value} points (n = {count(each.n)})."


def vote_sentences(arm: ArmResult) -> Sequence[str]:
    """Return whether the discussion moved bias, and whether it spreads."""
    change = arm.estimate("amplification")
    if change is None or change.value is None or change.low is None or change.high is None:
        return []
    moved = _TOWARD[side_of(change.low, change.high)]
    said = f"the discussion moved answers {moved}"
    if not moved:
        said = "whether the discussion moved answers towards the stereotype or away from it cannot be determined"
    found = [f"{said}: {difference(change.value, change.low, change.high)} points (n = {count(change.n)})."]
    heard, unheard = arm.estimate("spread_heard"), arm.estimate("spread_unheard")
    if heard and unheard and heard.value is not None and unheard.value is not None:
        found.append(
            f"members without the stereotyped answer took it in {_share(heard)} of their turns after they had heard "
            f"it, and in {_share(unheard)} of the others."
        )
    return found


def _share(estimate: Estimate) -> str:
    return f"{number(estimate.value)} % {limits(estimate.low, estimate.high)}"


add_section(
    Section(
        "votes",
        "Discussion",
        votes,
        after="changes",
        metrics=tuple(_VOTES),
        tables=lambda study: _node_tables(study.arms),
        sentences=lambda study: _sentences(study.arms),
    )
)
