"""One request through the guard: the method runs, all its answers are checked, and the policy decides.

The latency budget covers it all. When it is used up, running work is cancelled and the best answer so far counts:
the fewest checks failed, then the least excess; the first answer if no other is better.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evenhand.asking.chat import ANSWER
from evenhand.core.errors import ModelError
from evenhand.core.options import Options
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Answer, Generation, Message, Outcome, Params, Sample, Turn, Usage
from evenhand.evaluators.rules import json_form
from evenhand.guards.checks import Checks, is_quick
from evenhand.guards.fields import allowed_message, call_words, offered_names
from evenhand.guards.meter import CountedModel
from evenhand.guards.policy import GuardMethod, GuardPolicy, InputRail
from evenhand.guards.record import WholeAnswer, has_calls, record_whole
from evenhand.guards.request import RawAnswer, Request, RequestModel, WordlessAnswer, last_words, written_answer
from evenhand.guards.types import CheckList, Guarded
from evenhand.guards.upstream import Upstream, UpstreamError, UpstreamTimeout
from evenhand.judging.judge import JUDGE
from evenhand.methods.base import METHODS, Method
from evenhand.models.base import Model
from evenhand.models.budget import Price
from evenhand.reading.json_form import wants_json
from evenhand.scorers.base import Scorer
from evenhand.session import BASE, Session

CALL_FAILED = "a model call failed"
_EARLY = ("unjudged", "no_reasoning")
"""Stop reasons of methods that gave up early, though there is an answer."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all requests of a guard share."""

    upstream: Upstream
    judge: Model | None
    method: GuardMethod
    policy: GuardPolicy
    scorers: Callable[[str], Scorer]
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    seed: int = 0
    input: InputRail | None = None
    checks: CheckList = CheckList()


