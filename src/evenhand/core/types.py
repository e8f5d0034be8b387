"""The shared types as frozen dataclasses: messages, samples, generations, outcomes, grades.

Imports only the standard library, so that every module can import this one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Role = Literal["system", "user", "assistant", "tool"]
SampleKind = Literal["choice", "completion", "answer", "judgement", "debate", "chat", "task", "conversation"]
Finish = Literal["stop", "length", "filter", "other"]
Status = Literal["graded", "refused", "cut", "unscored", "failed"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that a model calls; the arguments are JSON as the model wrote it, which may be wrong."""

    id: str
    name: str
    arguments: str
    result: str | None = None
    """What the tool returned, if an agent of the user's own called it before it answered."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    """The tools that the assistant called in this message."""
    call_id: str = ""
    """In a message of the role `tool`: the call whose result it is."""


@dataclass(frozen=True, slots=True)
class Steering:
    """Conversations whose likely next tokens are suppressed at every step; needs the feature `logits`."""

    against: tuple[tuple[Message, ...], ...]
    decay: float
    """How fast a token's weight falls as one of these conversations makes it more likely."""
    epsilon: float
    """The smallest weight."""


@dataclass(frozen=True, slots=True)
class Params:
    """Generation parameters; None means the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Of the answer; a model that thinks first gets more, so that its thoughts do not use up the limit."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int = 0
    """Number of alternatives to return per generated token; 0 for no log-probabilities."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema that the text must satisfy."""
    steering: Steering | None = None
    max_tokens_exact: bool = False
    """Whether `max_tokens` is the user's own limit: then it includes thoughts and is never raised."""
    given: tuple[str, ...] = ()
    """Texts to score in place of generating one; needs the feature `likelihood`.

    Completion i is text i with the log-probability of each of its tokens, read after a line break and without a chat
    template. No messages are sent; the other parameters do not matter."""
    again: int = 0
    """How often the same request was made before for this sample: a question that is asked twice gets two answers."""
    template: Mapping[str, Any] | None = None
    """Values for the chat template of a guard model, which asks about the conversation: its last turn is complete.

    None for all other models, which continue a last turn of the assistant."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """The tools that may be called: name, description and parameters (a JSON schema) of each. A model without the
    feature `tools` has them in its prompt."""
    world: str = ""
    """A hash of the case, for a model that calls its tools itself: its answer depends on more than the messages."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token with the most likely tokens at its position (which may include itself)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()

    def chances(self) -> dict[str, float]:
        """The probabilities of the token and its alternatives, by text; a NaN or an infinity is not given."""
        given = {self.token: self.logprob, **dict(self.top)}
        return {text: math.exp(min(0.0, logprob)) for text, logprob in given.items() if math.isfinite(logprob)}

    def unlisted(self) -> float:
        """The largest probability that a token may have that is not among the alternatives; 0 if none are given."""
        chances = self.chances().values()
        return max(0.0, min(*chances, 1 - sum(chances))) if self.top and chances else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """One of the n texts of a generation."""

    text: str
    finish: Finish = "stop"
    refusal: str | None = None
    """The refusal text, if the endpoint marks the answer as a refusal."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """None if not requested, not given, or if the reply has thoughts."""
    thought: str = ""
    """What a reasoning model wrote before its answer; recorded, never read as part of the answer."""
    calls: tuple[ToolCall, ...] = ()


LARGEST_COUNT = 10**9
"""Tokens of one call; no larger count is believed. Sums of counts then stay within the integers of SQLite."""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object of a reply; an empty one in place of anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def token_count(value: Any) -> int:
    """Return the token count that an endpoint reports; 0 (not given) if it is not a valid count."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LARGEST_COUNT
    return int(value) if usable else 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls, tokens and cost; the cost is None if the price of some call is unknown."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_calls: int = 0
    retries: int = 0
    cost: float | None = 0.0
    thought_tokens: int = 0
    """How many of the completion tokens were thoughts, where that is known."""

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_calls + other.cached_calls,
            self.retries + other.retries,
            cost,
            self.thought_tokens + other.thought_tokens,
        )

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens."""

    input: float
    output: float

    @classmethod
    def parse(cls, text: str) -> Price:
        """Parse `0.15/0.60`; raise ValueError for anything else."""
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)/(\d+\.?\d*|\.\d+)", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not INPUT/OUTPUT")
        return cls(float(match[1]), float(match[2]))

    def of(self, usage: Usage) -> float:
        return (usage.prompt_tokens * self.input + usage.completion_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Generation:
    """A model's answer to one request, with usage and latency."""

    completions: tuple[Completion, ...]
    model: str
    usage: Usage = Usage()
    latency: float = 0.0
    """Seconds from the first attempt to the last byte, retries included."""
    cached: bool = False
    fingerprint: str = ""
    """What the endpoint reported about itself in its reply: the model's name and OpenAI's `system_fingerprint`."""
    recorded: float | None = None
    """When an answer of an earlier run was recorded, in seconds since 1970; None: in this run."""

    @property
    def text(self) -> str:
        return self.completions[0].text


@dataclass(frozen=True, slots=True)
class Turn:
    """The record of one model call by one agent, complete enough to repeat it."""

    agent: str
    role: str
    """Which of the run's models answered (`base`, `judge`, …)."""
    prompt_id: str
    prompt_hash: str
    messages: tuple[Message, ...]
    params: Params
    generation: Generation | None
    error: str | None = None
    """Why there is no generation, if there is none."""
    spent: Usage | None = None
    """What the call cost, if there is none."""


NO_PASSAGE = "(There is no passage"
"""How the context of a sample begins that stands in place of a passage."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of work."""

    id: str
    kind: SampleKind
    prompt: str
    """What the model responds to: a question, a text to continue, a task."""
    context: str = ""
    choices: tuple[str, ...] = ()
    target: Any = None
    cluster: str = ""
    """Samples of one cluster (template, scenario, article) are not independent."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    messages: tuple[Message, ...] = ()
    """The conversation to answer; for a chat sample without one, a single user message with the prompt."""
    texts: tuple[str, ...] = ()
    """A whole text for each choice. A plain model that can score given texts is not asked to choose: the likelihoods
    of these texts are compared."""

    def __post_init__(self) -> None:
        if self.kind == "chat" and not self.messages:
            object.__setattr__(self, "messages", (Message("user", self.prompt),))

    @property
    def has_passage(self) -> bool:
        """Whether there is something to read; prompts of questions without a passage say so in its place."""
        return bool(self.context.strip()) and not self.context.startswith(NO_PASSAGE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer: free text, or the index of the chosen option."""

    text: str
    choice: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the answer was read: order of options, letter, probabilities, parser."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declined to answer; a result of its own, never turned into a number."""

    text: str


@dataclass(frozen=True, slots=True)
class Unscored:
    """No answer or judgement could be read from the output; never turned into a number."""

    reason: str
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Cut(Unscored):
    """The reply reached its token limit before it held an answer: `Cut("cut at 64 tokens", text)`."""


Result = Answer | Refusal | Unscored


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result after one iteration of a method."""

    iteration: int
    result: Result
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Outcome:
    """A method's result for one sample."""

    result: Result
    stop: str = "done"
    """Why the method stopped: `done`, `accepted`, `max_iterations`, …"""
    snapshots: tuple[Snapshot, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Grade:
    """A benchmark's grade of one outcome: named plain values, stored for the statistics."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A finished sample as the metrics see it: its metadata, status and grade."""

    sample_id: str
    cluster: str
    status: Status
    metadata: Mapping[str, Any]
    grade: Mapping[str, Any] | None
    reason: str | None = None
