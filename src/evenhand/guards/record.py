"""The record of an answer: what the policy makes of it, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.guards.checks import failed
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.reply import StreamedReply
from evenhand.guards.request import RawAnswer
from evenhand.guards.types import Action, Check, Guarded

LATE = "the latency budget was used up"
TOOLS = "tool calls are not checked"
REASONING = "the model's reasoning was left out, since it is not checked"
_UNCHECKED = ("reasoning", "reasoning_content", "reasoning_details")


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The state when an answer is chosen."""

    text: str
    raw: RawAnswer | None
    """The upstream's answer with this text; None if the method wrote it."""
    first: RawAnswer
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    checked: bool = True
    """Whether this guard checks anything at all."""
    late: bool = False
    wordless: bool = False
    wants_json: bool = False
    method: str = "default"
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The state at the end of a stream."""

    text: str
    """The released text, plus the replacement text if the rest was blocked."""
    replies: Sequence[StreamedReply]
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    blocked: bool
    failing: bool
    """Whether something was released although it failed."""
    late: bool
    problems: tuple[str, ...]


def record_whole(answer: WholeAnswer, policy: GuardPolicy) -> Guarded:
    """The record of an answer that was checked as a whole."""
    action = decide(answer, policy)
    why = [*failed(answer.before), *answer.problems]
    if action == "revised" and not why:
        why.append(f"the method {answer.method}")
    if answer.late:
        why.append(LATE)
    notes: dict[str, Any] = {}
    upstream: Mapping[str, Any] = {}
    if action == "blocked":
        text, finish = policy.blocked_text, "content_filter"
        message = _blocked_message(policy, as_refusal=answer.wants_json)
    else:
        text = answer.text
        message, finish, upstream = _returned(answer)
        if answer.checked and any(message.get(name) for name in _UNCHECKED):
            message = {name: value for name, value in message.items() if name not in _UNCHECKED}
            upstream = _with_message(upstream, message)
            notes["reasoning"] = REASONING
        if message.get("tool_calls") or message.get("function_call"):
            notes["tools"] = TOOLS
    return Guarded(
        text=text,
        message=message,
        finish=finish,
        action=action,
        why=tuple(dict.fromkeys(why)),
        first=answer.first.text or answer.first.refusal,
        before=answer.before,
        after=answer.after,
        late=answer.late,
        upstream=upstream,
        notes=notes,
    )


def decide(answer: WholeAnswer, policy: GuardPolicy) -> Action:
    """Return the action for an answer, from its checks and the policy."""
    changed = not answer.wordless and answer.text != answer.first.text
    if all(check.passed for check in answer.after):
        return "revised" if changed else "passed"
    if policy.action == "flag":
        return "flagged"
    if policy.action == "block":
        return "blocked"
    return "revised" if changed else "unrevised"


def _blocked_message(policy: GuardPolicy, *, as_refusal: bool = False) -> dict[str, Any]:
    """The configured text as an answer; if JSON was asked for, as a refusal, which clients do not parse."""
    if as_refusal:
        return {"role": "assistant", "content": None, "refusal": policy.blocked_text}
    return {"role": "assistant", "content": policy.blocked_text}


def _returned(answer: WholeAnswer) -> tuple[Mapping[str, Any], str, Mapping[str, Any]]:
    """Return the message, its finish reason and the raw reply that contains them."""
    if answer.raw is None:
        return {"role": "assistant", "content": answer.text}, "stop", {}
    message, finish = answer.raw.message, answer.raw.finish
    calls = answer.first.message.get("tool_calls")
    if calls and answer.raw is not answer.first:
        # Only the text was revised; the model's tool calls are kept.
        message, finish = {**message, "tool_calls": calls}, answer.first.finish
    choice = {**answer.raw.choice, "message": message, "finish_reason": finish}
    return message, finish, {**answer.raw.reply, "choices": [choice]}


def _with_message(upstream: Mapping[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not upstream:
        return upstream
    return {**upstream, "choices": [{**upstream["choices"][0], "message": message}]}


def record_stream(answer: StreamedAnswer, policy: GuardPolicy) -> Guarded:
    """The record of an answer that was released in segments; the message is what they say together."""
    first, last = answer.replies[0], answer.replies[-1]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    notes: dict[str, Any] = {}
    if last.refusal and not answer.blocked:
        message["refusal"] = last.refusal
    if last.tool_calls and not answer.blocked:
        message["tool_calls"] = last.tool_calls
        notes["tools"] = TOOLS
    why = [*failed(answer.before), *answer.problems, *((LATE,) if answer.late else ())]
    return Guarded(
        text=answer.text,
        message=message,
        finish="content_filter" if answer.blocked else last.finish,
        action=_stream_action(answer, policy),
        why=tuple(dict.fromkeys(why)),
        first=first.text or first.refusal,
        before=answer.before,
        after=answer.after,
        late=answer.late,
        iterations=len(answer.replies) - 1,
        upstream=last.head,
        notes=notes,
    )


def _stream_action(answer: StreamedAnswer, policy: GuardPolicy) -> Action:
    if answer.blocked:
        return "blocked"
    if answer.failing:
        return "unrevised" if policy.action == "revise" else "flagged"
    return "revised" if len(answer.replies) > 1 else "passed"
