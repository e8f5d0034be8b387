"""The record of an answer: what the policy makes of it, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.guards.checks import failed, is_unchecked
from evenhand.guards.fields import allowed_head, allowed_logprobs, allowed_message, allowed_reply, finish_of, left_out
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.reply import StreamedReply
from evenhand.guards.request import RawAnswer
from evenhand.guards.types import Action, Check, Guarded

LATE = "the latency budget was used up"
TOOLS = "tool calls are not checked"


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
    better: bool = False
    """Whether the text does better in the checks than the first answer."""
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
    unchecked: bool
    """Whether something was released that could not be checked."""
    checked: bool
    """Whether this guard checks anything at all."""
    late: bool
    problems: tuple[str, ...]


def record_whole(answer: WholeAnswer, policy: GuardPolicy, **more: Any) -> Guarded:
    """The record of an answer that was checked as a whole, with `more` fields of it."""
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
        message = blocked_message(policy.blocked_text, as_refusal=answer.wants_json)
    else:
        text = answer.text
        message, finish, upstream = _returned(answer)
        if answer.checked and answer.raw and (names := left_out(answer.raw.message, message)):
            notes["left_out"] = f"fields that are not checked were left out: {', '.join(names)}"
        if has_calls(message) and policy.tool_arguments == "pass":
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
        **more,
    )


def decide(answer: WholeAnswer, policy: GuardPolicy) -> Action:
    """Return the action for an answer, from its checks and the policy."""
    changed = not answer.wordless and answer.text != answer.first.text
    unchecked = any(map(is_unchecked, answer.after))
    if unchecked and (policy.unchecked or policy.action) == "block":
        return "blocked"
    if any(not check.passed and not is_unchecked(check) for check in answer.after):
        return _failing_action(policy, changed=answer.better)
    if unchecked or _is_passed_on(policy, checked=answer.checked, calls=has_calls(answer.first.message)):
        return "unchecked"
    return "revised" if changed else "passed"


def has_calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def _is_passed_on(policy: GuardPolicy, *, checked: bool, calls: bool) -> bool:
    """Whether an answer, or its tool calls, were not to be checked; under `flag`, a plain pass-through is meant."""
    return policy.tool_arguments == "pass" and calls if checked else policy.action != "flag"


def _failing_action(policy: GuardPolicy, *, changed: bool) -> Action:
    if policy.action == "flag":
        return "flagged"
    if policy.action == "block":
        return "blocked"
    return "tried" if changed else "unrevised"


def blocked_message(text: str, *, as_refusal: bool = False) -> dict[str, Any]:
    """The configured text as an answer; if JSON was asked for, as a refusal, which clients do not parse."""
    if as_refusal:
        return {"role": "assistant", "content": None, "refusal": text}
    return {"role": "assistant", "content": text}


def _returned(answer: WholeAnswer) -> tuple[Mapping[str, Any], str, Mapping[str, Any]]:
    """Return the message, its finish reason and the reply that contains them, with checked fields only."""
    if answer.raw is None:
        return {"role": "assistant", "content": answer.text}, "stop", {}
    if not answer.checked:
        choice = {**answer.raw.choice, "message": answer.raw.message, "finish_reason": answer.raw.finish}
        return answer.raw.message, answer.raw.finish, {**answer.raw.reply, "choices": [choice]}
    message, finish = allowed_message(answer.raw.message, answer.text), finish_of(answer.raw.finish)
    logprobs = None
    if answer.raw is answer.first:
        logprobs = allowed_logprobs(answer.raw.choice.get("logprobs"), answer.text)
    else:
        # Only the text was revised; the model's tool calls are kept.
        kept = allowed_message(answer.first.message, "")
        message = {"role": "assistant", "content": answer.text}
        if has_calls(kept):
            calls = {name: kept[name] for name in ("tool_calls", "function_call") if name in kept}
            message, finish = message | calls, finish_of(answer.first.finish)
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
    return message, finish, allowed_reply(answer.raw.reply, choice)


def record_stream(answer: StreamedAnswer, policy: GuardPolicy, **more: Any) -> Guarded:
    """The record of an answer that was released in segments; the message is what they say together."""
    first, last = answer.replies[0], answer.replies[-1]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    notes: dict[str, Any] = {}
    if last.refusal and not answer.blocked:
        message["refusal"] = last.refusal
    if last.tool_calls and not answer.blocked:
        message["tool_calls"] = last.tool_calls
        if policy.tool_arguments == "pass":
            notes["tools"] = TOOLS
    why = [*failed(answer.before), *answer.problems, *((LATE,) if answer.late else ())]
    return Guarded(
        text=answer.text,
        message=message,
        finish="content_filter" if answer.blocked else finish_of(last.finish),
        action=_stream_action(answer, policy),
        why=tuple(dict.fromkeys(why)),
        first=first.text or first.refusal,
        before=answer.before,
        after=answer.after,
        late=answer.late,
        iterations=len(answer.replies) - 1,
        upstream=allowed_head(last.head) if answer.checked else last.head,
        notes=notes,
        **more,
    )


def _stream_action(answer: StreamedAnswer, policy: GuardPolicy) -> Action:
    if answer.blocked:
        return "blocked"
    revised = len(answer.replies) > 1
    if answer.failing:
        return "flagged" if policy.action != "revise" else "tried" if revised else "unrevised"
    calls = bool(answer.replies[-1].tool_calls)
    if answer.unchecked or _is_passed_on(policy, checked=answer.checked, calls=calls):
        return "unchecked"
    return "revised" if revised else "passed"
