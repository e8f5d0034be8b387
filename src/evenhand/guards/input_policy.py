"""What the guard does with a request that fails its checks, and which parts of a request are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evenhand.core.errors import PlanError
from evenhand.evaluators.base import Evaluator, Thresholds
from evenhand.guards.method import live_thresholds
from evenhand.guards.policy import Unchecked, chat_evaluators
from evenhand.models.base import Model

InputPolicyAction = Literal["flag", "block"]
Scope = Literal["new", "all"]
BLOCKED_REQUEST = "This request was not answered because it did not pass the checks of this service."
INPUT_EVALUATORS = ("toxicity", "injection")


@dataclass(frozen=True, slots=True)
class InputPolicy:
    """Checks of requests: `block` refuses one that fails before the model is called, `flag` only marks it."""

    action: InputPolicyAction = "flag"
    evaluators: tuple[str, ...] = INPUT_EVALUATORS
    thresholds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the evaluators: `toxicity`, `scorer`, `injection`."""
    scope: Scope = "new"
    """`new`: what users and tools said since the model last spoke; `all`: the whole conversation, system prompts and
    tool definitions too, for clients that could invent the earlier turns."""
    blocked_text: str = BLOCKED_REQUEST
    """The answer to a blocked request."""
    unchecked: Unchecked | None = None
    """What happens to a request that could not be checked, pictures and audio among them; by default it is treated
    like one that fails."""
    judge: str | None = None
    """The model that evaluators ask about requests; by default the guard's judge."""

    def __post_init__(self) -> None:
        for name, kinds in (("action", InputPolicyAction), ("scope", Scope)):
            if (value := getattr(self, name)) not in get_args(kinds):
                raise PlanError(f"The {name} of the input policy is {' or '.join(get_args(kinds))}, not {value!r}.")
        if self.unchecked is not None and self.unchecked not in get_args(Unchecked):
            raise PlanError(f"The input's unchecked is {', '.join(get_args(Unchecked))}, not {self.unchecked!r}.")
        evaluators: Any = self.evaluators
        if isinstance(evaluators, str) or not evaluators:
            raise PlanError(f"The input's evaluators are a list of names, e.g. ['injection'], not {evaluators!r}.")
        if "json" in self.evaluators:
            raise PlanError("The evaluator json looks at the form of answers; remove it from the input's evaluators.")
        if not self.blocked_text.strip():
            raise PlanError("The input's blocked text is empty; say in a sentence that there is no answer.")
        self.rail()

    @property
    def comes_first(self) -> bool:
        """Whether the model waits for the check; otherwise both run at the same time."""
        return "block" in (self.action, self.unchecked)

    def rail(self, judge: Model | None = None) -> InputRail:
        return InputRail(self, chat_evaluators(self.evaluators), live_thresholds(self.thresholds), judge)


@dataclass(frozen=True, slots=True)
class InputRail:
    """What the checks of all requests to a guard share."""

    policy: InputPolicy
    evaluators: tuple[Evaluator, ...]
    thresholds: Thresholds
    judge: Model | None
    """The model of the policy's `judge`, if it names one."""
