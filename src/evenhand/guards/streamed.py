"""The record of an answer that was released in segments. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.guards.checks import failed
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.reply import StreamedReply
from evenhand.guards.settle import LATE, TOOLS
from evenhand.guards.types import Action, Check, Guarded


@dataclass(frozen=True, slots=True)
class Streamed:
    """What is known at the end of a stream."""

    text: str
    """All that was released, the notice of a blocked rest included."""
    replies: Sequence[StreamedReply]
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    blocked: bool
    failing: bool
    """Whether something was released although it failed."""
    late: bool
    problems: tuple[str, ...]


def streamed(found: Streamed, policy: GuardPolicy) -> Guarded:
    """The record; the message is what all segments together say."""
    first, last = found.replies[0], found.replies[-1]
    message: dict[str, Any] = {"role": "assistant", "content": found.text or None}
    notes: dict[str, Any] = {}
    if last.refusal and not found.blocked:
        message["refusal"] = last.refusal
    if last.tool_calls and not found.blocked:
        message["tool_calls"] = last.tool_calls
        notes["tools"] = TOOLS
    why = [*failed(found.before), *found.problems, *((LATE,) if found.late else ())]
    return Guarded(
        text=found.text,
        message=message,
        finish="content_filter" if found.blocked else last.finish,
        action=_action(found, policy),
        why=tuple(dict.fromkeys(why)),
        first=first.text or first.refusal,
        before=found.before,
        after=found.after,
        late=found.late,
        iterations=len(found.replies) - 1,
        upstream=last.head,
        notes=notes,
    )


def _action(found: Streamed, policy: GuardPolicy) -> Action:
    if found.blocked:
        return "blocked"
    if found.failing:
        return "unrevised" if policy.action == "revise" else "flagged"
    return "revised" if len(found.replies) > 1 else "passed"
