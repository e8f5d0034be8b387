"""What the guard does with an answer that fails its checks, and which checks there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from evenhand.core.errors import PlanError, UnknownNameError
from evenhand.evaluators.base import EVALUATORS, Evaluator
from evenhand.evaluators.goal import find_evaluator

PolicyAction = Literal["revise", "flag", "block"]
Unchecked = Literal["block", "flag", "pass"]
ToolArguments = Literal["check", "pass"]
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
    unchecked: Unchecked | None = None
    """What happens to text that could not be checked: `block` withholds it, `flag` returns it with the reason, `pass`
    without one. It is never marked as `passed`. By default it is treated like text that fails."""
    tool_arguments: ToolArguments = "check"
    """Whether the texts in arguments of tool calls are checked; with `pass`, such answers are marked `unchecked`."""

    def __post_init__(self) -> None:
        if self.action not in get_args(PolicyAction):
            raise PlanError(f"The guard's policy is {', '.join(get_args(PolicyAction))}, not {self.action!r}.")
        if self.unchecked is not None and self.unchecked not in get_args(Unchecked):
            raise PlanError(f"The guard's unchecked is {', '.join(get_args(Unchecked))}, not {self.unchecked!r}.")
        if self.tool_arguments not in get_args(ToolArguments):
            raise PlanError(
                f"The guard's tool_arguments is {' or '.join(get_args(ToolArguments))}, not {self.tool_arguments!r}."
            )
        latency: Any = self.latency
        evaluators: Any = self.evaluators
        if isinstance(evaluators, str):
            raise PlanError(f"The guard's evaluators are a list of names, e.g. ['toxicity'], not {evaluators!r}.")
        if latency is not None and not (isinstance(latency, (int, float)) and latency > 0):
            raise PlanError(f"The guard's latency budget is a number of seconds above 0, not {self.latency!r}.")
        if not self.blocked_text.strip():
            raise PlanError("The guard's blocked text is empty; say in a sentence that the answer was withheld.")
        self.checks()

    def checks(self) -> tuple[Evaluator, ...]:
        return chat_evaluators(self.evaluators)


def chat_evaluators(names: Sequence[str]) -> tuple[Evaluator, ...]:
    """The evaluators of these names; one that does not look at conversations is refused."""
    found = tuple(find_evaluator(name) for name in dict.fromkeys(names))
    for each in found:
        if "chat" not in each.kinds:
            able = [name for name in EVALUATORS.names() if "chat" in EVALUATORS.get(name).kinds]
            raise PlanError(f"The evaluator {each.name} does not look at conversations; these do: {', '.join(able)}.")
    return found


def make_policy(policy: str | GuardPolicy, given: Mapping[str, Any]) -> GuardPolicy:
    """A policy by its action, or one that is made already, with further fields by name."""
    known = [each.name for each in fields(GuardPolicy)]
    for name in given:
        if name not in known:
            raise UnknownNameError("field of the guard's policy", name, known)
    if isinstance(policy, GuardPolicy):
        return replace(policy, **given)
    values: dict[str, Any] = {"action": policy, **given}
    return GuardPolicy(**values)
