"""Reasoning models: thoughts are separated from answers, once for all providers, and calls get room for them.

A limit of 64 tokens is meant for the answer. A model that thinks first would spend it on its thoughts, so the limit is
raised by `room` as soon as the model is known to think. A reply that ends at its limit before it says anything is asked
for once more, with more room.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any

from evenhand.core.errors import ModelError, UsageError
from evenhand.core.http import RefusedError
from evenhand.core.types import Completion, Generation, Message, Params, Usage
from evenhand.models.base import MORE, Feature, Model, ModelOptions, WrappedModel, estimate_tokens
from evenhand.models.openai.wire import is_too_long

ROOM = 8_192
"""Tokens for thoughts on top of an answer's own limit."""
_LEAST_ROOM = 256

_CLOSING = re.compile(
    r"</(?:think|thinking|thought|seed:think)>|\[/THINK\]|◁/think▷|<\|(?:END_THINKING|end_of_thought)\|>", re.IGNORECASE
)
_OPENING = re.compile(
    r"<(?:think|thinking|thought|seed:think)>|\[THINK\]|◁think▷|<\|(?:START_THINKING|begin_of_thought)\|>",
    re.IGNORECASE,
)
_TAGGED = re.compile(rf"\s*(?:{_OPENING.pattern})(.*?)(?:{_CLOSING.pattern}|\Z)", re.DOTALL | re.IGNORECASE)
_CHANNEL = re.compile(
    r"<\|channel\|>\s*(\w+)[^\n]{0,200}?<\|message\|>(.*?)(?:<\|(?:end|return|call)\|>(?:<\|start\|>\w*)?|\Z)",
    re.DOTALL,
)
# The same without its special tokens, as servers that skip them send it.
_BARE_ANALYSIS = re.compile(r"\s*analysis(?=[A-Z\"“‘(]|\Z)(.*?)(?:assistant\s{0,9}final|\Z)", re.DOTALL)
_OPENINGS = (
    *("<think>", "<thinking>", "<thought>", "<seed:think>", "[think]", "◁think▷"),
    *("<|start_thinking|>", "<|begin_of_thought|>", "<|channel|>", "<|start|>", "analysis"),
)
_BARE_OPENING = re.compile(r"analysis[A-Z\"“‘(]")
_BARE_END = re.compile(r"assistant\s{0,9}final")
_FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final[^\n]{0,200}?<\|message\|>")
_LONGEST_MARK = 300


def split_thought(text: str) -> tuple[str, str]:
    """Split a raw reply into (thought, answer). Thoughts stand at its start; one that never ends leaves no answer."""
    if "<|channel|>" in text and text.lstrip().startswith(("<|channel|>", "<|start|>")):
        parts = _CHANNEL.findall(text)
        final = "".join(part for channel, part in parts if channel == "final")
        return _joined(part for channel, part in parts if channel != "final"), final
    if bare := _BARE_ANALYSIS.match(text):
        return bare[1].strip(), text[bare.end() :]
    thoughts: list[str] = []
    end = 0
    while tagged := _TAGGED.match(text, end):
        thoughts.append(tagged[1])
        end = tagged.end()
    if not end and (closing := _unmarked_end(text)):
        thoughts, end = [text[: closing.start()]], closing.end()
    return (_joined(thoughts), text[end:].lstrip()) if end else ("", text)


def _unmarked_end(text: str) -> re.Match[str] | None:
    """The closing tag of a thought whose opening tag is part of the prompt; None if the text only mentions the tag.

    It stands alone on its line or directly after a word or sentence, not in code or quotes.
    """
    closing = _CLOSING.search(text)
    if closing is None or _OPENING.search(text, 0, closing.start()) or text.count("`", 0, closing.start()) % 2:
        return None
    line = text[: closing.start()].rpartition("\n")[2]
    alone = not line.strip() and not text[closing.end() :].partition("\n")[0].strip()
    ends = line[-1:].isalnum() or line.endswith((".", "!", "?", ")"))
    return closing if alone or (ends and line.count('"') % 2 == 0) else None


class ThoughtStream:
    """Removes the thoughts at the start of a text that comes in pieces; what follows them is passed on at once."""

    def __init__(self) -> None:
        self._held = ""
        self._thought = False
        self._answers = False

    def feed(self, piece: str) -> str:
        """The part of the answer that is known with this piece."""
        if self._answers:
            return piece
        self._held += piece
        new = len(piece)
        while (end := _thought_end(self._held, new)) is not None:
            if end == 0:
                self._answers = True
                return self._held.lstrip() if self._thought else self._held
            self._thought = True
            self._held, new = self._held[end:], len(self._held)
        return ""

    def rest(self) -> str:
        """What is left at the end; a thought that never ends leaves no answer."""
        return "" if self._answers else split_thought(self._held)[1]