class Loop:
    """Handles one request and keeps its state."""

    def __init__(self, setup: Setup, body: Mapping[str, Any]) -> None:
        self.setup = setup
        self.request = Request(body, setup.upstream)
        latency = setup.policy.latency
        self.deadline = None if latency is None else asyncio.get_running_loop().time() + latency
        method = setup.method
        if wants_json(self.request.response_format) and not self.passes_through:
            method = method.with_evaluator(json_form)
        self.checks = Checks(method.evaluators, method.thresholds, lenient=setup.policy.unchecked == "pass")
        self._cancelled: list[tuple[str, Usage]] = []
        """Calls that were given up, with an estimate of their prompts."""
        self.input_trace: list[Turn] = []
        """The calls for the check of the request."""
        self.session = self._session(method.options)
        self.outcome: Outcome | None = None
        self.wordless: RawAnswer | None = None
        self.late = False
        self.problems: list[str] = []
        self.errors: list[str] = []

    @property
    def passes_through(self) -> bool:
        """Return whether nothing is checked and nothing changed."""
        return not self.setup.method.evaluators and self.setup.method.method.name == "default"

    async def run(self) -> Guarded:
        """The answer that the policy allows, with its record."""
        limit = asyncio.timeout_at(self.deadline)
        try:
            async with limit:
                if await self._first_stands():
                    preferred = self.request.answers[0].text
                else:
                    await self._answer()
                    preferred = await self._preferred()
        except TimeoutError:
            if not limit.expired():
                raise
            self.late = True
            preferred = await self._best_so_far()
        return self.record(preferred)

    def record(self, text: str) -> Guarded:
        first = self.request.answers[0]
        before = self.checks.known(first.text, first.refusal, self.call_words(first.message))
        if self.wordless:  # a refusal or a tool call has a form of its own
            before = tuple(check for check in before if check.name != json_form.name)
        same = self.wordless or text == first.text
        answer = WholeAnswer(
            text=text,
            raw=first if same else next((each for each in reversed(self.request.answers) if each.text == text), None),
            first=first,
            before=before,
            after=before if same else self.checks.known(text, self.call_words(first.message)),
            checked=bool(self.checks.evaluators),
            better=not same and self._rank(text) < self._rank(first.text),
            late=self.late,
            wordless=self.wordless is not None,
            wants_json=wants_json(self.request.response_format),
            method=self.setup.method.method.name,
            problems=tuple(self.problems),
        )
        return record_whole(
            answer,
            self.setup.policy,
            iterations=max(0, self.request.calls - 1),
            usage=self.usage(),
            trace=tuple(self.session.trace),
            errors=tuple(self.errors),
            checks=self.setup.checks,
            stages={**self.request.seconds, "checks": self.checks.seconds, "total": self.elapsed()},
        )

    def call_words(self, message: Mapping[str, Any]) -> str:
        """Return the texts in the tool calls of a message, as far as the policy has them checked."""
        if self.setup.policy.tool_arguments == "pass" or not has_calls(message):
            return ""
        return call_words(allowed_message(message, ""), offered_names(self.request.body))

    def elapsed(self) -> float:
        return time.perf_counter() - self.request.started

    def usage(self) -> Usage:
        """Return the usage of all calls so far; the cost is None if a price is unknown."""
        turns = (*self.input_trace, *self.session.trace)
        done = [(turn.generation.model, turn.generation.usage) for turn in turns if turn.generation]
        priced = [replace(used, cost=self._cost(spec, used)) for spec, used in (*done, *self._cancelled)]
        return priced[0] if len(priced) == 1 else sum(priced, Usage())

    def _cost(self, spec: str, used: Usage) -> float | None:
        if (price := self.setup.prices.get(spec)) is not None:
            return price.of(used)
        models = (self.setup.upstream.model, self.setup.judge, self.setup.input and self.setup.input.judge)
        return 0.0 if any(each is not None and each.free and each.spec == spec for each in models) else None

    async def _first_stands(self) -> bool:
        """Ask for the first answer as the method would, and check it; only if it fails, the method itself runs."""
        first_question = self.setup.method.method.streams
        if first_question is None or not self.setup.method.accepts_first:
            return False
        prompt, messages = first_question(self.session.sample)
        model = self.session.model(ANSWER)
        call = ModelCall(model.spec, ANSWER)
        try:
            with call.running():
                generation = await model.generate(messages, Params())
                call.answered(generation)
        except WordlessAnswer as end:
            self.wordless, generation = end.answer, end.generation
        self.session.trace.append(Turn("writer", ANSWER, prompt.id, prompt.hash, messages, Params(), generation))
        first = self.request.answers[0]
        checks = await self.checks.run(self.session, first.text, first.refusal, self.call_words(first.message))
        if self.wordless or self.setup.policy.action == "flag" or all(check.passed for check in checks):
            return True
        made = [self.session.trace.pop(0)]

        def look_up(role: str, _messages: Sequence[Message], _params: Params) -> Generation | None:
            """Give the method this answer when it asks for its first one."""
            return made.pop().generation if made and role == ANSWER else None

        self.session.look_up = look_up
        return False

    async def _answer(self) -> None:
        """Run the method; if it fails without any answer, ask the plain model."""
        await self._run(self.setup.method.method)
        if not self.request.answers and self.outcome and isinstance(self.outcome.result, Answer):
            self.request.answers.append(written_answer(self.outcome.result.text))
        if not self.request.answers:
            self.problems.append(f"the method {self.setup.method.method.name} gave no answer")
            await self._run(METHODS.get("default"))

    async def _run(self, method: Method) -> None:
        try:
            self.outcome = await method.run(self.session.sample, self.session)
            if self.request.answers and self.outcome.stop in _EARLY:
                self.problems.append(f"the method {method.name} ended early: {self.outcome.stop}")
        except WordlessAnswer as end:
            self.wordless = end.answer
            self.session.trace[-1] = replace(self.session.trace[-1], generation=end.generation, error=None)
        except UpstreamError as error:
            if not self.request.answers:
                raise
            self.note(error)
        except ModelError as error:  # a thought or a critic failed: there may be an answer all the same
            self.note(error)

    def counted(self, model: Model) -> Model:
        """Return the model with its cancelled calls counted as usage of this request."""
        return CountedModel(model, lambda spec, estimate: self._cancelled.append((spec, estimate)))

    def note(self, error: ModelError) -> None:
        """Record a failed call; its message is not for clients."""
        self.problems.append(CALL_FAILED)
        self.errors.append(str(error))

    async def _preferred(self) -> str:
        """The text to return: the method's where it passes, else the best of all answers."""
        first = self.request.answers[0]
        await self.checks.run(self.session, first.text, first.refusal, self.call_words(first.message))
        result = self.outcome.result if self.outcome else None
        if self.wordless or self.setup.policy.action == "flag":
            return first.text
        wanted = result.text if isinstance(result, Answer) else first.text
        if all(check.passed for check in await self.checks.run(self.session, wanted)):
            return wanted
        for answer in self.request.answers:
            if answer.text.strip():
                await self.checks.run(self.session, answer.text)
        return self._best(wanted)

    async def _best_so_far(self) -> str:
        if not self.request.answers:
            raise UpstreamTimeout(f"No answer came within the latency budget of {self.setup.policy.latency:g} seconds.")
        quick = [each for each in self.checks.evaluators if is_quick(each, self.setup.method.thresholds)]
        for answer in self.request.answers:
            for text in filter(str.strip, (answer.text, answer.refusal, self.call_words(answer.message))):
                for each in quick:
                    await self.checks.evaluate(each, self.session.sample, Answer(text), self.session)
        if self.setup.policy.action == "flag" or self.wordless:
            return self.request.answers[0].text
        return self._best()

    def _best(self, *wanted: str) -> str:
        """Return the best answer: correct format, then fewest failed checks, then smallest excess, then the last.

        The first answer stands if no other is better.
        """
        first = self.request.answers[0].text
        texts = [each.text for each in self.request.answers if each.text.strip() and not each.refusal]
        best = min(reversed([*texts, *wanted]), key=self._rank)
        return best if self._rank(best) < self._rank(first) else first

    def _rank(self, text: str) -> tuple[bool, int, float]:
        checks = self.checks.known(text)
        misformed = any(check.name == json_form.name and not check.passed for check in checks)
        return misformed, sum(not check.passed for check in checks), round(self.checks.excess(text), 6)

    def _session(self, options: Options) -> Session:
        request = self.request
        sample = Sample("guard", "chat", last_words(request.conversation), messages=request.conversation)
        models: dict[str, Model] = {
            ANSWER: RequestModel(request, answers=True),
            BASE: RequestModel(request, answers=False),
        }
        if self.setup.judge is not None:
            models[JUDGE] = self.setup.judge
        models = {role: self.counted(model) for role, model in models.items()}
        return Session(
            sample,
            models,
            self.setup.seed,
            options,
            scorers=self.setup.scorers,
            response_format=request.response_format,
            evaluating=self.checks.evaluate,
        )
