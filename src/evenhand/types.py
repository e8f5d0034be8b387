"""The words of the house as frozen values: what every other module passes around and nothing else.

Only the standard library is imported here, so that everything may import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]
SampleKind = Literal["choice", "completion", "answer", "judgement", "debate", "chat"]
Finish = Literal["stop", "length", "filter", "other"]
Status = Literal["graded", "refused", "unscored", "failed"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Steering:
    """Conversations whose next tokens are to be avoided, token by token; needs the feature `logits`."""

    against: tuple[tuple[Message, ...], ...]
    decay: float
    """How fast a token loses weight as one of these conversations makes it likelier."""
    epsilon: float
    """The least weight."""


@dataclass(frozen=True, slots=True)
class Params:
    """How to generate; None leaves the choice to the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int = 0
    """Alternatives to report per generated token; 0 asks for none."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema that the text must satisfy."""
    steering: Steering | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token with its most likely alternatives (itself included when it is among them)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One of the n texts of a generation."""

    text: str
    finish: Finish = "stop"
    refusal: str | None = None
    """The model's own words when the endpoint marks the answer as a refusal."""
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was consumed; money is None when no price is known for some of the calls."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_calls: int = 0
    retries: int = 0
    cost: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_calls + other.cached_calls,
            self.retries + other.retries,
            cost,
        )

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model answered to one request, and what that took."""

    completions: tuple[Completion, ...]
    model: str
    usage: Usage = Usage()
    latency: float = 0.0
    """Seconds from the first attempt to the last byte, retries included."""
    cached: bool = False

    @property
    def text(self) -> str:
        return self.completions[0].text


@dataclass(frozen=True, slots=True)
class Turn:
    """One recorded call of one agent: everything needed to understand or repeat it."""

    agent: str
    role: str
    """Which of the run's models answered (`base`, `judge`, …)."""
    prompt_id: str
    prompt_hash: str
    messages: tuple[Message, ...]
    params: Params
    generation: Generation | None
    error: str | None = None
    """Why there is no generation."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of work."""

    id: str
    kind: SampleKind
    prompt: str
    """The question, the text to continue, the task: what the model must respond to."""
    context: str = ""
    choices: tuple[str, ...] = ()
    target: Any = None
    cluster: str = ""
    """Samples of one cluster (template, scenario, article) are not independent."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    messages: tuple[Message, ...] = ()
    """The conversation to be answered; a chat sample without one is a lone question, asked by its prompt."""

    def __post_init__(self) -> None:
        if self.kind == "chat" and not self.messages:
            object.__setattr__(self, "messages", (Message("user", self.prompt),))


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer: free text, or the index of the chosen option."""

    text: str
    choice: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the answer was read: shown order, letter, probabilities, reading."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declined to answer; this is a result of its own, never a number."""

    text: str


@dataclass(frozen=True, slots=True)
class Unscored:
    """No answer or judgement could be read from the output; never turned into a number."""

    reason: str
    raw: str = ""


Result = Answer | Refusal | Unscored


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result as it stood after one iteration of a method."""

    iteration: int
    result: Result
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method made of a sample."""

    result: Result
    stop: str = "done"
    """Why the method stopped: `done`, `accepted`, `max_iterations`, …"""
    snapshots: tuple[Snapshot, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Grade:
    """A benchmark's verdict on one outcome: plain values by name, kept for later statistics."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A finished sample as the metrics see it: what was asked, how it ended, how it was graded."""

    sample_id: str
    cluster: str
    status: Status
    metadata: Mapping[str, Any]
    grade: Mapping[str, Any] | None
    reason: str | None = None