def _thought_end(text: str, new: int) -> int | None:
    """Where the thought at the start of a text ends: 0 if there is none, None if that is not known yet.

    Only the last `new` characters have not been searched before.
    """
    start = text.lstrip()
    marked = start.lower()
    if not start or any(mark.startswith(marked) for mark in _OPENINGS):
        return None
    opening = next((mark for mark in _OPENINGS[:-1] if marked.startswith(mark)), None)
    if opening is None and not _BARE_OPENING.match(start):
        return 0
    ends = {None: _BARE_END, "<|channel|>": _FINAL_CHANNEL, "<|start|>": _FINAL_CHANNEL}
    end = ends.get(opening, _CLOSING)
    found = end.search(text, max(0, len(text) - new - _LONGEST_MARK))
    return found.end() if found else None


def separated(completion: Completion) -> Completion:
    """The completion with its thoughts apart from its text, whichever way the server sent them.

    Log-probabilities are dropped from a reply with thoughts: they belong to the thoughts, or depend on them.
    """
    inline, text = split_thought(completion.text)
    thought = completion.thought
    if not thought and text == completion.text:
        return completion
    if inline and inline not in thought:
        thought = _joined([thought, inline])
    # Some gateways repeat the thoughts at the start of the answer.
    rest = text.strip().removeprefix(thought.strip()).lstrip()
    text = rest if rest or completion.finish == "length" else text
    return replace(completion, text=text, thought=thought, logprobs=None)


_IDENTIFYING = ("reasoning", "thought_tokens", "pinned")
"""Options of any model that are part of its fingerprint."""


