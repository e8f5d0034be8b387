"""The fields of an answer that reach a client: a list of what is allowed. Pure functions.

Whatever else an endpoint sends (thoughts, audio, annotations, fields of its own) is not checked, so it is left out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import orjson

from evenhand.core.types import LARGEST_COUNT

T = TypeVar("T")
Halves = Literal["refused", "kept", "mended"]
_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")
_TEXT_PARTS = ("text", "output_text")
CALLED = {"function": "arguments", "custom": "input"}
"""The kinds of tool calls, and the field with what the model wrote."""
WRITTEN = ("refusal", "reasoning_content", "reasoning", "thinking")
"""Fields with text beside the content."""
_NAME = re.compile(r"[\w.:|/+=-]{1,128}")
"""Names and ids; anything else in their place is checked like text."""
_RANDOM = re.compile(
    r"(?:[a-z]{1,10}[_-]){0,2}(?=[A-Za-z_-]*[0-9])(?:[0-9a-f]{6,64}|[0-9a-f-]{36}|[A-Za-z0-9]{20,64})"
    r"|(?:(?:call|tool|toolu|function|fc|ctc|chatcmpl|msg|rs|id|[a-z])[_-]?)?[0-9]{0,20}"
)
"""Ids that say nothing."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_A-Za-z]+|[0-9]+")
_REPLY = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_FINGERPRINT = re.compile(r"(?:fp_?)?[0-9a-f]{0,64}")
_TIERS = ("auto", "default", "flex", "priority", "scale", "standard")
_COUNTS = frozenset(
    {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "input_tokens_details",
        "output_tokens_details",
        "cached_tokens",
        "audio_tokens",
        "reasoning_tokens",
        "text_tokens",
        "image_tokens",
        "accepted_prediction_tokens",
        "rejected_prediction_tokens",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    }
)
"""The fields of a usage."""
_BEGINNINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{]', re.DOTALL)
"""Strings, and the beginnings of lists and objects; brackets in strings do not count."""
_HALF = re.compile("[\ud800-\udfff]")
_BOM = b"\xef\xbb\xbf"
_LARGE = 100_000
"""Bytes from which the collection of garbage would take most of the time."""


class TooManyValuesError(ValueError):
    """JSON with more values than may be built."""


def parse_json(data: bytes, most: int, halves: Halves = "refused") -> Any:
    """Return the value of JSON that has at most `most` lists, objects and strings; raises ValueError.

    They are counted before they are built: `[[],[],…` takes many times its size in memory. Numbers take little.
    `halves`: what becomes of half a character, whose other half may be in the next chunk. Unless refused, NaN is read.
    """
    data = data.removeprefix(_BOM)
    if data.count(b"[") + data.count(b"{") + data.count(b'"') // 2 > most:
        for count, _ in enumerate(_BEGINNINGS.finditer(data)):
            if count >= most:
                raise TooManyValuesError(f"more than {most:,} values")
    collects = len(data) > _LARGE and gc.isenabled()
    if collects:
        gc.disable()  # it would look at all new values again and again
    try:
        return orjson.loads(data)
    except ValueError:
        if halves == "refused" or not (b"\\ud" in data.lower() or b"NaN" in data or b"Infinity" in data):
            raise
        value = json.loads(data)
        return value if halves == "kept" else json.loads(mended(json.dumps(value, ensure_ascii=False)))
    finally:
        if collects:
            gc.enable()


async def parsed(read: Callable[[bytes], T], data: bytes) -> T:
    """Return `read(data)`; what is large is read in a thread, so that others get their turn."""
    return await asyncio.to_thread(read, data) if len(data) > _LARGE else read(data)


def mended(text: str) -> str:
    """The text with characters whose halves came apart; a half that stays alone becomes a replacement character."""
    if not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, (dict, Mapping)) else {}  # pyright: ignore[reportUnknownVariableType]


def as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType]


