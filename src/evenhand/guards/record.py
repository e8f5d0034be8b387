"""The record of an answer: the policy's action and reasons; and a streamed reply with the fields of its chunks.

Pure functions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from evenhand.asking.chat import ANSWER
from evenhand.core.errors import ModelError
from evenhand.core.events import IN_VAIN
from evenhand.core.prompts import Prompt
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Completion, Generation, Message, Params, Turn, Usage
from evenhand.guards.checks import failed, is_unchecked
from evenhand.guards.fields import (
    CALLED,
    allowed_calls,
    allowed_head,
    allowed_logprobs,
    allowed_message,
    allowed_reply,
    as_mapping,
    as_sequence,
    delta_of,
    finish_of,
    first_choice,
    left_out,
    mended,
    received_characters,
    said,
    text_of,
)
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.request import CHARACTERS_PER_TOKEN, RawAnswer, Request, sent_tokens, usage_in
from evenhand.guards.types import Action, Check, Guarded
from evenhand.guards.upstream import CHUNKS_AT_ONCE, UNUSED, UpstreamError
from evenhand.models.reasoning import ThoughtStream

LATE = "the latency budget was used up"
TOOLS = "tool calls are not checked"


class StreamedReply:
    """One streamed call of the upstream."""

    def __init__(self, request: Request, messages: Sequence[Message], *, first: bool, checked: bool) -> None:
        self.finish = "stop"
        self.head: dict[str, Any] = {}
        """The fields of the chunks apart from choices and usage."""
        self.seconds = 0.0
        self._request = request
        self._messages = tuple(messages)
        self._first = first
        self._thoughts = ThoughtStream() if checked else None
        """Thoughts inside the text are left out of checked answers."""
        self._texts: list[str] = []
        self._half = ""
        """The first half of a character whose second half is in the next chunk."""
        self._refusals: list[str] = []
        self._calls: dict[str, _StreamedCall] = {}
        self._called: _StreamedCall | None = None
        """The one call of the older form, `function_call`."""
        self._usage: Mapping[str, Any] | None = None
        self._received = 0
        """Characters of all kinds that came, thoughts among them."""
        self._charged = False
        """Whether the endpoint has begun to work on the request."""
        self._late = 0
        """Attempts that the endpoint read without an answer, and which were repeated."""
        self._unused: list[int] = []
        """Characters of attempts of which no text was used."""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def refusal(self) -> str:
        return mended("".join(self._refusals))

    @property
    def message(self) -> dict[str, Any]:
        """What the reply says beside its text."""
        message: dict[str, Any] = {"refusal": self.refusal}
        if calls := allowed_calls([each.whole() for each in self._calls.values()]):
            message["tool_calls"] = calls
        if self._called is not None:
            message["function_call"] = self._called.whole()["function"]
        return message

    async def texts(self) -> AsyncGenerator[str]:
        """The pieces of text as they come."""
        began = time.perf_counter()
        body = self._request.answer_body(self._messages, first=self._first)
        IN_VAIN.set(self._repeated)  # not reset: a generator may end in another context; later calls set their own
        UNUSED.set(self._unused)
        self._traced = ModelCall(self._request.upstream.spec, ANSWER, stream=True)
        try:
            raw = self._request.upstream.chat_stream(body, held=self._thoughts is not None)
            async with aclosing(self._traced.stream(raw)) as chunks:
                count = 0
                async for chunk in chunks:
                    if (count := count + 1) % CHUNKS_AT_ONCE == 0:
                        await asyncio.sleep(0)  # chunks that were held until the first words come all at once
                    try:
                        text = self._taken(chunk)
                    except (TypeError, ValueError, LookupError, AttributeError) as error:
                        raise UpstreamError(502, f"The upstream sent a chunk that is malformed ({error}).") from error
                    if text and self._thoughts is not None:
                        text = self._thoughts.feed(text)
                    if text:
                        self._texts.append(text)
                        yield text
            rest = mended(self._half)
            if text := rest if self._thoughts is None else self._thoughts.feed(rest) + self._thoughts.rest():
                self._texts.append(text)
                yield text
        except UpstreamError as error:
            self._charged |= error.was_read
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._charged = True
            raise
        finally:
            self.seconds = time.perf_counter() - began

    async def _repeated(self, error: ModelError) -> None:
        self._late += error.was_read

    def turn(self, prompt: Prompt, spec: str) -> Turn:
        """Return the recorded call; the tokens of a stream that says none, or is left early, are estimated.

        A call that was refused before the endpoint worked on it is not counted.
        """
        if self._usage is not None:
            usage = usage_in({"usage": self._usage})
        elif self._charged or self._unused:
            usage = Usage(1, sent_tokens(self._request.body), self._received // CHARACTERS_PER_TOKEN)
        else:
            usage = Usage()
        usage += Usage(
            prompt_tokens=self._late * sent_tokens(self._request.body),
            completion_tokens=sum(self._unused) // CHARACTERS_PER_TOKEN,
        )
        completion = Completion(self.text, refusal=self.refusal or None)
        generation = Generation((completion,), spec, usage, self.seconds)
        agent = "writer" if self._first else "reviser"
        return Turn(agent, ANSWER, prompt.id, prompt.hash, self._messages, Params(), generation)

    def _taken(self, chunk: Mapping[str, Any]) -> str:
        """Return the text of a chunk and keep its other fields."""
        for name, value in chunk.items():
            if name == "usage":
                if usage := as_mapping(value):
                    self._usage = usage
                    self._traced.used(usage_in(chunk), self.finish)
            elif name != "choices":
                self.head[name] = value
        self._charged = True
        choice = first_choice(chunk)
        if finish := choice.get("finish_reason"):
            self.finish = str(finish)
        delta = delta_of(choice)
        self._received += received_characters(delta)
        if refusal := delta.get("refusal"):
            self._refusals.append(text_of(refusal))
        if calls := delta.get("tool_calls"):
            for part in map(as_mapping, as_sequence(calls)):
                self._calls.setdefault(str(part.get("index", len(self._calls))), _StreamedCall()).add(part)
        if called := as_mapping(delta.get("function_call")):
            self._called = self._called or _StreamedCall()
            self._called.add({"function": called})
        text = self._half + text_of(delta.get("content"))
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return mended(text[:-1] if self._half else text)


class _StreamedCall:
    """A tool call whose name and id come once, and whose arguments come in pieces."""

    def __init__(self) -> None:
        self._id = ""
        self._kind = "function"
        self._name = ""
        self._written: list[str] = []

    def add(self, part: Mapping[str, Any]) -> None:
        self._id = str(part.get("id") or self._id)
        for kind, field in CALLED.items():
            if called := as_mapping(part.get(kind)):
                self._kind = kind
                self._name = str(called.get("name") or self._name)
                written = called.get(field) or ""
                self._written.append(written if isinstance(written, str) else orjson.dumps(written).decode())

    def whole(self) -> dict[str, Any]:
        called = {"name": mended(self._name), CALLED[self._kind]: mended("".join(self._written))}
        return {**({"id": mended(self._id)} if self._id else {}), "type": self._kind, self._kind: called}


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The state when an answer is chosen."""

    text: str
    raw: RawAnswer | None
    """The upstream's answer with this text; None if the method wrote it."""
    first: RawAnswer
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    checked: bool = True
    """Whether this guard checks anything at all."""
    better: bool = False
    """Whether the text does better in the checks than the first answer."""
    late: bool = False
    wordless: bool = False
    wants_json: bool = False
    method: str = "default"
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The state at the end of a stream."""

    text: str
    """The released text, plus the replacement text if the rest was blocked."""
    replies: Sequence[StreamedReply]
    before: tuple[Check, ...]
    after: tuple[Check, ...]
    blocked: bool
    failing: bool
    """Whether something was released although it failed."""
    unchecked: bool
    """Whether something was released that could not be checked."""
    checked: bool
    """Whether this guard checks anything at all."""
    late: bool
    problems: tuple[str, ...]


def record_whole(answer: WholeAnswer, policy: GuardPolicy, **more: Any) -> Guarded:
    """The record of an answer that was checked as a whole, with `more` fields of it."""
    action = decide(answer, policy)
    why = [*_reasons(answer.before, action, policy), *answer.problems]
    if action == "revised" and not why:
        why.append(f"the method {answer.method}")
    if answer.late:
        why.append(LATE)
    notes: dict[str, Any] = {}
    upstream: Mapping[str, Any] = {}
    if action == "blocked":
        text, finish = policy.blocked_text, "content_filter"
        message = blocked_message(policy.blocked_text, as_refusal=answer.wants_json)
    else:
        text = answer.text
        message, finish, upstream = _returned(answer)
        if answer.checked and answer.raw and (names := left_out(answer.raw.message, message)):
            notes["left_out"] = f"fields that are not checked were left out: {', '.join(names)}"
        if has_calls(message) and policy.tool_arguments == "pass":
            notes["tools"] = TOOLS
    return Guarded(
        text=text,
        message=message,
        finish=finish,
        action=action,
        why=tuple(dict.fromkeys(why)),
        first=said(allowed_message(answer.first.message, answer.first.text)),
        before=answer.before,
        after=answer.after,
        late=answer.late,
        upstream=upstream,
        notes=notes,
        **more,
    )


def decide(answer: WholeAnswer, policy: GuardPolicy) -> Action:
    changed = not answer.wordless and answer.text != answer.first.text
    unchecked = any(map(is_unchecked, answer.after))
    if unchecked and "block" in ((policy.unchecked,) if policy.unchecked else (policy.action, policy.on_unrevised)):
        return "blocked"
    if any(not check.passed and not is_unchecked(check) for check in answer.after):
        return _failing_action(policy, changed=answer.better)
    if unchecked or _is_passed_on(policy, checked=answer.checked, calls=has_calls(answer.first.message)):
        return "unchecked"
    return "revised" if changed else "passed"


def has_calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def _is_passed_on(policy: GuardPolicy, *, checked: bool, calls: bool) -> bool:
    """Whether an answer, or its tool calls, were not to be checked; under `flag`, a plain pass-through is meant."""
    return policy.tool_arguments == "pass" and calls if checked else policy.action != "flag"


def _failing_action(policy: GuardPolicy, *, changed: bool) -> Action:
    if policy.action == "flag":
        return "flagged"
    if "block" in (policy.action, policy.on_unrevised):
        return "blocked"
    return "tried" if changed else "unrevised"


def _reasons(before: Sequence[Check], action: Action, policy: GuardPolicy) -> tuple[str, ...]:
    """Return the checks that the first answer failed, unless the policy lets a failing one pass without a word."""
    return () if policy.on_unrevised == "pass" and action in ("tried", "unrevised") else failed(before)


def blocked_message(text: str, *, as_refusal: bool = False) -> dict[str, Any]:
    """The configured text as an answer; if JSON was asked for, as a refusal, which clients do not parse."""
    if as_refusal:
        return {"role": "assistant", "content": None, "refusal": text}
    return {"role": "assistant", "content": text}


def _returned(answer: WholeAnswer) -> tuple[Mapping[str, Any], str, Mapping[str, Any]]:
    """Return the message, its finish reason and the reply that contains them, with checked fields only."""
    if answer.raw is None:
        return {"role": "assistant", "content": answer.text}, "stop", {}
    if not answer.checked:
        choice = {**answer.raw.choice, "message": answer.raw.message, "finish_reason": answer.raw.finish}
        return answer.raw.message, answer.raw.finish, {**answer.raw.reply, "choices": [choice]}
    message, finish = allowed_message(answer.raw.message, answer.text), finish_of(answer.raw.finish)
    logprobs = None
    if answer.raw is answer.first:
        logprobs = allowed_logprobs(answer.raw.choice.get("logprobs"), answer.text)
    else:
        # Only the text was revised; the model's tool calls are kept.
        kept = allowed_message(answer.first.message, "")
        message = {"role": "assistant", "content": answer.text}
        if has_calls(kept):
            calls = {name: kept[name] for name in ("tool_calls", "function_call") if name in kept}
            message, finish = message | calls, finish_of(answer.first.finish)
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
    return message, finish, allowed_reply(answer.raw.reply, choice)


def record_stream(answer: StreamedAnswer, policy: GuardPolicy, **more: Any) -> Guarded:
    """The record of an answer that was released in segments; the message is what they say together."""
    first, last = answer.replies[0], answer.replies[-1]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    notes: dict[str, Any] = {}
    beside = last.message
    if not answer.blocked:
        message |= {name: value for name, value in beside.items() if value}
        if has_calls(beside) and policy.tool_arguments == "pass":
            notes["tools"] = TOOLS
    action = _stream_action(answer, policy, calls=has_calls(beside))
    why = [*_reasons(answer.before, action, policy), *answer.problems, *((LATE,) if answer.late else ())]
    return Guarded(
        text=answer.text,
        message=message,
        finish="content_filter" if answer.blocked else finish_of(last.finish),
        action=action,
        why=tuple(dict.fromkeys(why)),
        first=said({"content": first.text, **first.message}),
        before=answer.before,
        after=answer.after,
        late=answer.late,
        iterations=len(answer.replies) - 1,
        upstream=allowed_head(last.head) if answer.checked else last.head,
        notes=notes,
        **more,
    )


def _stream_action(answer: StreamedAnswer, policy: GuardPolicy, *, calls: bool) -> Action:
    if answer.blocked:
        return "blocked"
    revised = len(answer.replies) > 1
    if answer.failing:
        return "flagged" if policy.action != "revise" else "tried" if revised else "unrevised"
    if answer.unchecked or _is_passed_on(policy, checked=answer.checked, calls=calls):
        return "unchecked"
    return "revised" if revised else "passed"
