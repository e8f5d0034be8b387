"""Anthropic's models by its own API: `/v1/messages`, alone or in batches.

The requests, retries and dropped parameters are those of `openai/`; only the format differs. It has no seed, no
log-probabilities and one reply per request, so several replies are several requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evenhand.core.types import Completion, Finish, Generation, Message, Params, Usage, mapping, token_count
from evenhand.models.base import PROVIDERS, Feature
from evenhand.models.batch import AnthropicBatches
from evenhand.models.openai import OpenAIModel
from evenhand.models.openai.wire import chat_messages

_VERSION = "2023-06-01"
_MOST_TOKENS = 4096
"""Of a reply whose length nobody limits: the API needs a number, and the oldest models take no larger one."""
_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
}


class AnthropicModel(OpenAIModel):
    """The spec `anthropic/NAME`, with the key in ANTHROPIC_API_KEY; ANTHROPIC_BASE_URL names another address."""

    all_features: ClassVar[frozenset[Feature]] = frozenset({"schema"})
    takes = frozenset({"base_url", "key", "extra_body"})
    batch_api = AnthropicBatches
    provider = "anthropic"
    default_url = "https://api.anthropic.com/v1"
    call = "/messages"
    parameter_of: ClassVar[Mapping[Feature, str]] = {"schema": "output_config"}

    def headers(self, url: str, key: str) -> dict[str, str]:
        del url
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def body(self, messages: Sequence[Message], params: Params) -> dict[str, Any]:
        constrained = params.schema is not None and "output_config" not in self.dropped
        chat = chat_messages(messages, None if constrained else params.schema)
        system = "\n\n".join(each["content"] for each in chat if each["role"] == "system")
        optional: dict[str, Any] = {
            "system": system or None,
            # Its temperatures end at 1, where others go on to 2.
            "temperature": None if params.temperature is None else min(1.0, params.temperature),
            "top_p": params.top_p,
            "stop_sequences": list(params.stop) or None,
            "output_config": {"format": {"type": "json_schema", "schema": params.schema}} if constrained else None,
        }
        return {
            "model": self.name,
            "max_tokens": params.max_tokens or _MOST_TOKENS,
            "messages": [each for each in chat if each["role"] != "system"],
            **{name: value for name, value in optional.items() if value is not None and name not in self.dropped},
            **self.extra_body,
        }

    def parsed(self, reply: Any) -> Generation:
        blocks: list[Any] = reply["content"]
        text = "".join(each["text"] for each in blocks if each["type"] == "text")
        thought = "\n\n".join(each["thinking"] for each in blocks if each["type"] == "thinking")
        finish = _FINISH.get(str(reply.get("stop_reason")), "other")
        usage = mapping(reply.get("usage"))
        read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        prompt = sum(token_count(usage.get(name)) for name in read)
        used = Usage(1, prompt, token_count(usage.get("output_tokens")))
        return Generation((Completion(text, finish, thought=thought),), self.spec, used, fingerprint=_name(reply))


def _name(reply: Any) -> str:
    """Return which model answered: a name without a date stands for several."""
    name = reply.get("model")
    return name[:80] if isinstance(name, str) else ""


PROVIDERS.register("anthropic")(AnthropicModel)
