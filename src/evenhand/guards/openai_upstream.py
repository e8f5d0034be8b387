"""Any OpenAI-compatible endpoint as an upstream: bodies go through as they are, but for the model's name.

It is the model of `models/openai.py` too, with the same connections and key; what a client asks for is not dropped
where a server does not know it, as critics' calls do, but answered with the server's own complaint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import aiohttp
import orjson

from evenhand.guards.upstream import BadRequest, Unreachable, Upstream, UpstreamError, as_chunk
from evenhand.models.base import Model, ModelOptions
from evenhand.models.openai import CONNECT_TIMEOUT, OpenAIModel
from evenhand.models.retry import retry_after

LONGEST_PAUSE = 5.0
"""Seconds; an endpoint that asks for a longer pause is not tried again, and the client is told how long to wait."""
_CLIENTS = (400, 404, 409, 413, 415, 422)
"""What the client's request did; other faults lie between the guard and its upstream."""
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_COUNT = "stream_options"
_OWN = ("stream", _COUNT, "n")


class OpenAIUpstream(OpenAIModel, Upstream):
    """The spec `openai/NAME` behind the guard."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__(name, options)
        self._older_url = "/completions".join(self.url.rsplit("/chat/completions", 1))
        # A long answer may take its time as long as something comes.
        self._streaming = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=options.timeout)

    @property
    def model(self) -> Model:
        return self

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = {key: value for key, value in body.items() if key not in _OWN}
        if body.get("n", 1) != 1:
            sent["n"] = body["n"]
        reply = await self._asked(self.url, sent)
        if not isinstance(reply.get("choices"), list) or not reply["choices"]:
            raise self._no_completion(orjson.dumps(reply))
        return reply

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._asked(self._older_url, {key: body[key] for key in body if key not in _OWN[:2]})

    async def chat_stream(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        sent = {key: value for key, value in body.items() if key not in _OWN}
        response = await self._streamed(sent | {"stream": True})
        try:
            if response.content_type == "application/json":  # a server that does not stream
                yield as_chunk(self._loaded(await response.read()))
                return
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                chunk = self._loaded(data)
                if "error" in chunk:
                    raise self._relayed(502, response.headers, data)
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error
        finally:
            response.close()  # a stream that is left early must not keep its connection busy

    async def _streamed(self, sent: dict[str, Any]) -> aiohttp.ClientResponse:
        """The stream with a count of its tokens at the end, where the server can."""
        if _COUNT not in self.dropped:
            try:
                return await self._retried(self.url, {**sent, _COUNT: {"include_usage": True}})
            except UpstreamError as complaint:
                if _COUNT not in str(complaint):
                    raise
                self.dropped.add(_COUNT)
        return await self._retried(self.url, sent)

    async def _asked(self, url: str, sent: dict[str, Any]) -> dict[str, Any]:
        failures = 0
        while True:
            response = await self._retried(url, sent, failures)
            try:
                async with response:
                    return self._loaded(await response.read())
            except (aiohttp.ClientError, OSError) as error:
                failures += 1
                if failures > self._policy.retries:
                    raise self._broken(error) from error

    async def _retried(self, url: str, sent: dict[str, Any], failures: int = 0) -> aiohttp.ClientResponse:
        """A response of status 200, after as many tries as the options allow."""
        try:
            data = orjson.dumps(sent | {"model": self.name} | self._extra_body)
        except TypeError as error:
            raise BadRequest(f"The request cannot be sent as JSON: {error}.") from error
        while True:
            try:
                session = self._session or self._open()
                timeout = self._streaming if sent.get("stream") else self._timeout
                # A redirect is not followed: it would carry the key elsewhere.
                response = await session.post(url, data=data, timeout=timeout, allow_redirects=False)
                if response.status == 200:
                    return response
                async with response:
                    fault = self._relayed(response.status, response.headers, await response.read())
                    passing = response.status in _PASSING
            except (aiohttp.ClientError, OSError) as error:
                fault, passing = self._broken(error), True
            failures += 1
            pause = fault.retry_after
            if not passing or failures > self._policy.retries or (pause or 0) > LONGEST_PAUSE:
                raise fault
            await asyncio.sleep(self._policy.delay(failures, pause, fault))

    def _loaded(self, payload: bytes) -> dict[str, Any]:
        try:
            value: Any = orjson.loads(payload)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._no_completion(payload)
        return cast(dict[str, Any], value)

    def _no_completion(self, payload: bytes) -> UpstreamError:
        return UpstreamError(
            502, f"The upstream {self.name} did not send a completion but {self._excerpt(payload, 120)!r}."
        )

    def _broken(self, error: Exception) -> UpstreamError:
        if isinstance(error, TimeoutError):
            return UpstreamError(504, f"The upstream {self.name} did not answer in time.", kind="timeout")
        words = self._redact(str(error) or type(error).__name__)
        return Unreachable(f"The upstream {self.name} cannot be reached ({words}).")

    def _relayed(self, status: int, headers: Mapping[str, str], payload: bytes) -> UpstreamError:
        """The upstream's complaint as the client may see it; what concerns the guard's own key is not the client's."""
        wait = retry_after(headers)
        if status in (401, 403):
            return UpstreamError(502, f"The upstream {self.name} refuses the guard's key ({status}).")
        told = _error_in(payload)
        words = self._redact(str(told.get("message") or "") or self._excerpt(payload, 300))
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
            )
        shown = 503 if status == 503 else 504 if status in (408, 504) else 502
        return UpstreamError(shown, f"The upstream {self.name} answered {status}: {words}", retry_after=wait)


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
