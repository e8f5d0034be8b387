"""Turns requests into cache keys, and generations and turns into the compact bytes that are stored."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import orjson

from evenhand.core.types import Completion, Generation, Message, Params, Steering, TokenLogprob, ToolCall, Turn, Usage
from evenhand.models.base import Model

_LARGEST = 256 * 2**20
"""Bytes of an unpacked value: a few megabytes could unpack to many gigabytes."""
_WORTH_COMPRESSING = 600
"""Bytes of JSON below which compression saves almost nothing."""
_SHORT = 32
"""Replies of up to this many tokens keep all their alternatives: they may be a choice or a verdict."""
# Every call is hashed, and orjson writes tuples twice as fast as dataclasses.
_values_of_message = attrgetter("role", "content")
_NEWER = ("steering", "max_tokens_exact", "given", "again", "template", "tools", "world")
"""Parameters that are hashed only if set, so that older keys stay valid."""
_values_of_params = attrgetter(*(each.name for each in fields(Params) if each.name not in _NEWER))


def request_key(identity: bytes, messages: Sequence[Message], params: Params) -> bytes:
    """Return a hash of the full request; `identity` stands for the model (see `model_identity`)."""
    request: tuple[Any, ...] = (list(map(_values_of_message, messages)), _values_of_params(params))
    if params.steering is not None:
        request += (params.steering,)
    if params.max_tokens_exact:
        request += ("exact",)
    if params.given:
        request += ("given", params.given)
    if params.again:
        request += ("again", params.again)
    if params.template is not None:
        request += ("template", params.template)
    if params.tools:
        request += ("tools", params.tools, [(each.calls, each.call_id) for each in messages])
    if params.world:
        request += ("world", params.world)
    return hashlib.sha256(identity + orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).digest()


def stored_params(model: Model, params: Params) -> Params:
    """The parameters under which a run finds a call again: without what the endpoint turned out not to give."""
    logprobs = params.logprobs if "logprobs" in model.features else 0
    schema = params.schema if "schema" in model.features else None
    return replace(params, logprobs=logprobs, schema=schema) if params.logprobs or params.schema else params


def as_stored(generation: Generation) -> Generation:
    """Drop the alternatives that nobody reads: in long replies, those of tokens without a digit.

    Judges explain their ratings in words; stored with alternatives, each word would be a hundred times as large.
    """
    if all(len(each.logprobs or ()) <= _SHORT for each in generation.completions):
        return generation
    return replace(generation, completions=tuple(map(_with_digits, generation.completions)))


def _with_digits(completion: Completion) -> Completion:
    if len(completion.logprobs or ()) <= _SHORT:
        return completion
    kept = (
        each if any(map(str.isdigit, each.token)) else TokenLogprob(each.token, each.logprob)
        for each in completion.logprobs or ()
    )
    return replace(completion, logprobs=tuple(kept))


def model_identity(fingerprint: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(orjson.dumps(fingerprint, option=orjson.OPT_SORT_KEYS)).digest()


def pack(value: Any) -> bytes:
    """Serialize an object or dataclass as JSON, compressed if that saves space."""
    return compressed(to_json(value))


def to_json(value: Any) -> bytes:
    """Serialize: the half of `pack` that can fail."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def compressed(data: bytes) -> bytes:
    """Compress: the slow half of `pack`, which releases the GIL."""
    if len(data) < _WORTH_COMPRESSING:
        return data
    # Small buffers: allocating zlib's default ones takes longer than compressing a few kilobytes.
    deflate = zlib.compressobj(1, zlib.DEFLATED, 13, 5)
    return deflate.compress(data) + deflate.flush()


def unpack(blob: bytes) -> Any:
    """Return a packed value; raises ValueError or zlib.error for what no run has written."""
    if blob[:1] == b"{":
        return orjson.loads(blob)
    inflate = zlib.decompressobj()
    data = inflate.decompress(blob, _LARGEST)
    if inflate.unconsumed_tail or not inflate.eof:
        raise ValueError("a packed value is larger than any that is written, or cut")
    return orjson.loads(data)


def generation_from(value: Any) -> Generation:
    """Rebuild a Generation from its JSON form."""
    return Generation(
        tuple(
            Completion(
                each["text"],
                each["finish"],
                each["refusal"],
                None
                if each["logprobs"] is None
                else tuple(
                    TokenLogprob(token["token"], token["logprob"], tuple((text, p) for text, p in token["top"]))
                    for token in each["logprobs"]
                ),
                each.get("thought", ""),  # these two are missing in older runs
                _calls_from(each.get("calls", ())),
            )
            for each in value["completions"]
        ),
        value["model"],
        Usage(**value["usage"]),
        value["latency"],
        value["cached"],
        value.get("fingerprint", ""),  # these two are missing in older runs
        value.get("recorded"),
    )


def turn_from(value: Any) -> Turn:
    """Rebuild a Turn from its JSON form."""
    params = dict(value["params"])
    params["stop"] = tuple(params["stop"])
    params["given"], params["tools"] = (tuple(params.get(name, ())) for name in ("given", "tools"))  # not in older runs
    if steering := params.get("steering"):  # missing in older runs
        params["steering"] = Steering(
            tuple(map(messages_from, steering["against"])), steering["decay"], steering["epsilon"]
        )
    return Turn(
        value["agent"],
        value["role"],
        value["prompt_id"],
        value["prompt_hash"],
        messages_from(value["messages"]),
        Params(**params),
        None if value["generation"] is None else generation_from(value["generation"]),
        value["error"],
        None if value.get("spent") is None else Usage(**value["spent"]),  # missing in older runs
    )


def messages_from(values: Sequence[Any]) -> tuple[Message, ...]:
    """Rebuild messages from their JSON form."""
    return tuple(
        Message(each["role"], each["content"], _calls_from(each.get("calls", ())), each.get("call_id", ""))
        for each in values
    )


def _calls_from(values: Sequence[Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(**each) for each in values)
