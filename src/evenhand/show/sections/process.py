"""The sections on cost, coverage and failures, and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from evenhand.core.format import DASH, count, duration, plural, share
from evenhand.core.types import Status, Usage
from evenhand.show import page
from evenhand.show.chart import Segment, arm_class, bar, stacked
from evenhand.show.markup import Html, Node, plain, tag
from evenhand.show.page import Part, details, footnote, section
from evenhand.show.table import Cell, Column, Content, Table, columns, html_of
from evenhand.show.view import View, arm_cell, arm_name, finished, money_cell, requests_per_sample, total_usage
from evenhand.studies.results import ArmResult

_STATUSES: tuple[Status, ...] = ("graded", "refused", "cut", "unscored", "failed")
_MEANING = {
    "graded": "an answer was read and graded",
    "refused": "the model declined to answer",
    "cut": "the reply reached its token limit before it held an answer",
    "unscored": "no answer could be read from the output",
    "failed": "a call or a step failed",
    "pending": "not run",
}


def process_parts(view: View) -> list[Part]:
    """Return the parts that say how something was measured, those that have something to show."""
    parts = (
        ("cost", "Cost", cost(view)),
        ("failures", "Failures", failures(view)),
        ("made", "How it was made", how_made(view)),
    )
    return [Part(name, title, html) for name, title, html in parts if html is not None]


def cost(view: View) -> Html | None:
    """Return the usage by arm and role; None without arms."""
    if not view.arms:
        return None
    rows: list[list[Content]] = []
    for arm in view.whole_arms:
        several = len(arm.usage) > 1
        for i, (role, usage) in enumerate(arm.usage.items()):
            time = "" if several else duration(arm.seconds)
            rows.append([arm_cell(view, arm) if i == 0 else None, role, *_amounts(usage, finished(arm)), time])
        if several or not arm.usage:
            name = arm_cell(view, arm) if not arm.usage else None
            rows.append([name, "all roles", *_amounts(total_usage(arm), finished(arm)), duration(arm.seconds)])
    scoring, scorer_note = view.study.scoring, ""
    if scoring.calls or scoring.cached_calls:
        rows.append(["Scorers", "all arms", *_amounts(scoring, sum(map(finished, view.whole_arms))), ""])
        scorer_note = " Scorers: calls that check judges by controls and score the answers, later rescoring too."
    lead = "Cached: requests answered from the cache; they are not counted as calls and cost nothing. "
    lead += "Time: the arm's share of the run's wall time." + scorer_note
    heads = columns("Arm", "Role", *_AMOUNTS, words=2)
    amounts = Table("Cost by arm and role", heads, rows, look="costs")
    return section("cost", "Cost", lead, _token_bars(view), html_of(amounts))


_AMOUNTS = ("Calls", "Cached", "Requests per sample", "Retries", "Tokens in", "Tokens out", "Money", "Time")


def _amounts(usage: Usage, samples: int) -> list[Content]:
    requests = usage.calls + usage.cached_calls
    cached = f"{count(usage.cached_calls)} ({share(usage.cached_calls, requests, 0)})" if usage.cached_calls else "0"
    numbers = [count(usage.calls), cached, requests_per_sample(usage, samples), count(usage.retries)]
    thoughts = [f"of which {count(usage.thought_tokens)} thoughts"] if usage.thought_tokens else []
    replies = Cell(count(usage.completion_tokens), value=usage.completion_tokens, notes=thoughts)
    return [*numbers, count(usage.prompt_tokens), replies, money_cell(usage.cost)]


def _token_bars(view: View) -> Html:
    most = max((total_usage(arm).tokens for arm in view.whole_arms), default=0)
    rows: list[Node] = []
    for arm in view.whole_arms:
        tokens = total_usage(arm).tokens
        label = f"{arm.label}: {count(tokens)} tokens"
        value = tag("span", f"{count(tokens)}", tag("small", _per_sample(tokens, finished(arm))), class_="bar-value")
        picture = bar(tokens / most if most else 0.0, None, arm_class(view.arm_index(arm.id)), label)
        rows.append(tag("div", arm_name(view, arm), picture, value, class_="bar-row"))
    return tag("figure", tag("figcaption", "Tokens, in and out"), rows, class_="bars")


def _per_sample(tokens: int, samples: int) -> str:
    return f"{count(round(tokens / samples))} per sample" if samples else "no samples"


def failures(view: View) -> Html | None:
    """Return how many samples were not graded, and why; None without arms."""
    if not view.whole_arms:
        return None
    lead = "Coverage is the share of graded samples among those that were run. Refused, cut, unreadable and failed "
    lead += "samples are counted here and excluded from all metrics; they never count as an answer."
    bars = [_status_bar(view, arm) for arm in view.whole_arms]
    pending = sum(arm.pending for arm in view.whole_arms)
    stopped = tag("p", _stopped(view), class_="stopped") if pending else None
    return section(
        "failures",
        "Coverage and failures",
        lead,
        stopped,
        _keys(view),
        tag("div", bars),
        _readings(view),
        _reasons(view),
    )


def _stopped(view: View) -> str:
    pending = [f"{arm.label} {count(arm.pending)}" for arm in view.whole_arms if arm.pending]
    return f"The run was stopped early. Samples not run: {', '.join(pending)}."


def _keys(view: View) -> Html:
    names = [*_STATUSES, "pending"] if any(arm.pending for arm in view.whole_arms) else list(_STATUSES)
    items = [
        tag(
            "li",
            tag("span", class_=f"key part-{name}", aria_hidden="true"),
            tag("b", name),
            f" {_MEANING[name]}",
        )
        for name in names
    ]
    return tag("ul", items, class_="legend keys")


def _status_bar(view: View, arm: ArmResult) -> Html:
    counts: dict[str, int] = {name: arm.statuses.get(name, 0) for name in _STATUSES}
    run = finished(arm)
    counts["pending"] = arm.pending
    segments = [Segment(name, n, f"{name}: {count(n)}") for name, n in counts.items()]
    words = [f"{count(n)} {name}" for name, n in counts.items() if n]
    if arm.at_limit:
        words.append(f"{plural(arm.at_limit, 'answer')} read although the token limit was reached")
    summary = ", ".join(words) or "no samples"
    return tag(
        "div",
        tag(
            "p",
            arm_name(view, arm),
            tag("span", tag("b", share(counts["graded"], run)), f" coverage of {plural(run, 'sample')} run"),
            class_="status-head",
        ),
        stacked(segments, f"{arm.label}: {summary}"),
        footnote(summary),
        class_="status",
    )


_READINGS = {
    "logprobs": "expected values by logprobs",
    "samples": "means of sampled replies",
    "written": "the numbers as written",
    "judges_agreed": "judges that agreed",
    "judges_disagreed": "judges that disagreed by 20 points of 100 or more",
}


def _readings(view: View) -> Html | None:
    """Return how the judges' ratings were read, if there were judges."""
    arms = [arm for arm in view.whole_arms if arm.readings]
    lines = [f"{arm.label}: {'; '.join(_in_samples(*each) for each in arm.readings.items())}." for arm in arms]
    return footnote(["How ratings of judges were read. ", " ".join(lines)]) if arms else None


