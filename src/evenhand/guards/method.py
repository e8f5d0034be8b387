"""The method of a guard, its options and the evaluators that check its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from evenhand.errors import PlanError, UsageError
from evenhand.evaluators.base import Evaluator
from evenhand.guards.policy import GuardPolicy
from evenhand.methods.base import METHODS, Method, check_fit, check_numbers

_THRESHOLDS: Mapping[str, Any] = {"toxicity": 0.5, "scorer": "builtin"}
"""Options of the evaluators. Answers are of all kinds: the makers of the scores count nothing under 0.5 as toxic."""
_LIVE: Mapping[str, Any] = {"candidates": 1, "toxicity": _THRESHOLDS["toxicity"]}
"""Defaults that differ from those of a study. A client pays for all candidates, and only one is returned."""


@dataclass(frozen=True, slots=True)
class GuardMethod:
    """A method with its options, and the evaluators that look at its answers."""

    method: Method
    options: Mapping[str, Any]
    """The method's own and those of the evaluators."""
    evaluators: tuple[Evaluator, ...]

    @property
    def most_revisions(self) -> int:
        """How often a failing answer may be asked for again."""
        return 0 if self.method.revision is None else self.method.revision.most(self.options)

    def with_evaluator(self, added: Evaluator) -> GuardMethod:
        """The same with one more evaluator, for the method's loop too."""
        if added in self.evaluators:
            return self
        options, revision = self.options, self.method.revision
        if revision is not None:
            options = revision.add_evaluators(options, [added.name])
        return replace(self, options=options, evaluators=(*self.evaluators, added))


def guard_method(spec: str, policy: GuardPolicy) -> GuardMethod:
    """The method that `spec` names, fit for conversations; under the policy `flag` the model's own answer stands."""
    name, _, listed = spec.partition(":")
    chosen = METHODS.get(name)
    check_fit(chosen, "chat", "the guard")
    given = _read_options(listed)
    for key in policy.thresholds:
        if key not in _THRESHOLDS:
            raise PlanError(f"The guard has no threshold {key!r}; it has {', '.join(_THRESHOLDS)}.")
    thresholds = {key: value for key, value in policy.thresholds.items() if key not in given}
    wanted = {**{key: _LIVE[key] for key in _LIVE if key in chosen.defaults}, **given}
    if chosen.revision is not None:
        # Its loop ends when all its evaluators pass an answer, so the guard's are among them.
        wanted = chosen.revision.add_evaluators(wanted, policy.evaluators)
    options = {**_THRESHOLDS, **chosen.with_options(wanted), **thresholds}
    check_numbers("The guard's", options, {"toxicity": (0, 1)}, fractions=("toxicity",))
    evaluators = policy.checks() if chosen.revision is None else tuple(chosen.revision.evaluators("chat", options))
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
