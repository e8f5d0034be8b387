"""A streamed answer: text is held back until its segment is complete and has passed the checks, with what precedes it.

A segment that fails is not released: the model is asked for a new continuation from the last released word. If the
method or an evaluator needs the whole answer, it is released in segments afterwards, or withheld where it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message
from evenhand.core.untrusted import fenced
from evenhand.guards.checks import is_quick, is_unchecked
from evenhand.guards.fields import text_of
from evenhand.guards.loop import Loop
from evenhand.guards.record import StreamedAnswer, StreamedReply, record_stream
from evenhand.guards.segments import first_end, going_on, pieces, segment_end
from evenhand.guards.types import Check, Guarded, Segment
from evenhand.guards.upstream import UpstreamError, UpstreamTimeout
from evenhand.methods.base import FirstQuestion
from evenhand.reading.json_form import wants_json

_CONTEXT = 2_000
"""Characters before a segment that are checked with it; checking all of them again would take too long."""


async def stream_segments(loop: Loop) -> AsyncGenerator[Segment]:
    """The answer to a request, segment by segment; the last one is empty and carries the record."""
    setup = loop.setup
    streams = setup.method.method.streams
    quick = all(is_quick(each, setup.method.thresholds) for each in loop.checks.evaluators)
    if streams is not None and quick and not wants_json(loop.request.response_format):
        async with aclosing(_Stream(loop, streams).run()) as stream:
            async for segment in stream:
                yield segment
        return
    if setup.policy.action == "revise" and setup.policy.on_unrevised is None and setup.method.most_revisions:
        loop.setup = replace(setup, policy=replace(setup.policy, on_unrevised="block"))
    guarded = await loop.run()
    for piece in pieces(text_of(guarded.message.get("content"))):
        yield Segment(piece, guarded.after)
    yield Segment("", guarded.after, guarded)


class _Stream:
    """The state of one streamed answer: released text, checks, and whether it continues."""

    def __init__(self, loop: Loop, first: FirstQuestion) -> None:
        self._loop = loop
        self._setup = loop.setup
        self._prompt, self._opening = first(loop.session.sample)
        self._replies: list[StreamedReply] = []
        self._segments: list[str] = []
        """What was released."""
        self._context = ""
        """What of it is checked with the next segment."""
        self._critiques: dict[str, None] = {}
        self._before: tuple[Check, ...] = ()
        """The first checks that failed."""
        self._after: tuple[Check, ...] = ()
        self._failing = False
        """Whether something was released although it failed."""
        self._unchecked = False
        """Whether something was released that could not be checked."""
        self._over = False
        self._attempts_left = self._setup.method.most_revisions
        self._first_segment: float | None = None
        self._deadline = loop.deadline

    async def run(self) -> AsyncGenerator[Segment]:
        for attempt in range(self._attempts_left + 1):
            self._attempts_left = self._setup.method.most_revisions - attempt
            async with aclosing(self._attempt(attempt)) as stream:
                async for segment in stream:
                    if self._first_segment is None and segment.text:
                        self._first_segment = self._loop.elapsed()
                    self._release(segment.text)
                    yield segment
            if self._over or self._is_late():
                break
        blocked = not self._over
        if blocked:
            text = ("\n\n" if self._released.strip() else "") + self._setup.policy.blocked_text
            self._release(text)
            yield Segment(text, self._after)
        yield Segment("", self._after, self._record(blocked))

    async def _attempt(self, number: int) -> AsyncGenerator[Segment]:
        """Stream the answer until its end or a failing segment."""
        prompt, messages = self._question(number)
        reply = StreamedReply(
            self._loop.request, messages, first=number == 0, checked=bool(self._loop.checks.evaluators)
        )
        self._replies.append(reply)
        held = ""
        repeats = bool(self._segments)
        try:
            async with aclosing(reply.texts()) as texts:
                while (text := await self._next(texts, number)) is not None:
                    held += text
                    if repeats:
                        if (new := going_on(self._released, held)) is None:
                            continue
                        held, repeats = new, False
                    start = 0
                    while end := self._segment_end(held, start):
                        segment = held[start:end]
                        checks = await self._check(segment)
                        if not self._may_go(checks):
                            return
                        yield Segment(segment, checks)
                        start = end
                        if checks:
                            await asyncio.sleep(0)  # an answer that comes all at once must not keep others waiting
                    held = held[start:]
            held = "" if repeats else held
            calls = self._loop.call_words(reply.message)
            checks = await self._check(held, reply.refusal, calls)
            if not self._may_go(checks):
                return
            self._over = True
            if held:
                yield Segment(held, checks)
            if len(released := self._released) > _CONTEXT:
                whole = await self._loop.checks.run(self._loop.session, released, since=len(released))
                self._failing |= any(not each.passed and not is_unchecked(each) for each in whole)
        except UpstreamError as error:
            if number == 0:
                raise
            self._loop.note(error)
        finally:
            self._loop.session.trace.append(reply.turn(prompt, self._setup.upstream.spec))

    async def _next(self, texts: AsyncGenerator[str], number: int) -> str | None:
        """The next piece of text; the budget covers the time to the first words, and every repeated request."""
        if self._deadline is None or (number == 0 and self._segments):
            return await anext(texts, None)
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                return await anext(texts, None)
        except TimeoutError:
            if not limit.expired():
                raise
            self._loop.late = True
            raise UpstreamTimeout("No answer came within the latency budget.") from None

    @property
    def _released(self) -> str:
        return "".join(self._segments)

    def _release(self, text: str) -> None:
        self._segments.append(text)
        self._context += text
        while len(self._context) > _CONTEXT:  # from the start of a segment, so that later segments begin where they did
            self._context = self._context[segment_end(self._context) or len(self._context) - _CONTEXT :]

    def _segment_end(self, held: str, start: int) -> int:
        """Return where the next segment ends; 0 if it is not complete."""
        if not self._loop.checks.evaluators:
            return len(held) if start < len(held) else 0
        return segment_end(held, start) if self._segments else first_end(held)

    async def _check(self, new: str, *beside: str) -> tuple[Check, ...]:
        """Check what comes next, with what was released before it."""
        text = self._context + new
        self._loop.checks.forget_all_but(text)
        self._after = await self._loop.checks.run(self._loop.session, text, *beside, since=len(self._context))
        return self._after

    def _may_go(self, checks: Sequence[Check]) -> bool:
        """Whether a segment may be released; where it may not, the critics' words are kept for the next attempt."""
        policy = self._setup.policy
        failing = any(not check.passed and not is_unchecked(check) for check in checks)
        unchecked = any(map(is_unchecked, checks))
        if not failing and not unchecked:
            return True
        self._before = self._before or tuple(checks)
        released = policy.action == "flag" or (policy.action == "revise" and self._may_stay())
        tolerated = policy.unchecked in ("flag", "pass") or (policy.unchecked is None and released)
        if (released or not failing) and (tolerated or not unchecked):
            self._failing |= failing
            self._unchecked |= unchecked
            return True
        self._critiques |= dict.fromkeys(f"- {each.words}" for each in checks if each.words)
        return False

    def _may_stay(self) -> bool:
        """Whether failing text is released under `revise`, because no attempt is left."""
        if (wanted := self._setup.policy.on_unrevised) is None:
            return not self._setup.method.most_revisions
        return wanted != "block" and not self._attempts_left

    def _question(self, number: int) -> tuple[Prompt, tuple[Message, ...]]:
        """The messages of an attempt: the conversation, then what was released and why the rest was not."""
        if number == 0:
            return self._prompt, self._opening
        critiques = fenced("\n".join(self._critiques) or "- It could not be checked.")
        revision = self._setup.method.method.revision
        if revision is not None and not self._released.strip():
            prompt = revision.prompt()
            return prompt, (*self._opening, *prompt.render(critiques=critiques))
        prompt = load_prompt(__file__, "continue_chat")
        return prompt, (*self._opening, Message("assistant", self._released), *prompt.render(critiques=critiques))

    def _is_late(self) -> bool:
        """Return whether no further attempt is allowed."""
        if self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline:
            self._loop.late = True
        return self._loop.late

    def _record(self, blocked: bool) -> Guarded:
        stages = {
            "answer": self._replies[0].seconds,
            "revision": sum(each.seconds for each in self._replies[1:]),
            "checks": self._loop.checks.seconds,
            "total": self._loop.elapsed(),
        }
        if self._first_segment is not None:
            stages["first_segment"] = self._first_segment
        answer = StreamedAnswer(
            text=self._released,
            replies=self._replies,
            before=self._before or self._after,
            after=self._after,
            blocked=blocked,
            failing=self._failing,
            unchecked=self._unchecked,
            checked=bool(self._loop.checks.evaluators),
            late=self._loop.late,
            problems=tuple(self._loop.problems),
        )
        loop = self._loop
        trace, errors = tuple(loop.session.trace), tuple(loop.errors)
        return record_stream(
            answer,
            self._setup.policy,
            usage=loop.usage(),
            trace=trace,
            errors=errors,
            stages=stages,
            checks=self._setup.checks,
        )
