"""The record of an answer: its checks, the action taken and the reasons. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evenhand.types import Turn, Usage

Action = Literal["passed", "revised", "flagged", "blocked", "unrevised"]
"""`unrevised`: something failed the checks and no better answer was found."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one evaluator for one text."""

    name: str
    score: float | None
    """On the evaluator's own scale; None where the text could not be scored, and `problem` says why."""
    limit: float | None
    passed: bool
    words: str = ""
    """The evaluator's critique."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Guarded:
    """An answer that went through the guard, with the record of what was changed and why."""

    text: str
    """The text that the client receives; empty if the answer is only tool calls."""
    message: Mapping[str, Any]
    """The assistant message in OpenAI's form: content, tool_calls, refusal, …"""
    finish: str
    """OpenAI's finish_reason."""
    action: Action
    why: tuple[str, ...] = ()
    """The checks that the first answer failed, and other reasons in words."""
    first: str = ""
    """The model's first answer."""
    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()
    late: bool = False
    """Whether the latency budget was used up."""
    iterations: int = 0
    """The number of revisions."""
    usage: Usage = Usage()
    """The usage of all calls for this answer."""
    trace: tuple[Turn, ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by stage: `answer`, `checks`, `revision`, `total`."""
    upstream: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The raw response that holds the returned answer; empty where there is none."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a streamed answer that has passed its checks; the last one carries the whole record."""

    text: str
    checks: tuple[Check, ...] = ()
    final: Guarded | None = None
