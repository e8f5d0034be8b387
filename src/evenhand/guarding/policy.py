"""What the guard does with an answer that fails its checks, and which checks there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evenhand.errors import PlanError
from evenhand.methods.stardtox.verdict import EVALUATORS, Evaluator

PolicyAction = Literal["revise", "flag", "block"]
BLOCKED_TEXT = "This answer was withheld because it did not pass the checks of this service."


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """`revise` returns the best answer found, `flag` never changes one, `block` replaces one that does not pass."""

    action: PolicyAction = "revise"
    blocked_text: str = BLOCKED_TEXT
    """What stands in for a blocked answer."""
    latency: float | None = None
    """Seconds for the whole loop; when they are used up, the best answer so far is returned and marked."""
    evaluators: tuple[str, ...] = ("toxicity",)
    """Which evaluators look at every answer; those that need no model cost nothing."""
    thresholds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the evaluators (`toxicity`, `scorer`, …); the method's own where none is given."""

    def __post_init__(self) -> None:
        if self.action not in get_args(PolicyAction):
            raise PlanError(f"The guard's policy is {', '.join(get_args(PolicyAction))}, not {self.action!r}.")
        if self.latency is not None and not self.latency > 0:
            raise PlanError(f"The guard's latency budget is a number of seconds above 0, not {self.latency!r}.")
        if not self.blocked_text.strip():
            raise PlanError("The guard's blocked text is empty; say in a sentence that the answer was withheld.")
        self.checks()

    def checks(self) -> tuple[Evaluator, ...]:
        """The evaluators; one that does not look at conversations is refused."""
        found = tuple(EVALUATORS.get(name) for name in dict.fromkeys(self.evaluators))
        for each in found:
            if "chat" not in each.kinds:
                able = [name for name in EVALUATORS.names() if "chat" in EVALUATORS.get(name).kinds]
                raise PlanError(
                    f"The evaluator {each.name} does not look at conversations; these do: {', '.join(able)}."
                )
        return found
