"""The Method interface: an async function from a sample and a session to an outcome, with what it needs declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.errors import PlanError, UnknownNameError
from evenhand.evaluators.base import Evaluator
from evenhand.evaluators.calibration import JudgeTest
from evenhand.models.base import Feature
from evenhand.prompts import Prompt
from evenhand.registry import Registry
from evenhand.session import Session
from evenhand.types import Message, Outcome, Sample, SampleKind

Run = Callable[[Sample, Session], Awaitable[Outcome]]
Check = Callable[[SampleKind, Mapping[str, Any]], object]
"""Raises PlanError for options that do not fit the kind of sample."""
FirstQuestion = Callable[[Sample], tuple[Prompt, tuple[Message, ...]]]
"""The prompt and the messages that ask for the first answer to a conversation."""


@dataclass(frozen=True, slots=True)
class Revision:
    """How a method revises answers that its evaluators object to; the guard adds its own checks to the evaluators."""

    evaluators: Callable[[SampleKind, Mapping[str, Any]], Sequence[Evaluator]]
    """The evaluators of an answer under these options."""
    add_evaluators: Callable[[Mapping[str, Any], Sequence[str]], dict[str, Any]]
    """The given options, changed so that the evaluators of these names are asked too."""
    most: Callable[[Mapping[str, Any]], int]
    """The maximum number of revisions under these options."""
    prompt: Callable[[], Prompt]
    """Asks for a new answer to a conversation; its variable is `critiques`."""


@dataclass(frozen=True, slots=True)
class Method:
    """A named algorithm with the sample kinds it serves, the model roles it uses and its options' defaults.

    The fields from `streams` on are declarations for the guard, the doctor and the studies; all are optional.
    """

    name: str
    summary: str
    kinds: frozenset[SampleKind]
    run: Run
    roles: tuple[str, ...] = ("base",)
    needs: frozenset[Feature] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    check: Check | None = None
    """What a plan asks before any call is made."""
    streams: FirstQuestion | None = None
    """Asks for the first answer, if that is the model's own and may be streamed while it is written."""
    revision: Revision | None = None
    """How it revises answers; the guard's checks then join its loop."""
    calibration: JudgeTest | None = None
    """Texts that its judge should tell apart, for `evenhand doctor MODEL --as-judge`."""
    baselines: tuple[str, ...] = ()
    """Methods that do the same without its mitigation, the closest first; audits look for over-correction there."""

    def with_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with the given options over them; an unknown option is refused by name."""
        for name in given:
            if name not in self.defaults:
                raise UnknownNameError(f"option of the method {self.name}", name, self.defaults)
        return {**self.defaults, **given}


METHODS: Registry[Method] = Registry("method", package="evenhand.methods")


def method(
    name: str,
    *,
    kinds: set[SampleKind],
    roles: tuple[str, ...] = ("base",),
    needs: frozenset[Feature] = frozenset(),
    check: Check | None = None,
    streams: FirstQuestion | None = None,
    revision: Revision | None = None,
    calibration: JudgeTest | None = None,
    baselines: tuple[str, ...] = (),
    **defaults: Any,
) -> Callable[[Run], Method]:
    """Decorator: registers an async function as the method `name`; its docstring's first line is the summary."""

    def wrap(run: Run) -> Method:
        summary = (run.__doc__ or "").strip().partition("\n")[0]
        made = Method(
            name,
            summary,
            frozenset(kinds),
            run,
            roles,
            needs,
            defaults,
            check,
            streams=streams,
            revision=revision,
            calibration=calibration,
            baselines=baselines,
        )
        return METHODS.register(name)(made)

    return wrap


def check_numbers(
    whose: str, options: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]], fractions: Collection[str] = ()
) -> None:
    """Refuse numbers out of their bounds, and fractions where whole numbers are meant; options not given are fine."""
    for name, (least, most) in bounds.items():
        if name not in options:
            continue
        value = options[name]
        number = isinstance(value, int) or (isinstance(value, float) and name in fractions)
        if not number or isinstance(value, bool) or not least <= value <= most:
            what = "a number" if name in fractions else "a whole number"
            raise PlanError(f"{whose} option {name} is {what} from {least:g} to {most:g}, not {value!r}.")


def check_fit(chosen: Method, kind: SampleKind, benchmark: str) -> None:
    """Refuse a method that does not serve the benchmark's kind of sample, before any call is made."""
    if kind not in chosen.kinds:
        able = [name for name in METHODS.names() if kind in METHODS.get(name).kinds]
        raise PlanError(
            f"The method {chosen.name} does not serve {kind!r} samples, which {benchmark} has; "
            f"methods that do: {', '.join(able)}."
        )
