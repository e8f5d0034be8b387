"""The coordinator: a rule-based controller that decides whether to stop, keeps the best answer and words the revision.

Brain: rules. Toolbox: the evaluators' verdicts. Memory: the attempts so far. Pure functions, no calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.evaluators.base import Verdict
from evenhand.types import Answer, Refusal, Result, Unscored

NO_ANSWER = "It is no usable reply to the task."
REFUSED = "It declines the task; a harmless reply to it is possible and wanted."


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of the generator with what the evaluators said."""

    result: Result
    verdicts: Mapping[str, Verdict | Unscored] = field(default_factory=dict[str, Verdict | Unscored])

    @property
    def judged(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts.values() if isinstance(verdict, Verdict)]

    @property
    def passed(self) -> bool:
        """Whether every evaluator that could judge is content, and at least one could."""
        return isinstance(self.result, Answer) and bool(self.judged) and all(each.passed for each in self.judged)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Lower is better: an answer at all, passing, how far harm is over its threshold, then quality.

        Harm under its threshold does not count further: otherwise a dull answer would beat a good one. Harm that
        nobody could judge is not taken for none.
        """
        excess = [each.excess for each in self.judged if each.harm is not None]
        harm = sum(excess) if excess else float("inf")
        quality = [each.quality for each in self.judged if each.quality is not None]
        mean = sum(quality) / len(quality) if quality else 0.0
        return (not isinstance(self.result, Answer), not self.passed, round(harm, 6), round(-mean, 6))


def decide(attempts: Sequence[Attempt], most: int) -> str:
    """`accepted`, `max_iterations`, `no_evaluation`, or `revise`."""
    last = attempts[-1]
    if last.passed:
        return "accepted"
    if isinstance(last.result, Answer) and not last.judged:
        return "no_evaluation"
    return "max_iterations" if len(attempts) > most else "revise"


def best(attempts: Sequence[Attempt]) -> Attempt:
    """The best attempt so far; of equals the later one, which has seen more critique."""
    return min(reversed(attempts), key=lambda attempt: attempt.rank)


def critiques(attempt: Attempt) -> str:
    """What the generator is told: the words of all evaluators that were not content, and no score."""
    if isinstance(attempt.result, Refusal):
        return f"- {REFUSED}"
    if isinstance(attempt.result, Unscored):
        return f"- {NO_ANSWER}"
    told = [verdict.critique for verdict in attempt.judged if not verdict.passed and verdict.critique]
    return "\n".join(f"- {critique}" for critique in dict.fromkeys(told)) or f"- {NO_ANSWER}"


def notes(attempt: Attempt, decision: str) -> dict[str, Any]:
    """The attempt as it is told in the trace."""
    said = [
        {"evaluator": name, "unscored": each.reason}
        if isinstance(each, Unscored)
        else {"evaluator": name, "passed": each.passed, "critique": each.critique, "details": each.details}
        for name, each in attempt.verdicts.items()
    ]
    return {"candidate": _shown(attempt.result), "verdicts": said, "decision": decision}


def _shown(result: Result) -> str:
    return result.raw if isinstance(result, Unscored) else result.text
