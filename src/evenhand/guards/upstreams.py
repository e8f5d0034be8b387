"""The kinds of upstreams, and several that stand in for each other, as one.

- An OpenAI-compatible endpoint gets request bodies unchanged, except for the model's name. It is also the model of
  `models/openai`, with the same connections and key. A parameter of the client that the server rejects is not dropped,
  as it is in the guard's own calls: the client gets the server's complaint.
- Any other model of Evenhand (local/, hf/, call/, fake/) gets words and gives words.
- `Upstreams` adds failover, circuit breakers and a retry budget. A request that fails before any of its text is used
  goes to the next upstream. Once text was passed on, a broken stream is an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from uuid import uuid4

import aiohttp
import orjson

from evenhand.core.errors import ModelError
from evenhand.core.http import Reply, TooLargeError, read_lines, read_reply, retry_after
from evenhand.core.tracing import note_retries
from evenhand.core.types import Generation, Message, Params, Usage
from evenhand.guards.fields import (
    Halves,
    TooManyValuesError,
    delta_of,
    first_choice,
    parse_json,
    parsed,
    received_characters,
    text_of,
)
from evenhand.guards.meter import charge
from evenhand.guards.request import conversation_in
from evenhand.guards.segments import first_end
from evenhand.guards.upstream import (
    CHUNKS_AT_ONCE,
    REQUEST_FAULTS,
    UNUSED,
    BadRequest,
    CutReply,
    Unreachable,
    Upstream,
    UpstreamError,
    as_chunk,
)
from evenhand.models.base import Model, ModelOptions
from evenhand.models.openai import OpenAIModel
from evenhand.models.pool import Attempt, Breaker, Endpoint, Failover, NoEndpointError, PoolModel
from evenhand.models.reasoning import ReasoningModel, split_thought

T = TypeVar("T")

_CLIENTS = (400, 404, 409, 413, 415, 422)
"""Statuses that the client's request caused; others concern the guard and its upstream only."""
_COUNT = "stream_options"
_OWN = ("stream", _COUNT, "n")
_WORDS = ("tools", "functions", "audio", "modalities")
_FINISH = {"stop": "stop", "length": "length", "filter": "content_filter", "other": "stop"}
Chunk = dict[str, Any]
FAILURES, FAILING_SECONDS = 5, 1.0
"""A circuit breaker opens after this many failures in a row, if no call has succeeded for this long."""
_BUSY = (429, 503, 504)
_MOST_CALLERS = 1000
_MOST_HELD = 10_000
"""Chunks without text, such as thoughts, that are kept for another upstream; many more would take the memory and time
of all requests."""
MOST_VALUES = 500_000
"""Lists, objects and strings of one reply; log-probabilities of long answers have many."""
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""Of a stream, beside its data."""
_SHOWN = 1000
"""Bytes that are kept of what came in place of a stream."""
_log = logging.getLogger("evenhand.guards")


class OpenAIUpstream(OpenAIModel, Upstream):
    """The spec `openai/NAME` behind the guard."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__(name, options)
        self._older_url = "/completions".join(self.url.rsplit("/chat/completions", 1))
        self._embeddings_url = "/embeddings".join(self.url.rsplit("/chat/completions", 1))
        self._own_calls = ReasoningModel(self, options)
        self._timeout = options.timeout

    @property
    def model(self) -> Model:
        return self._own_calls

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = {key: value for key, value in body.items() if key not in _OWN}
        if body.get("n", 1) != 1:
            sent["n"] = body["n"]
        reply = await self._asked(self.url, sent)
        if not isinstance(reply.get("choices"), list) or not reply["choices"]:
            raise self._no_completion(orjson.dumps(reply))
        if any(map(_is_cut, cast(list[Any], reply["choices"]))):
            raise self._cut()
        for choice in cast(list[Any], reply["choices"]):
            _set_thoughts_apart(choice)
        return reply

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._asked(self._older_url, {key: body[key] for key in body if key not in _OWN[:2]})

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._asked(self._embeddings_url, dict(body))

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        del held
        sent = {key: value for key, value in body.items() if key not in _OWN}
        response = await self._streamed(sent | {"stream": True})
        begun = ended = False
        count = 0
        try:
            if response.content_type == "application/json":  # a server that does not stream
                whole = await parsed(self._loaded, payload := await read_reply(response))
                if not whole.get("choices"):
                    raise self._no_completion(payload)
                if any(map(_is_cut, whole["choices"])):
                    raise self._cut()
                yield as_chunk(whole)
                return
            async with aclosing(self._data_in(response)) as parts:
                async for data in parts:
                    if data == b"[DONE]":
                        ended = True
                        break
                    chunk = self._loaded(data, "kept")
                    if chunk.get("error"):
                        raise self._relayed(Reply(502, response.headers, data))
                    if (finish := first_choice(chunk).get("finish_reason")) == "error":
                        raise self._cut()
                    begun, ended = begun or bool(chunk.get("choices")), ended or bool(finish)
                    yield chunk
                    if (count := count + 1) % CHUNKS_AT_ONCE == 0:
                        await asyncio.sleep(0)  # a stream that comes all at once must not keep others waiting
            if not (begun and ended):
                raise self._cut()
        except (aiohttp.ClientError, OSError) as error:
            fault = self._broken(error)
            raise (self._cut() if isinstance(fault, Unreachable) else fault) from error
        finally:
            response.close()  # a stream that is left early must not keep its connection busy

    async def _data_in(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """Yield the data of a stream; if there is none, what came in its place is the error."""
        begun, other = False, b""
        async with aclosing(read_lines(response)) as lines:
            async for read in lines:
                line = read.removeprefix(_BOM)
                if line.startswith(b"data:"):
                    begun = True
                    yield line[5:].strip()
                elif len(other) < _SHOWN and not line.startswith(_FIELDS):
                    other += line[:_SHOWN] + b"\n"
        if not begun and other.strip():
            raise self._no_completion(other)

    async def _streamed(self, sent: dict[str, Any]) -> aiohttp.ClientResponse:
        """The stream, with a token count at its end where the server supports that."""
        if _COUNT not in self.dropped:
            try:
                return await self._post(self.url, {**sent, _COUNT: {"include_usage": True}}, _unread)
            except UpstreamError as complaint:
                if _COUNT not in str(complaint):
                    raise
                self.dropped.add(_COUNT)
        return await self._post(self.url, sent, _unread)

    async def _asked(self, url: str, sent: dict[str, Any]) -> dict[str, Any]:
        return await parsed(self._loaded, await self._post(url, sent, read_reply))

    async def _post(self, url: str, sent: dict[str, Any], read: Callable[[aiohttp.ClientResponse], Awaitable[T]]) -> T:
        """What `read` makes of a response of status 200."""
        try:
            data = orjson.dumps(sent | {"model": self.name} | self.extra_body)
        except TypeError as error:
            raise BadRequest(f"The request cannot be sent as JSON: {error}.") from error

        try:
            async with asyncio.timeout(self._timeout):  # aiohttp's own limits do not cover the connection
                response = await self.client.send(data, url, stream=read is _unread)
                if response.status == 200:
                    return await read(response)
                raise self._relayed(Reply(response.status, response.headers, await read_reply(response)))
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error

    def _loaded(self, payload: bytes, halves: Halves = "mended") -> dict[str, Any]:
        try:
            value: Any = parse_json(payload, MOST_VALUES, halves)
        except TooManyValuesError as error:
            raise CutReply(f"The upstream {self.name} sent a reply of {error}, which are too many.") from error
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._no_completion(payload)
        return cast(dict[str, Any], value)

    def _no_completion(self, payload: bytes) -> UpstreamError:
        return CutReply(
            f"The upstream {self.name} did not send a completion but {self.client.excerpt(payload, 120)!r}."
        )

    def _cut(self) -> UpstreamError:
        return CutReply(f"The answer of the upstream {self.name} broke off before its end.")

    def _broken(self, error: Exception) -> UpstreamError:
        if isinstance(error, TooLargeError):
            fault = UpstreamError(502, f"The upstream {self.name} sent a reply of {error}, which is too large.")
            fault.request_at_fault = True  # another upstream would be asked for the same
            return fault
        if isinstance(error, TimeoutError):
            return UpstreamError(504, f"The upstream {self.name} did not answer in time.", kind="timeout")
        if isinstance(error, aiohttp.ClientPayloadError):
            return self._cut()
        words = self.client.redact(str(error) or type(error).__name__)
        return Unreachable(f"The upstream {self.name} cannot be reached ({words}).")

    def _relayed(self, reply: Reply) -> UpstreamError:
        fault = self._fault_of(reply)
        fault.said = reply.status
        return fault

    def _fault_of(self, reply: Reply) -> UpstreamError:
        """The upstream's error as the client may see it; errors about the guard's own key are not shown."""
        status, payload, wait = reply.status, reply.body, retry_after(reply.headers)
        if status in (401, 403):
            return UpstreamError(502, f"The upstream {self.name} refuses the guard's key ({status}).")
        told = _error_in(payload)
        words = self.client.redact(str(told.get("message") or "") or self.client.excerpt(payload, 300))
        if status in _CLIENTS or status == 429:
            kind = str(told.get("type") or ("rate_limit_error" if status == 429 else "invalid_request_error"))
            param, code = told.get("param"), told.get("code")
            return UpstreamError(
                status,
                words or f"The upstream {self.name} answered {status}.",
                kind=kind,
                param=None if param is None else str(param),
                code=None if code is None else str(code),
                retry_after=wait,
                reason=self.client.redact(str(told.get("message") or "")) if status in REQUEST_FAULTS else "",
            )
        shown = 503 if status == 503 else 504 if status in (408, 504) else 502
        return UpstreamError(shown, f"The upstream {self.name} answered {status}: {words}", retry_after=wait)


async def _unread(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """The response itself, to be read as a stream."""
    return response


def _is_cut(choice: Any) -> bool:
    """Whether a choice of a whole reply says that it has not ended, or failed."""
    match choice:
        case {"finish_reason": None | "error"}:
            return True
        case _:
            return False


def _error_in(payload: bytes) -> Mapping[str, Any]:
    try:
        reply: Any = orjson.loads(payload)
    except ValueError:
        return {}
    match reply:
        case {"error": {**told}} | {"message": str(), **told}:
            return cast(Mapping[str, Any], told if "message" in told else reply)
        case {"error": str(text)} | {"detail": str(text)}:
            return {"message": text}
        case _:
            return {}


def _set_thoughts_apart(choice: Any) -> None:
    """Move thoughts that a server without a reasoning parser left in the content to the field for them."""
    match choice:
        case {"message": {"content": str(content)}}:
            thought, answer = split_thought(content)
            if answer != content:
                choice["message"] |= {"content": answer, "reasoning_content": thought}
        case _:
            pass


class ModelUpstream(Upstream):
    """A model that takes messages of text; requests for tools are refused, other fields that it lacks are ignored."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.spec = model.spec
        self.name = model.spec

    @property
    def model(self) -> Model:
        return self._model

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._check(body)
        messages = conversation_in(body)
        generation = await self._generated(messages, self._params(body))
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": each.text, "refusal": each.refusal},
                "finish_reason": _FINISH[each.finish],
                "logprobs": None,
            }
            for index, each in enumerate(generation.completions)
        ]
        return _envelope("chat.completion", self.spec, choices, generation)

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise BadRequest("This model takes one prompt of text.", "prompt")
        generation = await self._generated((Message("user", prompt),), self._params(body))
        choices = [
            {"index": index, "text": each.text, "finish_reason": _FINISH[each.finish], "logprobs": None}
            for index, each in enumerate(generation.completions)
        ]
        return _envelope("text_completion", self.spec, choices, generation)

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        """One chunk: these models give their answer as a whole."""
        del held
        yield as_chunk(await self.chat({key: value for key, value in body.items() if key != "n"}))

    async def _generated(self, messages: tuple[Message, ...], params: Params) -> Generation:
        try:
            return await self._model.generate(messages, params)
        except UpstreamError:
            raise
        except ModelError as error:
            fault = UpstreamError(502, str(error))
            fault.request_at_fault, fault.was_read = error.request_at_fault, error.was_read
            fault.spent = error.spent
            raise fault from error

    def _check(self, body: Mapping[str, Any]) -> None:
        for name in _WORDS:
            if body.get(name) and body[name] != ["text"]:
                raise BadRequest(f"This model takes and gives text alone; leave out {name}.", name)
        for message in body["messages"]:
            content = message.get("content")
            parts: list[Any] = cast(list[Any], content) if isinstance(content, list) else []
            if (
                not all(map(_is_text, parts))
                or message.get("role") in ("tool", "function")
                or message.get("tool_calls")
            ):
                raise BadRequest("This model takes text alone, no pictures and no tools.", "messages")

    def _params(self, body: Mapping[str, Any]) -> Params:
        """The fields of a request that every model knows."""
        params = Params(
            temperature=_number(body, "temperature"),
            top_p=_number(body, "top_p"),
            max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
            max_tokens_exact=True,
            seed=_whole(body, "seed"),
            stop=_texts(body, "stop"),
            n=_count(body, "n") or 1,
        )
        form: Any = body.get("response_format")
        if isinstance(form, Mapping) and "schema" in self._model.features:
            named: Any = cast(Mapping[str, Any], form).get("json_schema")
            schema: Any = cast(Mapping[str, Any], named).get("schema") if isinstance(named, Mapping) else None
            params = replace(params, schema=schema or {"type": "object"})
        return params


def _is_text(part: Any) -> bool:
    match part:
        case {"type": "text"}:
            return True
        case _:
            return False


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise BadRequest(f"The field {name} is a number.", name)
    if value is not None and value < 0:
        raise BadRequest(f"The field {name} is not below 0.", name)
    return value


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise BadRequest(f"The field {name} is a whole number.", name)
    return value


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = _whole(body, name)
    if value is not None and value < 1:
        raise BadRequest(f"The field {name} is at least 1.", name)
    return value


def _texts(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name)
    texts: Any = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in cast(list[Any], texts)):
        raise BadRequest(f"The field {name} is a text or a list of texts.", name)
    return tuple(cast(list[str], texts))


def _envelope(kind: str, model: str, choices: list[dict[str, Any]], generation: Generation) -> dict[str, Any]:
    used = generation.usage
    counts = {"prompt_tokens": used.prompt_tokens, "completion_tokens": used.completion_tokens}
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {**counts, "total_tokens": used.tokens},
    }


@dataclass(frozen=True, slots=True)
class Tried:
    """One call of an upstream."""

    upstream: str
    failed: bool = False


TRIED: ContextVar[list[Tried] | None] = ContextVar("tried", default=None)
"""Where the calls of the current request are listed, if somebody wants to know."""


CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Who sends the current request: the name of a key, or "" where there are none."""


def new_breaker() -> Breaker:
    return Breaker(FAILURES, FAILING_SECONDS)


class Upstreams(Upstream):
    """Sends each request to the best of its upstreams; `endpoints` are their names, limits and states, in order.

    Log lines begin with `title`. Calls are listed in TRIED if `listed`.
    """

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        endpoints: Sequence[Endpoint],
        retries: int,
        *,
        spec: str = "",
        title: str = "",
        patience: float = math.inf,
        listed: bool = True,
    ) -> None:
        self.spec = spec or upstreams[0].spec
        self.name = upstreams[0].name
        self.endpoints = endpoints
        self._upstreams = upstreams
        self._title = title or self.spec
        self._listed = listed
        self._callers: set[str] = set()
        """Who has used these upstreams."""
        self._failed_for: dict[str, set[str]] = {}
        """Endpoint → whose requests it failed on since its last answer."""
        self._failover = Failover(endpoints, retries, patience=patience, report=self._report, counts=self._counts)
        self._model = PoolModel([each.model for each in upstreams], failover=self._failover)
        self._model.spec = self.spec

    @property
    def model(self) -> Model:
        return self._model

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: upstream.chat(body))

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: upstream.completions(body))

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._whole(lambda upstream: _embedded(upstream, body))

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        (opening, chunks), attempt = await self._begun(lambda upstream: _opened(upstream, body, held=held))
        with attempt:
            async with aclosing(chunks):
                for chunk in opening:
                    yield chunk
                async for chunk in chunks:
                    yield chunk

    async def _whole(self, use: Callable[[Upstream], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        reply, attempt = await self._begun(use)
        attempt.end()
        return reply

    async def _begun(self, use: Callable[[Upstream], Awaitable[T]]) -> tuple[T, Attempt]:
        asked = 0

        def ask(place: int) -> Awaitable[T]:
            nonlocal asked
            asked += 1
            return use(self._upstreams[place])

        try:
            return await self._failover.begin(ask)
        except NoEndpointError as error:
            raise UpstreamError(503, f"{self._title}: {error}", retry_after=error.wait) from error
        finally:
            if asked > 1:
                charge(Usage(retries=asked - 1))
                note_retries(asked - 1)

    def _counts(self, attempt: Attempt, error: ModelError) -> bool:
        """Whether an error is a fault of the endpoint: one caller's poisoned requests must not keep out the others.

        An endpoint that cannot be reached or is busy says so itself. Other errors count once requests of two callers
        fail without an answer between them, and always if there is only one caller.
        """
        caller = CALLER.get()
        if len(self._callers) < _MOST_CALLERS:
            self._callers.add(caller)
        failed_for = self._failed_for.setdefault(attempt.endpoint.name, set())
        if len(failed_for) < _MOST_CALLERS:
            failed_for.add(caller)
        is_own = not isinstance(error, UpstreamError) or isinstance(error, Unreachable) or error.status in _BUSY
        return is_own or len(failed_for) > 1 or len(self._callers) == 1

    def _report(self, attempt: Attempt, error: BaseException | None, changed: bool) -> None:
        endpoint, tried = attempt.endpoint, TRIED.get()
        if error is None:
            self._failed_for.pop(endpoint.name, None)
            if len(self._callers) < _MOST_CALLERS:
                self._callers.add(CALLER.get())
        if tried is not None and self._listed:
            tried.append(Tried(endpoint.name, isinstance(error, ModelError) and not error.request_at_fault))
        if changed and endpoint.breaker.is_open:
            reason = endpoint.breaker.error
            _log.warning(
                "%s: the upstream %s fails and gets no requests for now: %s", self._title, endpoint.name, reason
            )
        elif changed:
            _log.info("%s: the upstream %s works again", self._title, endpoint.name)


async def _embedded(upstream: Upstream, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return await upstream.embeddings(body)
    except UpstreamError as error:
        # Endpoints that make no embeddings say so with many statuses; they may answer chats all the same.
        error.request_at_fault |= error.status not in _BUSY and not isinstance(error, (Unreachable, CutReply))
        raise


async def _opened(
    upstream: Upstream, body: Mapping[str, Any], *, held: bool
) -> tuple[list[Chunk], AsyncGenerator[Chunk]]:
    """Return the chunks up to the first text, or if `held` to the first whole segment, and the stream of the others."""
    chunks = upstream.chat_stream(body)
    opening: list[Chunk] = []
    text = ""
    try:
        async for chunk in chunks:
            opening.append(chunk)
            if len(opening) == _MOST_HELD:
                break
            delta = delta_of(first_choice(chunk))
            if held:
                text += text_of(delta.get("content"))
                if first_end(text):
                    break
            elif any(value for name, value in delta.items() if name != "role"):
                break
    except BaseException:
        if opening and (unused := UNUSED.get()) is not None:
            unused.append(sum(received_characters(delta_of(first_choice(chunk))) for chunk in opening))
        await chunks.aclose()
        raise
    return opening, chunks