def first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice of a reply or a chunk; empty if there is none."""
    choices = as_sequence(chunk.get("choices"))
    return as_mapping(choices[0]) if choices else {}


def delta_of(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a chunk adds; some endpoints send a `message`, or `text` as in the older completions form."""
    if delta := as_mapping(choice.get("delta")) or as_mapping(choice.get("message")):
        return delta
    return {"content": choice["text"]} if isinstance(choice.get("text"), str) else {}


def received_characters(message: Mapping[str, Any]) -> int:
    """How much an endpoint has written in a message or in a part of one: texts, thoughts, refusals and arguments."""
    total = len(text_of(message.get("content")))
    total += sum(len(value) for name in WRITTEN if isinstance(value := message.get(name), str))
    for call in (*map(as_mapping, as_sequence(message.get("tool_calls"))), {"function": message.get("function_call")}):
        called = (as_mapping(call.get(kind)).get(field) for kind, field in CALLED.items())
        total += sum(len(each) for each in called if isinstance(each, str))
    return total


def text_of(content: Any) -> str:
    """The text of an answer's content; parts that are not text are left out."""
    if isinstance(content, str):
        return content
    return "".join(
        text
        for part in map(as_mapping, as_sequence(content))
        if part.get("type", "text") in _TEXT_PARTS and isinstance(text := part.get("text"), str)
    )


def finish_of(value: Any) -> str:
    return value if value in _FINISHES else "stop"


def allowed_calls(calls: Any) -> list[dict[str, Any]]:
    """Tool calls with the fields that are known, and arguments as text."""
    return [call for each in as_sequence(calls) if (call := _allowed_call(as_mapping(each)))]


