"""Requests and generations as bytes: the cache key, and the compact form in which they are stored."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import orjson

from evenhand.types import Completion, Generation, Message, Params, Steering, TokenLogprob, Turn, Usage

_WORTH_COMPRESSING = 600
"""Bytes of JSON below which compression saves next to nothing."""
_SHORT = 16
"""Tokens of a reply that may be a choice or a verdict, all of whose alternatives are kept."""
# Every call is hashed, and tuples are written in half the time that dataclasses take.
_values_of_message = attrgetter(*(each.name for each in fields(Message)))
_values_of_params = attrgetter(*(each.name for each in fields(Params) if each.name != "steering"))


def request_key(identity: bytes, messages: Sequence[Message], params: Params) -> bytes:
    """The full request as one hash; `identity` stands for the model (see `model_identity`)."""
    request: tuple[Any, ...] = (list(map(_values_of_message, messages)), _values_of_params(params))
    if params.steering is not None:  # a part of its own, so that the keys of all other requests stay what they were
        request += (params.steering,)
    return hashlib.sha256(identity + orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).digest()


def as_stored(generation: Generation) -> Generation:
    """Without the alternatives that nobody reads: in long replies, those of tokens without a digit.

    Judges give reasons after their ratings; with alternatives, each word of them would take a hundred times its size.
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
    """What distinguishes one model's answers from another's, as bytes."""
    return hashlib.sha256(orjson.dumps(fingerprint, option=orjson.OPT_SORT_KEYS)).digest()


def pack(value: Any) -> bytes:
    """An object or dataclass as JSON, compressed where that saves something."""
    return compressed(to_json(value))


def to_json(value: Any) -> bytes:
    """The half of `pack` that can fail."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def compressed(data: bytes) -> bytes:
    """The half of `pack` that takes the time, and lets other threads run meanwhile."""
    if len(data) < _WORTH_COMPRESSING:
        return data
    # Small buffers: setting up zlib's usual ones takes longer than compressing a few kilobytes.
    deflate = zlib.compressobj(1, zlib.DEFLATED, 13, 5)
    return deflate.compress(data) + deflate.flush()


def unpack(blob: bytes) -> Any:
    return orjson.loads(blob if blob[:1] == b"{" else zlib.decompress(blob))


def generation_from(value: Any) -> Generation:
    """A Generation back from its JSON form."""
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
            )
            for each in value["completions"]
        ),
        value["model"],
        Usage(**value["usage"]),
        value["latency"],
        value["cached"],
    )


def turn_from(value: Any) -> Turn:
    """A Turn back from its JSON form."""
    params = dict(value["params"])
    params["stop"] = tuple(params["stop"])
    if steering := params.get("steering"):  # turns of older runs have none
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
    )


def messages_from(values: Sequence[Any]) -> tuple[Message, ...]:
    """Messages back from their JSON form."""
    return tuple(Message(**message) for message in values)
