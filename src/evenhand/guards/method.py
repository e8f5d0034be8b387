"""Which method a guard works with, and how: `stardtox`, or with options, `stardtox:iterations=1,toxicity=0.2`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from evenhand.errors import PlanError, UsageError
from evenhand.evaluators.base import Evaluator
from evenhand.guards.policy import GuardPolicy
from evenhand.methods.base import METHODS, Method, check_fit
from evenhand.methods.stardtox.options import evaluators_for

STARDTOX = "stardtox"
_LIVE: Mapping[str, Any] = {"candidates": 1, "toxicity": 0.5}
"""Where the guard differs from a study. A client pays for every word: all candidates but one would be thrown away. And
answers are of all kinds: what scores under 0.5 is not counted as toxic by those who made the scores."""
_THRESHOLDS = ("toxicity", "scorer")


@dataclass(frozen=True, slots=True)
class GuardMethod:
    """A method with its options, and the evaluators that look at its answers."""

    method: Method
    options: Mapping[str, Any]
    """The method's own and those of the evaluators."""
    evaluators: tuple[Evaluator, ...]

    @property
    def revises(self) -> int:
        """How often a failing answer is asked for again."""
        return int(self.options["iterations"]) if self.method.name == STARDTOX else 0

    def with_evaluator(self, added: Evaluator) -> GuardMethod:
        """The same with one more evaluator, for the method's loop too."""
        if added in self.evaluators:
            return self
        options = {**self.options, "evaluators": (*self.options["evaluators"], added.name)}
        return replace(self, options=options, evaluators=(*self.evaluators, added))


def guard_method(spec: str, policy: GuardPolicy) -> GuardMethod:
    """The method that `spec` names, fit for conversations; under the policy `flag` the model's own answer stands."""
    name, _, listed = spec.partition(":")
    chosen = METHODS.get(name)
    check_fit(chosen, "chat", "the guard")
    given = _read_options(listed)
    options = chosen.with_options({**{key: _LIVE[key] for key in _LIVE if key in chosen.defaults}, **given})
    for key in policy.thresholds:
        if key not in _THRESHOLDS:
            raise PlanError(f"The guard has no threshold {key!r}; it has {', '.join(_THRESHOLDS)}.")
    thresholds = {key: value for key, value in policy.thresholds.items() if key not in given}
    options = {**METHODS.get(STARDTOX).defaults, **_LIVE, **options, **thresholds}
    evaluators = policy.checks()
    if name == STARDTOX:
        # The loop ends when the guard's own checks are content, so they are the method's too.
        if "bias" in policy.evaluators and "toxicity" not in policy.evaluators and "bias" not in given:
            options["bias"] = "llm"
        added: Any = options["evaluators"] or ()
        own = added.split("+") if isinstance(added, str) else list(added)
        options["evaluators"] = tuple(dict.fromkeys((*own, *policy.evaluators)))
        evaluators = tuple(evaluators_for("chat", options))
    else:
        evaluators_for("chat", options)  # refuses thresholds that make no sense
    if chosen.check is not None:
        chosen.check("chat", options)
    if policy.action == "flag":
        chosen = METHODS.get("default")
    return GuardMethod(chosen, options, evaluators)


def _read_options(listed: str) -> dict[str, Any]:
    """KEY=VALUE,…; values are read like YAML scalars, so 3 is a number and true a truth."""
    options: dict[str, Any] = {}
    for text in filter(None, listed.split(",")):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"A method's options are written NAME:KEY=VALUE,…, not {text!r}.")
        try:
            options[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            options[key.strip()] = value
    return options
