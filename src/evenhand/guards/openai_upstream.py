"""Any OpenAI-compatible endpoint as an upstream: request bodies pass unchanged, except for the model's name.

Nothing is retried here; `Upstreams` does that.
It is also the model of `models/openai`, with the same connections and key. A parameter of the client that the server
rejects is not dropped, as it is in the guard's own calls: the client gets the server's complaint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, cast

import aiohttp
import orjson

from evenhand.core.http import Reply, TooLargeError, read_lines, read_reply, retry_after
from evenhand.guards.fields import first_choice
from evenhand.guards.upstream import (
    REQUEST_FAULTS,
    BadRequest,
    CutReply,
    Unreachable,
    Upstream,
    UpstreamError,
    as_chunk,
)
from evenhand.models.base import Model, ModelOptions
from evenhand.models.openai import OpenAIModel
from evenhand.models.reasoning import ReasoningModel, split_thought

T = TypeVar("T")

_CLIENTS = (400, 404, 409, 413, 415, 422)
"""Statuses that the client's request caused; others concern the guard and its upstream only."""
_COUNT = "stream_options"
_OWN = ("stream", _COUNT, "n")


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
        try:
            if response.content_type == "application/json":  # a server that does not stream
                whole = self._loaded(await read_reply(response))
                if any(map(_is_cut, whole.get("choices") or ())):
                    raise self._cut()
                yield as_chunk(whole)
                return
            async with aclosing(read_lines(response)) as lines:
                async for line in lines:
                    if not line.startswith(b"data:"):
                        continue
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        ended = True
                        break
                    chunk = self._loaded(data)
                    if chunk.get("error"):
                        raise self._relayed(Reply(502, response.headers, data))
                    if (finish := _finish_of(chunk)) == "error":
                        raise self._cut()
                    begun, ended = begun or bool(chunk.get("choices")), ended or bool(finish)
                    yield chunk
            if not (begun and ended):
                raise self._cut()
        except (aiohttp.ClientError, OSError) as error:
            fault = self._broken(error)
            raise (self._cut() if isinstance(fault, Unreachable) else fault) from error
        finally:
            response.close()  # a stream that is left early must not keep its connection busy

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
        return self._loaded(await self._post(url, sent, read_reply))

    async def _post(self, url: str, sent: dict[str, Any], read: Callable[[aiohttp.ClientResponse], Awaitable[T]]) -> T:
        """What `read` makes of a response of status 200."""
        try:
            data = orjson.dumps(sent | {"model": self.name} | self._extra_body)
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

    def _loaded(self, payload: bytes) -> dict[str, Any]:
        try:
            value: Any = orjson.loads(payload)
        except ValueError:
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


def _finish_of(chunk: Mapping[str, Any]) -> Any:
    return first_choice(chunk).get("finish_reason")


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
