"""What the guard does with an answer or a request that fails its checks, which checks there are, and what they read.

A guard's method brings its options and the evaluators that check its answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from evenhand.core.errors import PlanError, check_names
from evenhand.core.options import Options
from evenhand.core.specs import read_spec
from evenhand.evaluators.base import EVALUATORS, Evaluator, Thresholds
from evenhand.evaluators.judged import find_evaluator
from evenhand.guards.types import CheckList
from evenhand.methods.base import METHODS, Method, check_fit
from evenhand.models.base import Model
from evenhand.scorers.cascade import CascadeScorer

PolicyAction = Literal["revise", "flag", "block"]
Unchecked = Literal["block", "flag", "pass"]
OnUnrevised = Unchecked
ToolArguments = Literal["check", "pass"]
BLOCKED_TEXT = "This answer was withheld because it did not pass the checks of this service."
InputPolicyAction = Literal["flag", "block"]
Scope = Literal["new", "all"]
BLOCKED_REQUEST = "This request was not answered because it did not pass the checks of this service."
INPUT_EVALUATORS = ("toxicity", "injection")
_THRESHOLDS = ("toxicity", "identity_attack", "alarms", "scorer", "injection", "claims")
"""The options of evaluators that a policy may set."""
_LIVE: Mapping[str, Any] = {"candidates": 1, "alarms": 1}
"""Defaults that differ from those of a study. A client pays for all candidates, and only one is returned. Answers are
of all kinds, and most are harmless: few of them may be withheld."""


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
    on_unrevised: OnUnrevised | None = None
    """What happens under `revise` to an answer that fails and could not be improved until it passes: `block` withholds
    it, `flag` returns it with the reason, `pass` without one. It is counted as `tried` or `unrevised`, never as
    `passed`. By default it is returned with the reason; in a stream, what is not released yet is withheld."""

    def __post_init__(self) -> None:
        _check_word("guard's policy", self.action, PolicyAction)
        _check_word("guard's unchecked", self.unchecked, Unchecked, None)
        _check_word("guard's on_unrevised", self.on_unrevised, OnUnrevised, None)
        if self.on_unrevised is not None and self.action != "revise":
            raise PlanError(f"on_unrevised is for the policy revise, not for {self.action}; remove it.")
        _check_word("guard's tool_arguments", self.tool_arguments, ToolArguments)
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


def _check_word(what: str, value: Any, words: Any, *others: Any) -> None:
    """Refuse a value that is none of the words of a literal, nor one of the others."""
    known = get_args(words)
    if value not in (*known, *others):
        raise PlanError(f"The {what} is {(' or ' if len(known) == 2 else ', ').join(known)}, not {value!r}.")


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
    check_names("field of the guard's policy", known, *given)
    if isinstance(policy, GuardPolicy):
        return replace(policy, **given)
    values: dict[str, Any] = {"action": policy, **given}
    return GuardPolicy(**values)


@dataclass(frozen=True, slots=True)
class GuardMethod:
    """A method with its options, and the evaluators that look at its answers."""

    method: Method
    options: Options
    thresholds: Thresholds
    """The thresholds of the evaluators: the method's options where it has them."""
    evaluators: tuple[Evaluator, ...]

    @property
    def most_revisions(self) -> int:
        """The maximum number of revisions of a failing answer."""
        return 0 if self.method.revision is None else self.method.revision.most(self.options)

    @property
    def accepts_first(self) -> bool:
        """Whether the method is done once its first answer passes the evaluators."""
        revision = self.method.revision
        return self.method.streams is not None and (revision is None or revision.accepts_first(self.options))

    def check_list(self, scorer: str, judge: str, requests: Sequence[Evaluator] = ()) -> CheckList:
        """Return which checks run; `scorer` and `judge` say in words what scores and what judges."""
        judged = {each.name: "" if each.free else judge for each in self.evaluators} | {"toxicity": scorer}
        run = (f"{each.name} ({judged[each.name]})" if judged[each.name] else each.name for each in self.evaluators)
        names = {each.name for each in self.evaluators}
        missing = ("toxicity",) * (not names & {"toxicity", "bias"}) + ("bias",) * ("bias" not in names)
        return CheckList(tuple(run), missing, tuple(each.name for each in requests))

    def with_evaluator(self, added: Evaluator) -> GuardMethod:
        """Return a copy with one more evaluator, which the method uses too."""
        if added in self.evaluators:
            return self
        options, revision = self.options, self.method.revision
        if revision is not None:
            options = revision.add_evaluators(options, [added.name])
        return replace(self, options=options, evaluators=(*self.evaluators, added))


def live_scorer() -> str:
    """The best toxicity scorer that works here: `cascade` where the packages and weights of `neural` are."""
    return "builtin" if CascadeScorer.unavailable() else CascadeScorer.name


def live_thresholds(given: Mapping[str, Any]) -> Thresholds:
    """The thresholds of a policy, with the defaults of a guard."""
    for key in given:
        if key not in _THRESHOLDS:
            raise PlanError(f"The guard has no threshold {key!r}; it has {', '.join(_THRESHOLDS)}.")
    return Thresholds.parse("guard", {"alarms": _LIVE["alarms"], "scorer": live_scorer(), **given})


def guard_method(spec: str, policy: GuardPolicy) -> GuardMethod:
    """The method that `spec` names, fit for conversations; under the policy `flag` the model's own answer stands."""
    name, given = read_spec(spec)
    chosen = METHODS.get(name)
    check_fit(chosen, "chat", "the guard")
    own = live_thresholds(policy.thresholds)
    live = {**_LIVE, "scorer": own.scorer, **policy.thresholds}
    options = chosen.with_options({**{key: live[key] for key in live if key in chosen.options.model_fields}, **given})
    evaluators = policy.checks()
    if chosen.revision is not None:
        # The method stops when all its evaluators pass an answer, so the guard's evaluators are added to them.
        options = chosen.revision.add_evaluators(options, policy.evaluators)
        evaluators = tuple(chosen.revision.evaluators("chat", options))
    if chosen.check is not None:
        chosen.check("chat", options)
    thresholds = options if isinstance(options, Thresholds) else own
    if policy.action == "flag":
        chosen = METHODS.get("default")
    return GuardMethod(chosen, options, thresholds, evaluators)


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
        _check_word("action of the input policy", self.action, InputPolicyAction)
        _check_word("scope of the input policy", self.scope, Scope)
        _check_word("input's unchecked", self.unchecked, Unchecked, None)
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