class ReasoningModel(WrappedModel):
    """Any model, with thoughts apart from answers and room for them; models that do not think are passed through.

    Options: `reasoning` (true or false; by default it shows in the replies) and `thought_tokens`, the room.
    """

    def __init__(self, inner: Model, options: ModelOptions) -> None:
        super().__init__(inner)
        self._declared = _flag(options)
        self.reasons = bool(self._declared)
        """Whether the model is known to think before it answers."""
        self._room = _room(options)
        self._options = {name: options.extra[name] for name in _IDENTIFYING if name in options.extra}
        self._repeated = self._thoughts_only = 0
        self._first: asyncio.Future[None] | None = None
        """The first call, which shows whether the model thinks."""
        self._unmarked = False
        """Whether replies begin with thoughts without a mark, because the opening tag is part of the prompt."""

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.features - {"logprobs"} if self.reasons else self.inner.features

    @property
    def fixed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "pinned" in self._options or self.inner.fixed

    @property
    def room(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._room if self.reasons else 0

    def fingerprint(self) -> Mapping[str, Any]:
        return {**self.inner.fingerprint(), **self._options}

    def caveats(self) -> Sequence[str]:
        if not self._thoughts_only:
            return self.inner.caveats()
        return [
            *self.inner.caveats(),
            f"{self.spec}: {self._thoughts_only:,} replies hold thoughts but no answer; if they read like answers, "
            "turn off the server's reasoning parser",
        ]

    def notes(self) -> Sequence[str]:
        notes = [*self.inner.notes()]
        if self.reasons:
            notes.append(
                f"{self.spec} thinks before it answers; limits on its replies were raised by {self._room:,} tokens for "
                "that, except where --max-tokens sets them"
            )
        if self._repeated:
            notes.append(f"{self.spec}: {self._repeated:,} replies ended before an answer; they were asked for again")
        return notes

    def learned(self) -> Mapping[str, Any]:
        own = {"reasons": True, "room": self._room} if self.reasons else {}
        return {**self.inner.learned(), **own}

    def recall(self, learned: Mapping[str, Any]) -> None:
        self.inner.recall(learned)
        if self._declared is None and learned.get("reasons"):
            self.reasons, self._room = True, learned["room"]

    async def settled(self) -> None:
        if self._first is not None and not self._first.done() and not self.inner.queued:
            await asyncio.wait([self._first])
        await self.inner.settled()

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if params.given:  # nothing is generated
            return await self.inner.generate(messages, params)
        if self._first is not None:
            return await self._generated(messages, params)
        self._first = asyncio.get_running_loop().create_future()
        try:
            return await self._generated(messages, params)
        finally:
            self._first.set_result(None)

    async def _generated(self, messages: Sequence[Message], params: Params) -> Generation:
        raised = params.max_tokens is not None and not params.max_tokens_exact
        room = self.room if raised else 0
        generation = await self._ask(messages, params, room)
        if raised and self._declared is not False and _is_cut(generation, params):
            self._repeated += 1
            # Known at once, so that calls that begin meanwhile get room.
            self.reasons = self.reasons or _thinks(generation)
            try:
                again = await self._ask(messages, params, self._room * MORE if room else self._room)
            except ModelError as error:
                error.spent = generation.usage + (error.spent or Usage())
                raise
            self.reasons = self.reasons or any(each.text.strip() or each.thought for each in again.completions)
            generation = replace(
                again, usage=generation.usage + again.usage, latency=generation.latency + again.latency
            )
        if _thinks(generation):
            self._thoughts_only += sum(
                bool(each.thought) and not each.text.strip() and each.finish == "stop"
                for each in generation.completions
            )
            self.reasons = self._declared is not False
        return generation

    async def _ask(self, messages: Sequence[Message], params: Params, room: int) -> Generation:
        """One call with this room, or with less where the model's context is shorter."""
        while True:
            sent = replace(params, max_tokens=(params.max_tokens or 0) + room) if room else params
            try:
                generation = await self.inner.generate(messages, sent)
                if not self._unmarked and all(map(_is_plain, generation.completions)):
                    return generation
                self._unmarked = self._unmarked or any(_unmarked_end(each.text) for each in generation.completions)
                return _counted(_marked(generation) if self._unmarked else generation)
            except RefusedError as refusal:
                room //= 2
                if room < _LEAST_ROOM or not is_too_long(refusal.reply.body):
                    raise
                self._room = min(self._room, room)


def _is_plain(completion: Completion) -> bool:
    """Whether a completion surely holds no thoughts, at little cost."""
    text = completion.text
    return not (completion.thought or "<" in text or "[" in text or "◁" in text or "analysis" in text)


def _marked(generation: Generation) -> Generation:
    """The same with replies that end before any closing tag as thoughts, where thoughts begin without a mark."""
    completions = tuple(
        replace(each, text="", thought=each.text.strip(), logprobs=None)
        if each.finish == "length" and each.text and _CLOSING.search(each.text) is None
        else each
        for each in generation.completions
    )
    return replace(generation, completions=completions)


def _counted(generation: Generation) -> Generation:
    """The generation with thoughts apart and counted; where the server does not count them, they are estimated."""
    completions = tuple(map(separated, generation.completions))
    if all(map(is_, completions, generation.completions)):
        return generation
    usage = generation.usage
    if not usage.thought_tokens:
        estimate = sum(estimate_tokens(each.thought) for each in completions if each.thought)
        usage = replace(usage, thought_tokens=min(estimate, usage.completion_tokens or estimate))
    return replace(generation, completions=completions, usage=usage)


def _thinks(generation: Generation) -> bool:
    return generation.usage.thought_tokens > 0 or any(each.thought for each in generation.completions)


def _is_cut(generation: Generation, params: Params) -> bool:
    """Whether a reply reached its limit before its answer began.

    One token with log-probabilities is what a reading by log-probabilities asks for, and no sign of thoughts.
    """
    for each in generation.completions:
        expected = params.logprobs and each.logprobs and not generation.usage.thought_tokens
        if each.finish == "length" and not each.text.strip() and not expected:
            return True
    return False


def _joined(parts: Any) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip())


def declared_room(extra: Mapping[str, Any]) -> int:
    """The room for thoughts of a model that these options declare to be a reasoning model; 0 for others."""
    options = ModelOptions(extra=extra)
    return _room(options) if _flag(options) else 0


def _flag(options: ModelOptions) -> bool | None:
    """Whether the options say that the model thinks; an effort says so, too."""
    value = options.extra.get("reasoning")
    if value not in (True, False, None):
        raise UsageError(f"The model option reasoning is true or false, not {value!r}.")
    effort = options.extra.get("reasoning_effort")
    return True if value is None and effort not in (None, "none") else value


def _room(options: ModelOptions) -> int:
    value = options.extra.get("thought_tokens", ROOM)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1_000_000:
        raise UsageError(f"The model option thought_tokens is a number of tokens, e.g. {ROOM}, not {value!r}.")
    return value