def _in_samples(reading: str, n: int) -> str:
    words = " and ".join(_READINGS.get(each, each) for each in reading.split(" and "))
    return f"{words} in {plural(n, 'sample')}"


def _reasons(view: View) -> Html | None:
    rows: list[list[Content]] = [
        [arm_cell(view, arm), status, reason, count(n)] for arm in view.whole_arms for status, reason, n in arm.reasons
    ]
    if not rows:
        return None
    heads = [Column("Arm"), Column("Status"), Column("Reason", look="reason"), Column("Samples", numeric=True)]
    return html_of(Table("Reasons", heads, rows, look="reasons"))


def how_made(view: View) -> Html | None:
    """Return the plan, versions and hashes; None if nothing was recorded."""
    lead = "Everything needed to repeat this study. The same plan, seed and answers give the same numbers."
    facts = cast("dict[str, Any]", plain(view.study.provenance))
    if not facts:
        return None
    raw = json.dumps(facts, ensure_ascii=False, indent=2)
    same = details("The same as JSON", tag("pre", raw, tabindex=0))
    return section("made", "How it was made", lead, _chapters(facts), same)


def _chapters(facts: Mapping[str, Any]) -> list[Node]:
    """Fold every group of facts (one per run) under its name; list single facts together."""
    groups = {key: cast("Mapping[str, Any]", value) for key, value in facts.items() if isinstance(value, Mapping)}
    single = {key: value for key, value in facts.items() if key not in groups}
    chapters: list[Node] = [_facts(single)] if single else []
    return chapters + [details(key, _facts(group)) for key, group in groups.items()]


def _facts(facts: Mapping[str, Any]) -> Html:
    """Return a definition list, nested like the facts; what is not set is only in the JSON."""
    return page.facts((key, _fact(each)) for key, each in facts.items() if each is not None and each not in ({}, []))


def _fact(value: Any) -> Node:
    if isinstance(value, Mapping) and value:
        return _facts(cast("Mapping[str, Any]", value))
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        if not any(isinstance(item, dict | list) for item in items):
            return ", ".join(_word(item) for item in items)
        return tag("ol", [tag("li", _fact(item)) for item in items], class_="fact-list")
    return _word(value)


def _word(value: Any) -> str:
    if value is None or value in ({}, []):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
