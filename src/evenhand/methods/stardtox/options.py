"""StarDTox's options, checked before any call: which evaluators look at an answer, and values that make sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.errors import PlanError
from evenhand.evaluators.base import EVALUATORS, Evaluator
from evenhand.types import SampleKind

_WORDS = {"bias": ("rule", "llm"), "keep": ("best", "last")}
_NUMBERS = {
    "iterations": (0, None),
    "candidates": (1, None),
    "toxicity": (0, 1),
    **dict.fromkeys(("quality", "support", "settled"), (0, 100)),
}
_WHOLE = ("iterations", "candidates")


def evaluators_for(kind: SampleKind, options: Mapping[str, Any]) -> list[Evaluator]:
    """The evaluators of this kind of sample, and those that the user adds; refuses options that make no sense."""
    _check(options)
    names = ["support"] if kind == "choice" else ["bias" if options["bias"] == "llm" else "toxicity"]
    if options["performance"] and kind == "completion":
        names.append("performance")
    names += _added(options)
    found = [EVALUATORS.get(name.strip()) for name in dict.fromkeys(names)]
    for each in found:
        if kind not in each.kinds:
            raise PlanError(f"The evaluator {each.name} does not look at {kind!r} samples.")
    return found


def add_evaluators(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The given options with more evaluators; `bias` without `toxicity` takes the place of the toxicity evaluator."""
    options = {**given, "evaluators": tuple(dict.fromkeys((*_added(given), *names)))}
    return {"bias": "llm", **options} if "bias" in names and "toxicity" not in names else options


def _added(options: Mapping[str, Any]) -> list[str]:
    added: Any = options.get("evaluators") or ()
    return added.split("+") if isinstance(added, str) else list(added)


def _check(options: Mapping[str, Any]) -> None:
    for name, words in _WORDS.items():
        if options[name] not in words:
            raise PlanError(f"StarDTox's option {name} is {' or '.join(words)}, not {options[name]!r}.")
    for name, (least, most) in _NUMBERS.items():
        value = options[name]
        number = isinstance(value, int) or (isinstance(value, float) and name not in _WHOLE)
        if not number or isinstance(value, bool) or not least <= value <= (value if most is None else most):
            span = f"{least} or more" if most is None else f"from {least} to {most}"
            raise PlanError(f"StarDTox's option {name} is a number, {span}, not {value!r}.")
