"""The coordinator: a rule-based controller that decides when to stop, keeps the best answer and writes the critiques.

Brain: rules. Toolbox: the evaluators' verdicts. Memory: the attempts so far. Pure functions, no calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.core.types import Answer, Refusal, Result, Unscored
from evenhand.evaluators.base import Verdict
from evenhand.reading.text import abstains

NO_ANSWER = "It is no usable reply to the task."
REFUSED = "It declines the task; a harmless reply to it is possible and wanted."


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of the generator with the evaluators' verdicts."""

    result: Result
    verdicts: Mapping[str, Verdict | Unscored] = field(default_factory=dict[str, Verdict | Unscored])

    @property
    def judged(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts.values() if isinstance(verdict, Verdict)]

    @property
    def passed(self) -> bool:
        """Whether the answer passed every evaluator that could judge it, and at least one could."""
        return isinstance(self.result, Answer) and bool(self.judged) and all(each.passed for each in self.judged)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key, lower is better: has an answer, does its task, passed, names somebody, excess harm, quality.

        A text that has dropped its task is never better than one that does it, however harmless it is. An abstention
        that was rejected is no better than a rejected answer that names somebody. Harm below the
        threshold is ignored: otherwise a dull answer would beat a good one. Harm that nobody could judge counts as
        infinite, not as 0.
        """
        excess = [each.excess for each in self.judged if each.harm is not None]
        harm = sum(excess) if excess else float("inf")
        quality = [each.quality for each in self.judged if each.quality is not None]
        mean = sum(quality) / len(quality) if quality else 0.0
        no_answer = not isinstance(self.result, Answer)
        off_task = any(each.off_task for each in self.judged)
        return (no_answer, off_task, not self.passed, self._vainly_abstains, round(harm, 6), round(-mean, 6))

    @property
    def _vainly_abstains(self) -> bool:
        """Whether it chooses the option of not knowing although an evaluator found that the passage tells."""
        answer = self.result
        if not isinstance(answer, Answer) or answer.choice is None:
            return False
        return bool(self.judged) and not self.passed and abstains(answer.text)


def decide(attempts: Sequence[Attempt], most: int) -> str:
    """Returns `accepted`, `max_iterations`, `no_evaluation`, or `revise`."""
    last = attempts[-1]
    if last.passed:
        return "accepted"
    if isinstance(last.result, Answer) and not last.judged:
        return "no_evaluation"
    return "max_iterations" if len(attempts) > most else "revise"


def best(attempts: Sequence[Attempt]) -> Attempt:
    """Returns the best attempt so far; on a tie the later one, which has seen more critiques."""
    return min(reversed(attempts), key=lambda attempt: attempt.rank) if len(attempts) > 1 else attempts[0]


def critiques(attempt: Attempt, *, scores: bool = False) -> str:
    """Returns the critiques for the generator from all evaluators that the answer failed, if wanted with scores."""
    if isinstance(attempt.result, Refusal):
        return f"- {REFUSED}"
    if isinstance(attempt.result, Unscored):
        return f"- {NO_ANSWER}"
    failed = [
        f"{verdict.critique} ({verdict.details})" if scores and verdict.details else verdict.critique
        for verdict in attempt.judged
        if not verdict.passed and verdict.critique
    ]
    return "\n".join(f"- {critique}" for critique in dict.fromkeys(failed)) or f"- {NO_ANSWER}"


def notes(attempt: Attempt, decision: str) -> dict[str, Any]:
    """Returns the attempt's notes for the trace."""
    said = [
        {"evaluator": name, "unscored": each.reason}
        if isinstance(each, Unscored)
        else {"evaluator": name, "passed": each.passed, "critique": each.critique, "details": each.details}
        for name, each in attempt.verdicts.items()
    ]
    return {"candidate": _shown(attempt.result), "verdicts": said, "decision": decision}


def _shown(result: Result) -> str:
    return result.raw if isinstance(result, Unscored) else result.text
