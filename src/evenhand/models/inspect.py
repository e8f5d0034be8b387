"""All providers of Inspect AI (Anthropic, Google, Mistral, Bedrock, …), through its `get_model`."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import orjson

from evenhand.core.errors import BadResponseError, MissingExtraError, ModelError, UsageError
from evenhand.core.types import Completion, Finish, Generation, Message, Params, TokenLogprob, Usage
from evenhand.models.base import PROVIDERS, Feature, Model, ModelOptions

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filter",
}
_FEATURES: Mapping[Feature, frozenset[str]] = {
    "logprobs": frozenset({"openai", "google", "grok", "together", "hf", "llama-cpp-python", "vllm"}),
    "schema": frozenset({"openai", "google", "mistral"}),
    "seed": frozenset({"openai", "google", "mistral", "groq", "hf", "vllm"}),
}
"""Feature → the Inspect providers that have it, from its documentation of GenerateConfig."""
_MARKUP = re.compile(r"\[/?[a-z ]+\]")
_KEY_LIKE = re.compile(r"\b(?:sk|pk|hf|gsk|xai|AIza)[-_]?[\w-]{12,}|(?<=[Bb]earer )\S+")


@PROVIDERS.register("inspect")
class InspectModel(Model):
    """The spec `inspect/PROVIDER/NAME`, e.g. `inspect/anthropic/claude-sonnet-4-0`; API keys are set as for Inspect.

    Options: `model_args`, passed to Inspect's provider, and `reasoning_effort`.
    """

    takes = frozenset({"base_url", "model_args", "reasoning_effort"})

    def __init__(self, name: str, options: ModelOptions, model: Any = None) -> None:
        """`model` is one that Inspect has loaded and closes itself: its settings, limits and cache apply."""
        if self.unavailable():
            raise MissingExtraError("inspect/ models", "inspect")
        provider, slash, rest = name.partition("/")
        if not slash or not rest:
            raise UsageError(f"inspect/{name} names no provider; write inspect/PROVIDER/NAME.")
        self.spec = f"inspect/{name}"
        self.features = frozenset(feature for feature, known in _FEATURES.items() if provider in known)
        self._base_url = options.base_url
        self._effort = options.extra.get("reasoning_effort")
        self._api: Any = importlib.import_module("inspect_ai.model")
        self._limit: type[Exception] = importlib.import_module("inspect_ai.util").LimitExceededError
        self._is_borrowed = model is not None
        self._model: Any = model or self._load(name, options)

    def _load(self, name: str, options: ModelOptions) -> Any:
        limits = self._api.GenerateConfig(
            max_connections=options.concurrency,
            max_retries=options.retries,
            attempt_timeout=max(1, round(options.timeout)),
            reasoning_effort=self._effort,
        )
        arguments: Mapping[str, Any] = options.extra.get("model_args", {})
        try:
            return self._api.get_model(name, config=limits, base_url=options.base_url, memoize=False, **arguments)
        except Exception as error:  # a missing key, package or provider: Inspect has several classes for these
            raise UsageError(f"Inspect cannot load {name}: {_describe(error)}") from None

    @classmethod
    def unavailable(cls) -> str | None:
        if importlib.util.find_spec("inspect_ai") is None:
            return str(MissingExtraError("inspect/ models", "inspect"))
        return None

    def fingerprint(self) -> Mapping[str, Any]:
        version = importlib.metadata.version("inspect_ai")
        effort = {} if self._effort is None else {"reasoning_effort": self._effort}
        return {"spec": self.spec, "engine": f"inspect_ai {version}", "endpoint": self._base_url, **effort}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        first = await self._request(messages, params)
        completions, usage = first.completions[: params.n], first.usage
        # Most providers ignore `n` and return one completion: the others are requested one by one.
        singles = [
            replace(params, n=1, seed=None if params.seed is None else params.seed + i)
            for i in range(len(completions), params.n)
        ]
        for other in await asyncio.gather(*(self._request(messages, single) for single in singles)):
            completions, usage = completions + other.completions[:1], usage + other.usage
        return Generation(completions, self.spec, usage, time.perf_counter() - started)

    async def aclose(self) -> None:
        if not self._is_borrowed:
            await self._model.__aexit__(None, None, None)

    async def _request(self, messages: Sequence[Message], params: Params) -> Generation:
        chat = [self._message(message) for message in messages]
        try:
            output = await self._model.generate(chat, config=self._config(params))
        except (UsageError, self._limit):  # a limit of Inspect's ends its sample
            raise
        except Exception as error:  # each provider has its own classes
            raise ModelError(f"{self.spec} failed: {_describe(error)}") from None
        if output.error:
            raise ModelError(f"{self.spec} failed: {_describe(output.error)}")
        if not output.choices:
            raise BadResponseError(f"{self.spec} answered without a completion; try again or use another model.")
        return Generation(tuple(_completion(choice) for choice in output.choices), self.spec, _usage(output.usage))

    def _message(self, message: Message) -> Any:
        kinds = {"system": "ChatMessageSystem", "user": "ChatMessageUser", "assistant": "ChatMessageAssistant"}
        return getattr(self._api, kinds[message.role])(content=message.content)

    def _config(self, params: Params) -> Any:
        schema = None
        if params.schema is not None:
            if b'"$ref"' in orjson.dumps(params.schema):
                raise UsageError("Inspect's schemas support no $ref; inline the definitions or omit the schema.")
            schema = self._api.ResponseSchema(name="reply", json_schema=dict(params.schema), strict=True)
        return self._api.GenerateConfig(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_tokens,
            seed=params.seed,
            stop_seqs=list(params.stop) or None,
            num_choices=params.n if params.n > 1 else None,
            logprobs=True if params.logprobs else None,
            top_logprobs=params.logprobs or None,
            response_schema=schema,
        )


def _completion(choice: Any) -> Completion:
    content: Any = choice.message.content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    thoughts = [part.reasoning for part in parts if part.type == "reasoning" and not part.redacted]
    refused = "".join(part.text for part in parts if getattr(part, "refusal", None))
    explanation = getattr(choice.stop_details, "explanation", None) if choice.stop_reason == "content_filter" else None
    logprobs = choice.logprobs.content if choice.logprobs else None
    return Completion(
        choice.message.text,
        _FINISH.get(choice.stop_reason, "other"),
        refused or explanation,
        None if logprobs is None else tuple(_token(each) for each in logprobs),
        "\n\n".join(thoughts),
    )


def _token(each: Any) -> TokenLogprob:
    top = tuple((other.token, other.logprob) for other in each.top_logprobs or ())
    return TokenLogprob(each.token, each.logprob, top)


def _usage(usage: Any) -> Usage:
    """Return prompt and completion tokens; cached input counts as input."""
    if usage is None:
        return Usage(calls=1)
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    return Usage(
        calls=1,
        prompt_tokens=usage.input_tokens + cached,
        completion_tokens=usage.output_tokens,
        thought_tokens=usage.reasoning_tokens or 0,
    )


def _describe(error: object) -> str:
    """Return an error's message on one line, without terminal markup and without anything that looks like a key."""
    text = " ".join(_MARKUP.sub("", str(error)).removeprefix("ERROR: ").split()) or type(error).__name__
    for name, value in os.environ.items():
        if len(value) > 7 and re.search(r"KEY|TOKEN|SECRET|PASSWORD", name):
            text = text.replace(value, "[key]")
    return _KEY_LIKE.sub("[key]", text)[:600]
