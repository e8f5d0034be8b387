"""What the policy makes of an answer and its checks: the message that the client gets, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.guards.checks import failed
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.request import Made
from evenhand.guards.types import Action, Check, Guarded

LATE = "the latency budget was used up"
TOOLS = "tool calls are not checked"
REASONING = "the model's reasoning was left out, since it is not checked"
_UNCHECKED = ("reasoning", "reasoning_content", "reasoning_details")


@dataclass(frozen=True, slots=True)
class Settled:
    """All that decides about an answer."""

    text: str
    made: Made | None
    """The upstream's answer with this text; None where a method wrote it."""
    first: Made
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    checked: bool = True
    """Whether this guard checks anything at all."""
    late: bool = False
    wordless: bool = False
    wants_json: bool = False
    method: str = "default"
    problems: tuple[str, ...] = ()


def settled(found: Settled, policy: GuardPolicy) -> Guarded:
    """The answer as the policy lets it pass."""
    action = decide(found, policy)
    why = [*failed(found.before), *found.problems]
    if action == "revised" and not why:
        why.append(f"the method {found.method}")
    if found.late:
        why.append(LATE)
    notes: dict[str, Any] = {}
    upstream: Mapping[str, Any] = {}
    if action == "blocked":
        text, finish = policy.blocked_text, "content_filter"
        message = blocked_message(policy, as_refusal=found.wants_json)
    else:
        text = found.text
        message, finish, upstream = _returned(found)
        if found.checked and any(message.get(name) for name in _UNCHECKED):
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
        first=found.first.text or found.first.refusal,
        before=found.before,
        after=found.after,
        late=found.late,
        upstream=upstream,
        notes=notes,
    )


def decide(found: Settled, policy: GuardPolicy) -> Action:
    """What happened to the answer, by its checks and the policy."""
    changed = not found.wordless and found.text != found.first.text
    if all(check.passed for check in found.after):
        return "revised" if changed else "passed"
    if policy.action == "flag":
        return "flagged"
    if policy.action == "block":
        return "blocked"
    return "revised" if changed else "unrevised"


def blocked_message(policy: GuardPolicy, *, as_refusal: bool = False) -> dict[str, Any]:
    """The configured text as an answer; where JSON was asked for, as a refusal, which clients do not parse."""
    if as_refusal:
        return {"role": "assistant", "content": None, "refusal": policy.blocked_text}
    return {"role": "assistant", "content": policy.blocked_text}


def _returned(found: Settled) -> tuple[Mapping[str, Any], str, Mapping[str, Any]]:
    """The message, its finish reason and the raw reply that holds them."""
    if found.made is None:
        return {"role": "assistant", "content": found.text}, "stop", {}
    message, finish = found.made.message, found.made.finish
    calls = found.first.message.get("tool_calls")
    if calls and found.made is not found.first:
        # Only the words were revised: what the model wants to do stands.
        message, finish = {**message, "tool_calls": calls}, found.first.finish
    choice = {**found.made.choice, "message": message, "finish_reason": finish}
    return message, finish, {**found.made.reply, "choices": [choice]}


def _with_message(upstream: Mapping[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not upstream:
        return upstream
    return {**upstream, "choices": [{**upstream["choices"][0], "message": message}]}
