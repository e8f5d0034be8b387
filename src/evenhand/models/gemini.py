"""Google's Gemini models by their own API: `models/NAME:generateContent`.

The requests, retries and dropped parameters are those of `openai/`; only the format differs. Log-probabilities are not
asked for: few of the models give them. Batches of them go through Gemini's OpenAI-compatible address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evenhand.core.types import Completion, Finish, Generation, Message, Params, Usage, mapping, token_count
from evenhand.models.base import PROVIDERS, Feature
from evenhand.models.openai import OpenAIModel
from evenhand.models.openai.wire import chat_messages

_FINISH: Mapping[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "filter"),
}


class GeminiModel(OpenAIModel):
    """The spec `gemini/NAME`, with the key in GEMINI_API_KEY; GEMINI_BASE_URL names another address."""

    all_features: ClassVar[frozenset[Feature]] = frozenset({"schema", "seed"})
    takes = frozenset({"base_url", "key", "extra_body"})
    batch_api = None
    provider = "gemini"
    default_url = "https://generativelanguage.googleapis.com/v1beta"
    call = "/models/{name}:generateContent"
    parameter_of: ClassVar[Mapping[Feature, str]] = {"schema": "responseJsonSchema", "seed": "seed"}

    def headers(self, url: str, key: str) -> dict[str, str]:
        del url
        return {"x-goog-api-key": key} if key else {}

    def body(self, messages: Sequence[Message], params: Params) -> dict[str, Any]:
        constrained = params.schema is not None and "responseJsonSchema" not in self.dropped
        chat = chat_messages(messages, None if constrained else params.schema)
        optional: dict[str, Any] = {
            "maxOutputTokens": params.max_tokens,
            "temperature": params.temperature,
            "topP": params.top_p,
            "seed": params.seed,
            "stopSequences": list(params.stop) or None,
            "candidateCount": params.n if params.n > 1 else None,
            "responseJsonSchema": params.schema,
        }
        config = {name: value for name, value in optional.items() if value is not None and name not in self.dropped}
        if constrained:
            config["responseMimeType"] = "application/json"
        system = [{"text": each["content"]} for each in chat if each["role"] == "system"]
        body = {
            "contents": [
                {"role": "model" if each["role"] == "assistant" else "user", "parts": [{"text": each["content"]}]}
                for each in chat
                if each["role"] != "system"
            ],
            "generationConfig": config,
            **({"systemInstruction": {"parts": system}} if system else {}),
        }
        return {**body, **self.extra_body}

    def parameters(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return body.get("generationConfig", {})

    def parsed(self, reply: Any) -> Generation:
        usage = mapping(reply.get("usageMetadata"))
        thoughts = token_count(usage.get("thoughtsTokenCount"))
        used = Usage(
            calls=1,
            prompt_tokens=token_count(usage.get("promptTokenCount")),
            completion_tokens=token_count(usage.get("candidatesTokenCount")) + thoughts,
            thought_tokens=thoughts,
        )
        if not reply.get("candidates"):
            if not mapping(reply.get("promptFeedback")).get("blockReason"):
                raise ValueError("no candidates")
            return Generation((Completion("", "filter"),), self.spec, used)
        version = reply.get("modelVersion")
        completions = tuple(map(_completion, reply["candidates"]))
        return Generation(completions, self.spec, used, fingerprint=version[:80] if isinstance(version, str) else "")


def _completion(candidate: Any) -> Completion:
    parts: list[Any] = mapping(candidate.get("content")).get("parts") or []
    text = "".join(each.get("text", "") for each in parts if not each.get("thought"))
    thought = "\n\n".join(each.get("text", "") for each in parts if each.get("thought"))
    return Completion(text, _FINISH.get(str(candidate.get("finishReason")), "other"), thought=thought)


PROVIDERS.register("gemini")(GeminiModel)
