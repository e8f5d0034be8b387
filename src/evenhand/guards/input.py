"""The check of a request: what the client sent is checked before the model is called, or while it answers.

The same evaluators, disguises and records apply as to answers. The texts of one speaker are checked together, so that
the cost of a check does not grow with the number of messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import orjson

from evenhand.guards.checks import Checks, failed, is_unchecked
from evenhand.guards.fields import as_mapping, as_sequence, is_name, json_words, name_words
from evenhand.guards.loop import Loop, Setup
from evenhand.guards.meter import charge
from evenhand.guards.policy import InputPolicy, InputRail, Scope
from evenhand.guards.record import LATE, blocked_message
from evenhand.guards.streaming import stream_segments
from evenhand.guards.types import Check, Guarded, InputAction, InputRecord, Segment
from evenhand.judging.judge import JUDGE
from evenhand.reading.json_form import wants_json

MOST_NAMED = 3
"""Words of a name or a key that is not read as text."""
UNREAD = "it has content that is not text"
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_MEDIA = ("image_url", "input_image", "input_audio", "video_url", "file", "input_file")
_OTHER = "other content"
_APPLICATION = ("system", "developer")
"""Roles of the application itself, which writes instructions by right."""
_FORM = ("role", "content", "tool_call_id")
_NO_TEXT = ("messages", "model", "user", "safety_identifier", "prompt_cache_key", "evenhand")
"""Fields that a model does not read, or that are read by themselves; every other field may carry text."""


async def checked_answer(setup: Setup, body: Mapping[str, Any]) -> Guarded:
    """The answer to a request, or its refusal if it does not pass."""
    loop = Loop(setup, body)
    try:
        if setup.input is None:
            return await loop.run()
        async with _RequestCheck(setup.input, loop) as check:
            if check.action == "blocked":
                return check.refusal()
            guarded = await loop.run()
            await check.done()
            return check.marked(guarded)
    finally:
        charge(loop.usage())


async def checked_stream(setup: Setup, body: Mapping[str, Any]) -> AsyncGenerator[Segment]:
    """The answer to a request in segments, or its refusal if it does not pass."""
    loop = Loop(setup, body)
    try:
        stream = stream_segments(loop) if setup.input is None else _stream(setup.input, loop)
        async with aclosing(stream) as segments:
            async for segment in segments:
                yield segment
    finally:
        charge(loop.usage())


async def _stream(rail: InputRail, loop: Loop) -> AsyncGenerator[Segment]:
    async with _RequestCheck(rail, loop) as check:
        if check.action == "blocked":
            refusal = check.refusal()
            if refusal.message["content"]:
                yield Segment(refusal.text)
            yield Segment("", final=refusal)
            return
        async with aclosing(stream_segments(loop)) as segments:
            async for segment in segments:
                if segment.final is None:
                    yield segment
                else:
                    await check.done()
                    yield replace(segment, final=check.marked(segment.final))


class _RequestCheck:
    """The check of one request, which runs in a task of its own; entering it waits where the model has to wait."""

    def __init__(self, rail: InputRail, loop: Loop) -> None:
        self.action: InputAction = "unchecked"
        self._policy = rail.policy
        self._loop = loop
        models = loop.session.models if rail.judge is None else {**loop.session.models, JUDGE: loop.counted(rail.judge)}
        # A trace of its own: the method that runs at the same time looks at the last turn of its trace.
        # A request answers nothing, so that it stands without a question.
        self._session = replace(
            loop.session,
            sample=replace(loop.session.sample, prompt=""),
            models=models,
            options=rail.thresholds,
            trace=loop.input_trace,
        )
        self._checks = Checks(rail.evaluators, rail.thresholds, lenient=rail.policy.unchecked == "pass")
        self._record = InputRecord("unchecked")
        self._late = False
        self._seconds = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        if self._policy.comes_first:
            try:
                await self._task
            except BaseException:
                await self._end()
                raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._end()

    async def done(self) -> None:
        await self._task

    async def _end(self) -> None:
        """End a check whose result nobody needs; its cancelled calls are counted."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        began = time.perf_counter()
        texts, unread = sent_texts(self._loop.request.body, self._policy.scope)
        limit = asyncio.timeout_at(self._loop.deadline)
        try:
            async with limit:
                checks = await self._checks.run(self._session, *(texts or ("",)))
        except TimeoutError:
            if not limit.expired():
                raise
            self._late = True
            checks = self._checks.known(*(texts or ("",)))
        if unread:
            problem = f"{UNREAD}: {', '.join(unread)}"
            checks = (*checks, Check("content", None, None, self._policy.unchecked == "pass", problem=problem))
        self.action = _decided(checks, self._policy)
        self._record = InputRecord(self.action, failed(checks), checks)
        self._seconds = time.perf_counter() - began

    def refusal(self) -> Guarded:
        """The record of a request that the model never saw."""
        as_refusal = wants_json(self._loop.request.response_format)
        refused = Guarded(
            text=self._policy.blocked_text,
            message=blocked_message(self._policy.blocked_text, as_refusal=as_refusal),
            finish="content_filter",
            action="input-blocked",
            why=(*self._record.why, *((LATE,) if self._late else ())),
            checks=self._loop.setup.checks,
        )
        return self.marked(refused)

    def marked(self, answer: Guarded) -> Guarded:
        return replace(
            answer,
            input=self._record,
            late=answer.late or self._late,
            usage=self._loop.usage(),
            trace=(*self._loop.input_trace, *answer.trace),
            stages={**answer.stages, "input": self._seconds, "total": self._loop.elapsed()},
        )


