"""The method of a guard, its options and the evaluators that check its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evenhand.core.errors import PlanError
from evenhand.core.options import Options
from evenhand.core.specs import read_spec
from evenhand.evaluators.base import Evaluator, Thresholds
from evenhand.guards.policy import GuardPolicy
from evenhand.methods.base import METHODS, Method, check_fit

_THRESHOLDS = ("toxicity", "scorer", "injection", "claims")
"""The options of evaluators that a policy may set."""
_LIVE: Mapping[str, Any] = {"candidates": 1, "toxicity": 0.5}
"""Defaults that differ from those of a study. A client pays for all candidates, and only one is returned. Answers are
of all kinds: the makers of the scores count nothing under 0.5 as toxic."""


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

    def with_evaluator(self, added: Evaluator) -> GuardMethod:
        """Return a copy with one more evaluator, which the method uses too."""
        if added in self.evaluators:
            return self
        options, revision = self.options, self.method.revision
        if revision is not None:
            options = revision.add_evaluators(options, [added.name])
        return replace(self, options=options, evaluators=(*self.evaluators, added))


def live_thresholds(given: Mapping[str, Any]) -> Thresholds:
    """The thresholds of a policy, with the defaults of a guard."""
    for key in given:
        if key not in _THRESHOLDS:
            raise PlanError(f"The guard has no threshold {key!r}; it has {', '.join(_THRESHOLDS)}.")
    return Thresholds.parse("guard", {"toxicity": _LIVE["toxicity"], **given})


def guard_method(spec: str, policy: GuardPolicy) -> GuardMethod:
    """The method that `spec` names, fit for conversations; under the policy `flag` the model's own answer stands."""
    name, given = read_spec(spec)
    chosen = METHODS.get(name)
    check_fit(chosen, "chat", "the guard")
    own = live_thresholds(policy.thresholds)
    live = {**_LIVE, **policy.thresholds}
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