def allowed_message(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """An assistant message with its text and the other fields that are checked."""
    allowed: dict[str, Any] = {"role": "assistant", "content": text or None}
    if isinstance(message.get("refusal"), str):
        allowed["refusal"] = message["refusal"]
    if calls := allowed_calls(message.get("tool_calls")):
        allowed["tool_calls"] = calls
    if called := as_mapping(message.get("function_call")):
        allowed["function_call"] = _allowed_called(called, "arguments")
    return allowed


def left_out(message: Mapping[str, Any], allowed: Mapping[str, Any]) -> list[str]:
    """The names of the fields that an allowed message lacks."""
    parts = {str(as_mapping(part).get("type")) for part in as_sequence(message.get("content"))} - {*_TEXT_PARTS}
    return sorted({name for name, value in message.items() if value and not allowed.get(name)} | parts)


def allowed_reply(reply: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """A whole reply with one choice; names that are no names, and anything but numbers in the usage, are left out."""
    return {**allowed_head(reply), "choices": [choice], "usage": allowed_usage(reply.get("usage"))}


def allowed_head(reply: Mapping[str, Any]) -> dict[str, Any]:
    head = {name: reply[name] for name in _REPLY if is_name(reply.get(name))}
    if not _FINGERPRINT.fullmatch(str(head.get("system_fingerprint"))):
        head.pop("system_fingerprint", None)
    if head.get("service_tier") not in _TIERS:
        head.pop("service_tier", None)
    return head


def allowed_logprobs(logprobs: Any, text: str) -> dict[str, Any] | None:
    """The log-probabilities of a text's tokens; None if the tokens are not those of the text.

    Alternatives (`top_logprobs`) are text that the model did not say and nobody checked, so they are left out.
    """
    tokens = [as_mapping(each) for each in as_sequence(as_mapping(logprobs).get("content"))]
    if not tokens or "".join(str(each.get("token")) for each in tokens) != text:
        return None
    return {
        "content": [
            {
                "token": each["token"],
                "logprob": each["logprob"],
                "bytes": [*each["token"].encode("utf-8", "replace")],
                "top_logprobs": [],
            }
            for each in tokens
            if isinstance(each.get("logprob"), (int, float)) and math.isfinite(each["logprob"])
        ]
    }


def call_words(message: Mapping[str, Any], offered: Collection[str] = ()) -> str:
    """What the tool calls of an allowed message say: the texts in their arguments, and names that nobody offered."""
    words: list[str] = []
    for each in (*message.get("tool_calls", ()), {"function": message.get("function_call")}):
        if not (called := as_mapping(each.get("function") or each.get("custom"))):
            continue
        words.append(name_words(str(each.get("id", ""))))
        if called["name"] not in offered:
            words.append(name_words(called["name"]))
        written: str = called.get("arguments", called.get("input", ""))
        found = json_words(written, lambda key: "" if key in offered else name_words(key))
        words += [written] if found is None else found
    return "\n".join(dict.fromkeys(filter(None, words)))


def said(message: Mapping[str, Any]) -> str:
    """What a record shows of a message: its text or refusal, and a line for each tool call."""
    lines = [text_of(message.get("content")) or str(message.get("refusal") or "")]
    for each in (*as_sequence(message.get("tool_calls")), {"function": message.get("function_call")}):
        for kind, written in CALLED.items():
            if called := as_mapping(as_mapping(each).get(kind)):
                lines.append(f"{called.get('name')}({called.get(written)})")
    return "\n".join(filter(None, lines))


def json_words(text: str, key_words: Callable[[str], str]) -> list[str] | None:
    """The texts inside JSON: all values, also of a key that stands twice, and what keys say; None if it is no JSON."""
    try:
        return [mended(each) for each in _texts(json.loads(text, object_pairs_hook=_Pairs), key_words)]
    except (ValueError, RecursionError):
        return None


def name_words(name: str) -> str:
    """What a name or an id says, as words; "" for the random ids of calls and replies."""
    if not _NAME.fullmatch(name):
        return name
    return "" if _RANDOM.fullmatch(name) else " ".join(_WORDS.findall(name))


def offered_names(body: Mapping[str, Any]) -> frozenset[str]:
    """The names of the tools that a request offers, and of the fields of their arguments."""
    tools = [*as_sequence(body.get("tools")), *({"function": each} for each in as_sequence(body.get("functions")))]
    called = [as_mapping(as_mapping(each).get(kind)) for each in tools for kind in CALLED]
    names = {name for each in called if isinstance(name := each.get("name"), str)}
    return frozenset(names.union(*(_field_names(each.get("parameters")) for each in called)))


def _field_names(schema: Any) -> Iterator[str]:
    """Yield the names of all properties that a JSON schema defines."""
    for name, value in as_mapping(schema).items():
        if name == "properties":
            yield from as_mapping(value)
        for each in as_mapping(value).values() if name == "properties" else (value, *as_sequence(value)):
            yield from _field_names(each)


def _allowed_call(call: Mapping[str, Any]) -> dict[str, Any]:
    for kind, written in CALLED.items():
        if called := as_mapping(call.get(kind)):
            ids = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
            return {**ids, "type": kind, kind: _allowed_called(called, written)}
    return {}


def _allowed_called(called: Mapping[str, Any], written: str) -> dict[str, str]:
    value = called.get(written) or ""
    return {
        "name": str(called.get("name") or ""),
        written: value if isinstance(value, str) else orjson.dumps(value).decode(),
    }


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, whose keys may stand twice: the first may be checked, and the last be read."""


def _texts(value: Any, key_words: Callable[[str], str]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, _Pairs):
        for key, each in value:
            yield key_words(key)
            yield from _texts(each, key_words)
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            yield from _texts(each, key_words)


def is_name(value: Any) -> bool:
    """Whether a value is a number, or a name or id that says nothing."""
    return isinstance(value, int) or (isinstance(value, str) and _NAME.fullmatch(value) is not None)


def allowed_usage(usage: Any) -> dict[str, Any]:
    """The counts of a usage: known fields, and numbers that can be counts."""
    return {
        name: allowed_usage(value) if isinstance(value, dict) else value
        for name, value in as_mapping(usage).items()
        if name in _COUNTS and (isinstance(value, dict) or _is_count(value))
    }


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value < LARGEST_COUNT