def _decided(checks: Sequence[Check], policy: InputPolicy) -> InputAction:
    failing = any(not each.passed and not is_unchecked(each) for each in checks)
    unchecked = any(map(is_unchecked, checks))
    if (failing and policy.action == "block") or (unchecked and (policy.unchecked or policy.action) == "block"):
        return "blocked"
    return "flagged" if failing else "unchecked" if unchecked else "passed"


def sent_texts(body: Mapping[str, Any], scope: Scope) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what each speaker wrote in the checked part of a request, and the kinds of content that are not text."""
    messages = [as_mapping(each) for each in body["messages"]]
    words: dict[str, list[str]] = {}
    unread: dict[str, None] = {}
    for message in _new(messages) if scope == "new" else messages:
        said = words.setdefault(_speaker(message), [])
        for text, kind in _parts(message):
            if text:
                said.append(text)
            if kind:
                unread[kind] = None
    if scope == "all":
        given = {name: value for name, value in body.items() if name not in _NO_TEXT and value}
        words.setdefault("system", []).extend(_texts_in(given) or ())
    texts = ("\n\n".join(said) for said in words.values())
    return tuple(filter(None, texts)), tuple(unread)


def _new(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return what was said after the model's last answer.

    An assistant message at the end is a beginning that the client wrote for the next answer, so it counts as new.
    """
    roles = [each.get("role") for each in messages]
    ends = [n for n in range(1, len(roles)) if roles[n - 1] == "assistant" and roles[n] != "assistant"]
    new = messages[ends[-1] if ends else 0 :]
    return [each for each in new if each.get("role") not in _APPLICATION] or new


def _speaker(message: Mapping[str, Any]) -> str:
    role = str(message.get("role"))
    return "tool" if role == "function" else "system" if role in _APPLICATION else role


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a message, and the kinds of its parts that are no text."""
    content: Any = message.get("content")
    if isinstance(content, str):
        yield content, ""
    elif isinstance(content, list):
        for part in as_sequence(content):
            yield (part, "") if isinstance(part, str) else _part(as_mapping(part))
    elif content is not None:
        yield "", _OTHER
    if rest := {name: value for name, value in message.items() if name not in _FORM and value}:
        texts = _texts_in(rest)
        yield "\n".join(texts or ()), "" if texts is not None else _OTHER


def _part(part: Mapping[str, Any]) -> tuple[str, str]:
    kind = part.get("type", "text")
    text = part.get("text") or part.get("refusal")
    if kind in _TEXT_PARTS and isinstance(text, str):
        return text, ""
    return text if isinstance(text, str) else "", kind if kind in _MEDIA else _OTHER


def _texts_in(value: Any) -> list[str] | None:
    """Return the texts in any value that are more than a name; None if it cannot be read."""
    try:
        found = json_words(orjson.dumps(value).decode(), _said)
    except TypeError:
        return None
    return None if found is None else list(filter(None, map(_said, found)))


def _said(text: str) -> str:
    """Return a text, or the words of a long name; short names of tools and fields say nothing."""
    if not is_name(text):
        return text
    words = name_words(text)
    return words if words.count(" ") >= MOST_NAMED else ""
