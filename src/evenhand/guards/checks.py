"""The checks of one request: what every evaluator says of every answer, asked for once and remembered.

They stand between a method and its evaluators, so that an answer that the method had judged is not judged again for
the record. If an evaluator fails, the check is not passed, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from evenhand import aio
from evenhand.evaluators.base import Evaluator, Thresholds, Verdict
from evenhand.evaluators.json_form import json_form
from evenhand.guards.types import Check
from evenhand.session import Session
from evenhand.specs import spec_parts
from evenhand.types import Answer, Sample, Unscored

LATE = "it was not checked in time"
NO_WORDS = "there are no words to check"
_BY_TOXICITY = ("toxicity", "bias")
_IN_PROCESS = ("builtin", "builtin_b", "detoxify")


class Checks:
    """The evaluators of a guard and what they have said about the answers to one request."""

    def __init__(self, evaluators: Sequence[Evaluator], thresholds: Thresholds) -> None:
        self.evaluators = evaluators
        self.seconds = 0.0
        self._thresholds = thresholds
        self._said: dict[tuple[str, str], Verdict | Unscored] = {}

    async def evaluate(
        self, evaluator: Evaluator, sample: Sample, answer: Answer, session: Session
    ) -> Verdict | Unscored:
        """What an evaluator says; its failure is Unscored. Sessions ask their evaluators through this."""
        if not has_words(answer.text) and evaluator is not json_form:
            return Verdict(passed=True, details=NO_WORDS)
        key = (evaluator.name, answer.text)
        if key not in self._said:
            began = time.perf_counter()
            try:
                self._said[key] = await evaluator.evaluate(sample, answer, session.with_options(self._thresholds))
            except Exception as error:  # a broken evaluator must not take the answer down
                self._said[key] = Unscored(str(error) or type(error).__name__)
            self.seconds += time.perf_counter() - began
        return self._said[key]

    async def run(self, text: str, session: Session) -> tuple[Check, ...]:
        """Run the evaluators that have not judged this text yet; return all checks of the text."""
        answer = Answer(text)
        missing = [each for each in self.evaluators if (each.name, text) not in self._said]
        if len(missing) == 1:
            await self.evaluate(missing[0], session.sample, answer, session)
        elif missing:
            await aio.all_of(self.evaluate(each, session.sample, answer, session) for each in missing)
        return self.known(text)

    def known(self, text: str) -> tuple[Check, ...]:
        """Return the known checks of a text; a missing check counts as not passed."""
        return tuple(self._check(each, text) for each in self.evaluators)

    def excess(self, text: str) -> float:
        """Return by how much a text exceeds its thresholds."""
        said = (self._said.get((each.name, text)) for each in self.evaluators)
        return sum(each.excess for each in said if isinstance(each, Verdict))

    def _check(self, evaluator: Evaluator, text: str) -> Check:
        name, limit = evaluator.name, self._limit(evaluator.name)
        said = self._said.get((name, text))
        if said is None:
            passed = not has_words(text) and evaluator is not json_form
            return Check(name, None, limit, passed, problem=NO_WORDS if passed else LATE)
        if isinstance(said, Unscored):
            return Check(name, None, limit, False, problem=said.reason)
        score = said.harm if said.harm is not None else said.quality
        return Check(name, score, limit, said.passed, words="" if said.passed else said.critique)

    def _limit(self, name: str) -> float | None:
        return self._thresholds.toxicity if name in _BY_TOXICITY else None


def has_words(text: str) -> bool:
    """Return whether the text has words to evaluate; numbers and emoji are not words."""
    return any(map(str.isalpha, text))


def failed(checks: Sequence[Check]) -> tuple[str, ...]:
    """Describe the failed checks of a text."""
    return tuple(
        f"{each.name} could not be checked: {each.problem}" if each.problem else each.name
        for each in checks
        if not each.passed
    )


def is_quick(evaluator: Evaluator, thresholds: Thresholds) -> bool:
    """Return whether the evaluator is fast enough for every segment of a stream: it makes no calls."""
    scorer, _ = spec_parts(thresholds.scorer)
    return evaluator.free and (evaluator.name != "toxicity" or scorer in _IN_PROCESS)
