"""Any OpenAI-compatible endpoint (OpenAI, Azure, vLLM, Ollama, llama.cpp server, …) over one pooled aiohttp session.

What a server does not support is learned from its first complaint and not asked again; `dropped` names it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import aiohttp
import orjson

from evenhand.errors import BadResponseError, EndpointError, ModelError, UsageError
from evenhand.gate import AdaptiveLimit
from evenhand.models.base import PROVIDERS, Feature, Model, ModelOptions
from evenhand.models.openai.wire import is_filtered, parse_generation, request_body, unsupported_parameter
from evenhand.models.retry import Retryable, RetryPolicy, retry_after
from evenhand.types import Completion, Generation, Message, Params, Usage

DEFAULT_URL = "https://api.openai.com/v1"
CONNECT_TIMEOUT = 60.0
_FIXES: Mapping[int, str] = {
    401: "check the API key in the environment",
    403: "check that the API key may use this model",
    404: "check the model name and the base URL (it usually ends in /v1)",
    405: "check the base URL (it usually ends in /v1)",
}


class OpenAIModel(Model):
    """The spec `openai/NAME`; the endpoint comes from `--base-url` or OPENAI_BASE_URL, the key from OPENAI_API_KEY."""

    all_features: ClassVar[frozenset[Feature]] = frozenset({"logprobs", "schema", "seed"})

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.spec = f"openai/{name}"
        self.name = name
        self.url = endpoint_url(options.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL)
        self.dropped: set[str] = set()
        """Request parameters that this server turned out not to support."""
        self.limit = AdaptiveLimit(options.concurrency)
        self._key = key_from(str(options.extra.get("key_env", "OPENAI_API_KEY")))
        self._extra_body: Any = options.extra.get("extra_body", {})
        if not isinstance(self._extra_body, Mapping):
            raise UsageError("The model option extra_body must hold names and values, e.g. {top_k: 5}.")
        self._worked = False
        """Whether this endpoint has ever sent a completion."""
        self._policy = RetryPolicy(options.retries)
        self._timeout = aiohttp.ClientTimeout(
            total=CONNECT_TIMEOUT + options.timeout, sock_connect=CONNECT_TIMEOUT, sock_read=options.timeout
        )
        self._session: aiohttp.ClientSession | None = None
        if not self._key and urlsplit(self.url).hostname == urlsplit(DEFAULT_URL).hostname:
            raise UsageError(
                f"{self.spec} needs an API key: set OPENAI_API_KEY, or point --base-url to another endpoint."
            )

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset(feature for feature, parameter in _FEATURE_PARAMETER.items() if parameter not in self.dropped)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"spec": self.spec, "endpoint": self.url, "extra_body": dict(self._extra_body)}

    def caveats(self) -> Sequence[str]:
        return [f"{self.url} does not take {name}; requests were made without it" for name in sorted(self.dropped)]

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        generation = await self._request(messages, params)
        missing = params.n - len(generation.completions)
        if missing > 0:
            # The server has no `n`: ask for the others one by one, each with a seed of its own.
            single = [
                replace(params, n=1, seed=None if params.seed is None else params.seed + index + 1)
                for index in range(len(generation.completions) - 1, params.n - 1)
            ]
            # All are awaited before an error is raised: none goes on unseen after this call has ended.
            others = await asyncio.gather(*(self._request(messages, each) for each in single), return_exceptions=True)
            for other in others:
                if isinstance(other, BaseException):
                    raise other
                generation = replace(
                    generation,
                    completions=generation.completions + other.completions[:1],
                    usage=generation.usage + other.usage,
                )
        return replace(generation, latency=time.perf_counter() - started)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(self, messages: Sequence[Message], params: Params) -> Generation:
        """One completed request: retries what may pass, drops what the server does not know."""
        failures = 0
        while True:
            try:
                async with self.limit as epoch:
                    # Made only now: while this call waited for room, another may have learned what to leave out.
                    body = request_body(self.name, messages, params, self.dropped, self._extra_body)
                    generation = await self._post(body, epoch)
                if failures:
                    generation = replace(generation, usage=replace(generation.usage, retries=failures))
                return generation
            except _UnsupportedError as complaint:
                self.dropped.add(complaint.parameter)
            except Retryable as fault:
                failures += 1
                if failures > min(self._policy.retries, fault.most):
                    raise fault.error from fault
                await asyncio.sleep(self._policy.delay(failures, fault.wait, fault.error))

    async def _post(self, body: Mapping[str, Any], epoch: int) -> Generation:
        session = self._session or self._open()
        try:
            # A redirect is not followed: it would carry the key elsewhere.
            async with session.post(self.url, data=orjson.dumps(body), allow_redirects=False) as response:
                payload = await response.read()
                if response.status == 200:
                    generation = self._parse(payload)
                elif response.status == 400 and is_filtered(payload):
                    generation = Generation((Completion("", "filter"),), self.spec, Usage(calls=1))
                else:
                    raise self._fault(response.status, response.headers, payload, body, epoch)
                self._worked = True
                self.limit.succeeded()
                return generation
        except (aiohttp.ClientError, OSError) as error:
            raise self._no_reply(error) from error

    def _no_reply(self, error: aiohttp.ClientError | OSError) -> Exception:
        """What it means that no whole reply came; an address that has never worked is not tried for long."""
        if isinstance(error, (aiohttp.ClientConnectorDNSError, aiohttp.InvalidURL)) and not self._worked:
            return EndpointError(f"{self._where()} does not exist; check --base-url.", permanent=True)
        text = self._redact(str(error) or type(error).__name__)
        message = f"{self._where()} cannot be reached ({text}); is the server up?"
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)) and not self._worked:
            return Retryable(EndpointError(message, permanent=True), most=2)
        if isinstance(error, TimeoutError):
            message = f"{self._where()} did not answer in time; raise --timeout."
        return Retryable(EndpointError(message))

    def _parse(self, payload: bytes) -> Generation:
        try:
            return parse_generation(orjson.loads(payload), self.spec)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            start = self._excerpt(payload, 120)
            if payload.lstrip()[:1] == b"<" and not self._worked:
                message = f"{self._where()} sent a web page ({start!r}); check --base-url (it usually ends in /v1)."
                raise EndpointError(message, permanent=True) from error
            message = f"{self._where()} did not send a chat completion but {start!r}; check --base-url."
            raise Retryable(BadResponseError(message)) from error

    def _fault(
        self, status: int, headers: Mapping[str, str], payload: bytes, body: Mapping[str, Any], epoch: int
    ) -> Exception:
        """What a status other than 200 means."""
        text = self._excerpt(payload, 400)
        where = self._where()
        # What the user put into extra_body is sent whatever the server says.
        ours = {name: value for name, value in body.items() if name not in self._extra_body}
        if status in (400, 422) and (parameter := unsupported_parameter(payload, ours)):
            return _UnsupportedError(parameter)
        if status == 429:
            self.limit.push_back(epoch)
            if b"insufficient_quota" in payload:
                return EndpointError(
                    f"{where} says that the quota is used up; check the account's billing.", permanent=True
                )
            return Retryable(EndpointError(f"{where} kept answering 429; lower --concurrency."), retry_after(headers))
        if status in (408, 409, 425) or status >= 500:
            return Retryable(EndpointError(f"{where} kept answering {status}: {text}"), retry_after(headers))
        fix = _FIXES.get(status, "the endpoint refuses the request")
        if 300 <= status < 400:
            fix = f"it points to {self._redact(headers.get('Location', 'nowhere'))}; check --base-url"
        # A request that is refused for what it says may be the only one of its kind; the rest concerns all.
        said = f" It said: {text}" if text else ""
        return EndpointError(f"{where} answered {status}; {fix}.{said}", permanent=status not in (400, 413, 422))

    def _open(self) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json", "User-Agent": "evenhand", **key_header(self.url, self._key)}
        # Proxy look-ups cost as much as a call; they are made only where a proxy is set.
        proxied = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"))
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=self._timeout,
            trust_env=proxied,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    def _where(self) -> str:
        return f"The endpoint {self.url} ({self.name})"

    def _excerpt(self, payload: bytes, most: int) -> str:
        """The beginning of a reply as one line; the key is taken out first, lest a cut leave a part of it."""
        text = self._redact(payload.decode("utf-8", "replace"))
        return " ".join(text[: 2 * most].split())[:most]

    def _redact(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


PROVIDERS.register("openai")(OpenAIModel)  # not as a decorator, which would hide its type from those who extend it


class _UnsupportedError(ModelError):
    """The server complained about one request parameter."""

    def __init__(self, parameter: str) -> None:
        super().__init__(parameter)
        self.parameter = parameter


_FEATURE_PARAMETER: Mapping[Feature, str] = {
    "logprobs": "logprobs",
    "schema": "response_format",
    "seed": "seed",
}


def key_header(url: str, key: str) -> dict[str, str]:
    """How the key is sent; Azure has a header of its own."""
    if not key:
        return {}
    azure = (urlsplit(url).hostname or "").endswith(".azure.com")
    return {"api-key": key} if azure else {"Authorization": f"Bearer {key}"}


def key_from(variable: str) -> str:
    """The API key in an environment variable, or nothing."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(not "!" <= letter <= "~" for letter in key):
        raise UsageError(f"The API key in {variable} holds a blank or a character that no key has; set it again.")
    return key


def endpoint_url(base: str, call: str = "/chat/completions", key_variable: str = "OPENAI_API_KEY") -> str:
    """The address of a call under `base`; a query (Azure's api-version) is kept at the end."""
    names = [name.lower() for name, _ in parse_qsl(base.partition("?")[2])]
    if "@" in base.partition("?")[0] or any(name.endswith(("key", "token", "secret", "sig")) for name in names):
        raise UsageError(f"The base URL holds a password or key; put it into {key_variable} instead.")
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
