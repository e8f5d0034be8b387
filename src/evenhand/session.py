"""A Session is what a method works with on one sample: it asks models by role and records every turn.

The runner, the guard and debates each make sessions; a method runs the same in all of them.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from evenhand.core.errors import BudgetExhausted, EvenhandError, ModelError, PlanError, UsageError
from evenhand.core.events import held
from evenhand.core.options import Options, Options_co
from evenhand.core.prompts import Prompt
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Generation, Message, Params, Sample, Turn
from evenhand.models.base import ROLE, Feature, Model, check_request
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.search.base import Finder

BASE = "base"
"""The role of the model that is audited or guarded."""

_ASIDE = frozenset({"judge", "referee", "search"})
"""Roles that work beside the audited model, although they may use the same weights."""

TurnSink = Callable[[Turn], Awaitable[None]]
OtherOptions = TypeVar("OtherOptions", bound=Options)
LookUp = Callable[[str, Sequence[Message], Params], Generation | None]
"""(role, messages, params) → the stored answer to this call."""


def answers(role: str, kind: str) -> bool:
    """Whether a call in this role answers for the audited system; where judging is measured, judges do, too."""
    return kind == "judgement" or role.partition("_")[0] not in _ASIDE


@dataclass(frozen=True, slots=True)
class Answering:
    """How multiple-choice answers and ratings are asked for and read."""

    orders: int = 1
    """How many rotations of the shuffled options are asked; more of them average out position bias."""
    reading: str = "auto"
    """`auto`, `logprobs`, `constrained` or `text`."""
    judge_samples: int = 1
    """How many ratings are drawn from a judge without logprobs; their mean is the rating."""
    judge_pool: str = "mean"
    """How the ratings of several judges become one: their `mean`, or a `vote`, which is their median."""


@dataclass(slots=True)
class Session(Generic[Options_co]):
    """The models, options and seed for one sample, and the trace so far.

    `Session[CotOptions]` is a session of a method with these options; a plain `Session` is one of any method.
    """

    sample: Sample
    models: Mapping[str, Model]
    seed: int = 0
    options: Options_co = field(default_factory=Options)  # pyright: ignore[reportAssignmentType]
    answering: Answering = Answering()
    params: Params = Params()
    """The run's own settings. The temperature is for calls that set none; the limit of tokens replaces every other;
    stop sequences are for the audited model."""
    on_turn: TurnSink | None = None
    look_up: LookUp | None = None
    """Finds the stored answer of a call that an interrupted run already made; it is not recorded again."""
    trace: list[Turn] = field(default_factory=list[Turn])
    asked: dict[tuple[int, tuple[Message, ...]], list[Params]] = field(
        default_factory=dict[tuple[int, tuple[Message, ...]], list[Params]]
    )
    """(model, messages) → the parameters with which they were sent so far."""
    scorers: Callable[[str], Scorer] = load_scorer
    """Scorers by spec, for agents that use one as a tool."""
    searches: Callable[[str], Finder] | None = None
    """Searches by spec, for agents that use one as a tool."""
    response_format: Any = None
    """The form that a live request wants its answer in, as OpenAI's field of that name."""
    evaluating: Callable[..., Awaitable[Any]] | None = None
    """Called instead of an evaluator, so that the guard can record every verdict."""
    max_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    """Role → the run's own limit for its calls, where it differs from that of `params`."""
    readings: Counter[str] = field(default_factory=Counter[str])
    """How judges were read: `logprobs`, `samples` or `written` → how often."""

    def with_options(self, options: OtherOptions) -> Session[OtherOptions]:
        """The same session with other options; the trace is shared."""
        if options is self.options:
            return cast("Session[OtherOptions]", self)
        return cast("Session[OtherOptions]", replace(self, options=options))

    def model(self, role: str = BASE) -> Model:
        """The model for `role`; roles without a model of their own use the base model."""
        model = self.models.get(role) or self.models.get(BASE)
        if model is None:
            raise PlanError(f"No model is given for the role {role!r}; pass --model {role}=SPEC.")
        return model

    async def features(self, role: str = BASE) -> frozenset[Feature]:
        """What the role's model can do; if its first call is under way, as the reply shows it."""
        await self.model(role).settled()
        return self.model(role).features

    async def ask(
        self,
        prompt: Prompt,
        messages: Sequence[Message],
        params: Params,
        *,
        agent: str,
        role: str = BASE,
        slot: str | None = None,
    ) -> Generation:
        """One call, recorded whether it succeeds or fails; `prompt` is the prompt that the messages came from.

        `slot` names this call among the agent's sampled calls and seeds it. Concurrent calls need one, since their
        order may differ from run to run.
        """
        params = self.limited(params, role)
        if answers(role, self.sample.kind) and not params.given:
            params = replace(params, stop=(*params.stop, *self.params.stop)) if self.params.stop else params
            preamble = self.model(role).preamble
            messages = messages if preamble is None else preamble.before(messages)
        params = self._counted(self.model(role), messages, self._seeded(params, agent, slot))
        check_request(self.model(role), params)
        request = (agent, role, prompt.id, prompt.hash, tuple(messages), params)
        try:
            if self.look_up and (stored := self.look_up(role, messages, params)) is not None:
                self.trace.append(Turn(*request, stored))
                return stored
            call = ModelCall(self.model(role).spec, role, params)
            with held(ROLE, role), call.running():
                generation = await self.model(role).generate(messages, params)
                call.answered(generation)
        except Exception as error:
            spent, ended = None, isinstance(error, (UsageError, BudgetExhausted))
            if isinstance(error, EvenhandError):
                spent, error.spent = error.spent, None
            if spent or not ended:
                reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
                await self._record(Turn(*request, generation=None, error=reason, spent=spent))
            raise
        await self._record(Turn(*request, generation))
        return generation

    def limited(self, params: Params, role: str = BASE) -> Params:
        """The parameters under the run's own limit of tokens; a reading of one token stays one."""
        named = role if role in self.max_tokens or role in self.models else BASE
        limit = self.max_tokens.get(named, self.params.max_tokens)
        if limit is None:
            return params
        return replace(params, max_tokens=1 if params.max_tokens == 1 else limit, max_tokens_exact=True)

    def sampled(self, params: Params) -> Params:
        """The parameters at the run's own temperature, for texts whose sampling the method leaves to the run."""
        return params if self.params.temperature is None else replace(params, temperature=self.params.temperature)

    def permutation(self, size: int) -> tuple[int, ...]:
        """A seeded order of `size` things; it depends on the sample, not on the method, so that runs can be paired."""
        order = list(range(size))
        self.random("order").shuffle(order)
        return tuple(order)

    def random(self, purpose: str) -> random.Random:
        """Seeded randomness for one purpose."""
        return random.Random(self._derive(purpose))

    def _seeded(self, params: Params, agent: str, slot: str | None) -> Params:
        """Adds the run's temperature, and a seed to sampled calls; equal greedy requests stay equal."""
        params = self.sampled(params) if params.temperature is None else params
        if params.temperature == 0 or params.seed is not None:
            return params
        # Calls without a seed do not count: a resumed run no longer asks for what the endpoint turned out not to give.
        slot = slot or str(sum(turn.agent == agent and turn.params.seed is not None for turn in self.trace))
        return replace(params, seed=self._derive(f"{agent}/{slot}") % 2**31)

    def _counted(self, model: Model, messages: Sequence[Message], params: Params) -> Params:
        """Numbers equal requests, so that a question that is asked twice gets two answers, and a resumed run both."""
        earlier = self.asked.setdefault((id(model), tuple(messages)), [])
        again = earlier.count(params)
        earlier.append(params)
        return replace(params, again=again) if again else params

    def _derive(self, purpose: str) -> int:
        text = f"{self.seed}/{self.sample.id}/{purpose}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())

    async def _record(self, turn: Turn) -> None:
        self.trace.append(turn)
        if self.on_turn is not None:
            await self.on_turn(turn)
