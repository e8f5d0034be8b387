"""Models behind any OpenAI-compatible endpoint: OpenAI, Azure, vLLM, Ollama, llama.cpp server, ….

A parameter that the server rejects is omitted from later requests and listed in `dropped`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import orjson

from evenhand.core.errors import BadResponseError, EndpointError, ModelError, UsageError
from evenhand.core.events import event
from evenhand.core.http import Client, Hints, RefusedError, Reply, Retryable
from evenhand.core.types import Completion, Generation, Message, Params, TokenLogprob, Usage, token_count
from evenhand.models.base import PROVIDERS, START, Feature, ModelOptions
from evenhand.models.batch import BatchingModel, OpenAIBatches
from evenhand.models.endpoints import holds_secret
from evenhand.models.openai.wire import (
    is_filtered,
    parse_generation,
    parse_reply,
    request_body,
    unsupported_parameter,
)

DEFAULT_URL = "https://api.openai.com/v1"
_HINTS = Hints(
    "the base URL",
    {
        401: "check the API key in the environment",
        403: "check that the API key may use this model",
        404: "check the model name and the base URL (it usually ends in /v1)",
        405: "check the base URL (it usually ends in /v1)",
        429: "lower --concurrency",
    },
    timeout="raise --timeout",
)


def _keyless(variable: str) -> Hints:
    said = f"it was sent no API key; set {variable}, or name the variable of its key: SPEC?key=VARIABLE"
    return replace(_HINTS, statuses={**_HINTS.statuses, 401: said})


@PROVIDERS.register("openai")
class OpenAIModel(BatchingModel):
    """The spec `openai/NAME`; the endpoint is set by `--base-url` or OPENAI_BASE_URL, the key by OPENAI_API_KEY.

    With the option `echo=true`, given texts are scored by the endpoint's completions call, which must echo prompts with
    their log-probabilities.
    """

    all_features: ClassVar[frozenset[Feature]] = frozenset({"logprobs", "schema", "seed", "tools"})
    takes = frozenset({"base_url", "key", "extra_body", "reasoning_effort", "echo"})
    batch_api = OpenAIBatches
    # What an API of another format overrides, with `body` and `parsed`.
    provider: ClassVar[str] = "openai"
    default_url: ClassVar[str] = DEFAULT_URL
    call: ClassVar[str] = "/chat/completions"
    """The call under the base URL; `{name}` stands for the model."""
    parameter_of: ClassVar[Mapping[Feature, str]] = {
        "logprobs": "logprobs",
        "schema": "response_format",
        "seed": "seed",
        "tools": "tools",
    }
    """Feature → the parameter that asks for it."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.spec = f"{self.provider}/{name}"
        self.name = name
        kind = self.provider.upper()
        variable = f"{kind}_API_KEY"
        base = options.base_url or os.environ.get(f"{kind}_BASE_URL") or self.default_url
        self.url = endpoint_url(base, self.call.format(name=name), variable)
        self.dropped: set[str] = set()
        """Request parameters that this server does not support."""
        self._logprobs_asked = self._logprobs_given = False
        self._first = asyncio.Lock()
        self.extra_body: Any = options.extra.get("extra_body", {})
        if not isinstance(self.extra_body, Mapping):
            raise UsageError("The model option extra_body must be a mapping, e.g. {top_k: 5}.")
        self._effort = None if (effort := options.extra.get("reasoning_effort")) is None else str(effort)
        key = _key(options, variable)

        def client(url: str) -> Client:
            return Client(
                url,
                f"The endpoint {url} ({name})",
                key,
                _HINTS if key else _keyless(variable),
                headers=self.headers(url, key),
                timeout=options.timeout,
                retries=options.retries,
                concurrency=options.concurrency,
            )

        self.client = client(self.url)
        self._echo = client(echo_address(self.url)) if options.extra.get("echo") else None
        if not key and urlsplit(self.url).hostname == urlsplit(self.default_url).hostname:
            raise UsageError(
                f"{self.spec} needs an API key: set {variable}, or name another endpoint: "
                f"'{self.spec}?base_url=URL', or --base-url."
            )

    def headers(self, url: str, key: str) -> dict[str, str]:
        """Return the headers of requests, with the key."""
        return key_header(url, key)

    def body(self, messages: Sequence[Message], params: Params) -> dict[str, Any]:
        """Return the JSON body of one request, without the parameters that were dropped."""
        return request_body(self.name, messages, params, self.dropped, self.extra_body, self._effort)

    def parameters(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a body that holds its parameters."""
        return body

    def parsed(self, reply: Any) -> Generation:
        """Read a reply's JSON; raise ValueError or the like if it holds no completion."""
        return parse_generation(reply, self.spec)

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        echoed: tuple[Feature, ...] = () if self._echo is None else ("likelihood",)
        return frozenset((*(name for name, sent in self.parameter_of.items() if sent not in self.dropped), *echoed))

    def fingerprint(self) -> Mapping[str, Any]:
        effort = {} if self._effort is None else {"reasoning_effort": self._effort}
        echoes = {} if self._echo is None else {"echo": True}
        return {"spec": self.spec, "endpoint": self.url, "extra_body": dict(self.extra_body), **effort, **echoes}

    def caveats(self) -> Sequence[str]:
        return [self._left_out(name) for name in sorted(self.dropped - _HARMLESS)]

    def notes(self) -> Sequence[str]:
        return [self._left_out(name) for name in sorted(self.dropped & _HARMLESS)]

    def _left_out(self, name: str) -> str:
        if name == "max_tokens" and "max_completion_tokens" not in self.dropped:
            return f"{self.url} does not support max_tokens; max_completion_tokens was sent instead"
        return f"{self.url} does not support {name}; requests were sent without it"

    async def settled(self) -> None:
        if self._first.locked():
            async with self._first:
                pass

    def learned(self) -> Mapping[str, Any]:
        return {"dropped": sorted(self.dropped)} if self.dropped else {}

    def recall(self, learned: Mapping[str, Any]) -> None:
        self.dropped.update(learned.get("dropped", ()))

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        if params.given and self._echo is not None:
            generation = await echo_scores(self._echo, self.name, self.spec, params.given)
            return replace(generation, latency=time.perf_counter() - started)
        if params.logprobs and not self._logprobs_asked and not self.queued:
            # The first reply shows whether the server gives log-probabilities; the others wait for it.
            async with self._first:
                if not self._logprobs_asked:
                    try:
                        return await self._generated(messages, params, started)
                    finally:
                        self._logprobs_asked = True
        return await self._generated(messages, params, started)

    async def _generated(self, messages: Sequence[Message], params: Params, started: float) -> Generation:
        generation = await self._request(messages, params)
        missing = params.n - len(generation.completions)
        if missing > 0:
            # The server ignores `n`: the others are requested one by one, each with its own seed.
            single = [
                replace(params, n=1, seed=None if params.seed is None else params.seed + index + 1)
                for index in range(len(generation.completions) - 1, params.n - 1)
            ]
            # All finish before an error is raised, so that no request outlives this call.
            others = await asyncio.gather(*(self._request(messages, each) for each in single), return_exceptions=True)
            usage = sum((each.usage for each in others if isinstance(each, Generation)), generation.usage)
            for other in others:
                if isinstance(other, BaseException):
                    if isinstance(other, ModelError):
                        other.spent = usage
                    raise other
                generation = replace(generation, completions=generation.completions + other.completions[:1])
            generation = replace(generation, usage=usage)
        # Not by `replace`, which takes five times as long.
        latency = time.perf_counter() - started
        return Generation(
            generation.completions, generation.model, generation.usage, latency, fingerprint=generation.fingerprint
        )

    async def aclose(self) -> None:
        await super().aclose()
        if self._echo is not None:
            await self._echo.aclose()

    async def _request(self, messages: Sequence[Message], params: Params) -> Generation:
        """Send one request; repeat it without parameters that the server does not support."""
        sent: dict[str, Any] = {}

        def body() -> bytes:
            nonlocal sent
            # Built for each attempt: another call may meanwhile have found a parameter to drop.
            sent = self.body(messages, params)
            return orjson.dumps(sent)

        while True:
            try:
                generation, retries = await self.post(messages, params, body, self._read)
            except RefusedError as refusal:
                # Parameters from extra_body are always sent, even if the server rejects them.
                ours = {name: value for name, value in self.parameters(sent).items() if name not in self.extra_body}
                parameter = unsupported_parameter(refusal.reply.body, ours)
                if parameter is None or refusal.reply.status == 413:
                    raise
                if parameter not in self.dropped:
                    self.dropped.add(parameter)
                    event("drop", f"{self.url} does not support {parameter}; it is left out", parameter=parameter)
            else:
                if "logprobs" in sent and not self._logprobs_given:
                    self._learn_logprobs(generation)
                return replace(generation, usage=replace(generation.usage, retries=retries)) if retries else generation

    def _learn_logprobs(self, generation: Generation) -> None:
        """Remember whether the server gives log-probabilities; an empty reply does not show it."""
        if texts := [each for each in generation.completions if each.text]:
            self._logprobs_given = any(each.logprobs for each in texts)
            if not self._logprobs_given:
                self.dropped.add("logprobs")

    def _read(self, reply: Reply) -> Generation:
        if reply.status == 400 and is_filtered(reply.body):
            return Generation((Completion("", "filter"),), self.spec, Usage(calls=1))
        if reply.status != 200:
            raise self.client.fault(reply)
        try:
            return self.parsed(parse_reply(reply.body))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            title, start = self.client.title, self.client.excerpt(reply.body, 120)
            page = reply.body.lstrip()[:1] == b"<"
            if page and not self.client.worked:
                message = f"{title} sent a web page ({start!r}); check the base URL (it usually ends in /v1)."
                raise EndpointError(message, permanent=True) from error
            message = f"{title} did not send a chat completion but {start!r}; check the base URL."
            fault = BadResponseError(message)
            fault.was_read = not page and not reply.body.lstrip().startswith(b'{"error"')
            raise Retryable(fault) from error


_HARMLESS = frozenset(
    {"logprobs", "max_tokens", "response_format", "n", "tools", "output_config", "responseJsonSchema"}
)
"""Parameters that others stand in for: the results are read in another way, or asked for in more calls."""


def _key(options: ModelOptions, variable: str) -> str:
    """Return the key of the variable that the options name; `key_env` is its former name, and may be unset."""
    if options.key is None:
        named = str(options.extra.get("key_env", variable))
        # A route of the guard names OpenAI's variable if its config names none: no other provider may get that key.
        return key_from(variable if named == "OPENAI_API_KEY" else named)
    key = key_from(options.key)
    if options.key and not key:
        raise UsageError(f"The environment variable {options.key} should hold an API key, but it is not set.")
    return key


def key_header(url: str, key: str) -> dict[str, str]:
    """Return the header for the key; Azure has its own."""
    if not key:
        return {}
    azure = (urlsplit(url).hostname or "").endswith(".azure.com")
    return {"api-key": key} if azure else {"Authorization": f"Bearer {key}"}


def key_from(variable: str) -> str:
    """Return the API key from an environment variable, or an empty string."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(not "!" <= letter <= "~" for letter in key):
        raise UsageError(f"The API key in {variable} contains a space or another invalid character; set it again.")
    return key


def endpoint_url(base: str, call: str = "/chat/completions", key_variable: str = "OPENAI_API_KEY") -> str:
    """Return the URL of a call under `base`; a query (Azure's api-version) stays at the end."""
    if holds_secret(base):
        raise UsageError(
            f"The base URL contains a password or key; put it into {key_variable} instead, or write $NAME in the path "
            "for the environment variable NAME."
        )
    wrong = UsageError(f"{base!r} is not a base URL; write it like http://localhost:8000/v1.")
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:  # a bad port or address
        raise wrong from error
    if not usable:
        raise wrong
    path = parts.path.rstrip("/").removesuffix(call) + call
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def echo_address(chat: str) -> str:
    """Return the URL of the completions call beside that of chat completions."""
    parts = urlsplit(chat)
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/chat/completions") + "/completions"))


async def echo_scores(client: Client, name: str, spec: str, texts: Sequence[str]) -> Generation:
    """Return the texts with the log-probability of each token, in one request."""
    # One token is generated and thrown away: some servers refuse to generate none.
    body = {"model": name, "prompt": [START + text for text in texts], "echo": True, "logprobs": 1}
    request = orjson.dumps({**body, "max_tokens": 1, "temperature": 0})

    def read(reply: Reply) -> Generation:
        if reply.status != 200:
            raise client.fault(reply)
        try:
            return parse(orjson.loads(reply.body), texts, spec)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise BadResponseError(
                f"{client.title} does not echo prompts with their log-probabilities ({error}); remove echo=true from "
                "the model's spec."
            ) from error

    generation, _ = await client.post(lambda: request, read)
    return generation


def parse(reply: Any, texts: Sequence[str], spec: str) -> Generation:
    """Read a reply; raise ValueError if it does not hold the log-probabilities of all texts."""
    choices = sorted(reply["choices"], key=lambda each: each["index"])
    if len(choices) != len(texts):
        raise ValueError(f"{len(choices)} choices for {len(texts)} prompts")
    completions = tuple(
        Completion(text, logprobs=_tokens(choice["logprobs"], text))
        for choice, text in zip(choices, texts, strict=True)
    )
    usage: Any = reply.get("usage") or {}
    read = token_count(usage.get("prompt_tokens"))
    return Generation(completions, spec, Usage(1, read or sum(len(each.logprobs or ()) for each in completions)))


def _tokens(logprobs: Any, text: str) -> tuple[TokenLogprob, ...]:
    """Return the tokens of the text: behind a special token and the start, and before what was generated."""
    pairs = list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
    first = "".join(token for token, _ in pairs).index(START + text) + len(START)
    found: list[TokenLogprob] = []
    end = 0
    for token, value in pairs:
        begin, end = end, end + len(token)
        if begin < first + len(text) and end > first:
            if not isinstance(value, int | float):
                raise ValueError(f"the token {token!r} has no log-probability")
            found.append(TokenLogprob(token, float(value)))
    if "".join(each.token for each in found) != text:
        raise ValueError("the tokens do not make up the text")
    return tuple(found)
