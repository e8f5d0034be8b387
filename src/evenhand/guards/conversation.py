"""A request's conversation: the raw messages, which stay unchanged, and their text, which evaluators read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from evenhand.core.types import Message, Role
from evenhand.guards.upstream import BadRequest

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}


def conversation_in(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the text of every message of a request; raise BadRequest if it is not a conversation."""
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("A request needs messages: a list of {role, content}.", "messages")
    return tuple(_worded(each, number) for number, each in enumerate(cast(list[Any], messages)))


def request_body(messages: Sequence[Mapping[str, Any] | Message], params: Mapping[str, Any]) -> dict[str, Any]:
    """Build a request from messages, as `Message` or as mappings."""
    given = cast(object, messages)
    listed = cast(Sequence[object], given) if isinstance(given, list | tuple) else None
    if listed is None or not all(isinstance(each, Message | Mapping) for each in listed):
        raise BadRequest('Messages are a list, e.g. [{"role": "user", "content": "Hello!"}].', "messages")
    raw = [
        {"role": each.role, "content": each.content} if isinstance(each, Message) else dict(each) for each in messages
    ]
    return {**params, "messages": raw}


def last_words(conversation: Sequence[Message]) -> str:
    """Return the last user message."""
    return next((each.content for each in reversed(conversation) if each.role == "user"), conversation[-1].content)


def content_words(content: Any) -> str:
    """Return the text of a message's content; other content is named in brackets."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(_part(part) for part in cast(list[Any], content))


def is_plain(body: Mapping[str, Any]) -> bool:
    """Return whether the conversation is text only, so that any model can read it."""
    return not body.get("tools") and all(
        isinstance(each.get("content"), str) and each["role"] in ("system", "user", "assistant") and len(each) == 2
        for each in body["messages"]
    )


def _worded(message: Any, number: int) -> Message:
    raw: dict[str, Any] = cast(dict[str, Any], message) if isinstance(message, dict) else {}
    role = _ROLES.get(str(raw.get("role")))
    if role is None:
        place = f"messages[{number}]"
        raise BadRequest(f"{place} needs a role: system, user, assistant or tool.", place)
    return Message(role, content_words(raw.get("content")))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    named = cast(Mapping[str, Any], part)
    text = named.get("text") or named.get("refusal")
    return text if isinstance(text, str) else f"[{str(named.get('type') or 'part').removesuffix('_url')}]"
