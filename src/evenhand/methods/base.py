"""The Method interface: an async function from a sample and a session to an outcome, plus its declared needs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Generic, TypeVar

from pydantic import Field

from evenhand.core.errors import PlanError
from evenhand.core.format import doc_line
from evenhand.core.options import PRESET, Options
from evenhand.core.prompts import Prompt, built_in_prompts
from evenhand.core.registry import Registry, signature_fault
from evenhand.core.types import Message, Outcome, Params, Sample, SampleKind
from evenhand.evaluators.base import Evaluator
from evenhand.judging.card import JudgeTest
from evenhand.models.base import Feature
from evenhand.session import Session

_ASKING = tuple(f"evenhand.{room}." for room in ("methods", "evaluators", "judging", "asking"))
"""Where modules with prompts are."""
OptionsT = TypeVar("OptionsT", bound=Options)
Run = Callable[[Sample, Session[OptionsT]], Awaitable[Outcome]]
Check = Callable[[SampleKind, OptionsT], object]
"""Raises PlanError for options that do not fit the kind of sample or name something that does not exist."""
FirstQuestion = Callable[[Sample], tuple[Prompt, tuple[Message, ...]]]
"""The prompt and the messages that ask for the first answer to a conversation."""


class WritingOptions(Options):
    """Sampling options of agents that write text."""

    temperature: float = Field(default=0.0, ge=0, le=2, description="The sampling temperature.")
    max_tokens: int = Field(default=256, ge=1, le=100_000, description="Maximum number of tokens of a reply.")

    @property
    def params(self) -> Params:
        return Params(temperature=self.temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, slots=True)
class Revision(Generic[OptionsT]):
    """How a method revises answers that fail an evaluator; the guard adds its own checks as evaluators."""

    evaluators: Callable[[SampleKind, OptionsT], Sequence[Evaluator]]
    """Returns the evaluators used with these options."""
    add_evaluators: Callable[[OptionsT, Sequence[str]], OptionsT]
    """Returns the options with these evaluators added."""
    most: Callable[[OptionsT], int]
    """The maximum number of revisions under these options."""
    prompt: Callable[[], Prompt]
    """The prompt that asks for a new answer to a conversation; its variable is `critiques`."""
    accepts_first: Callable[[OptionsT], bool] = lambda _options: True
    """Whether the first answer to a conversation stands if it passes these evaluators."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Weights that a method uses and that were fitted before the run; a run with other weights is another run."""

    name: str
    hash: str
    caveat: str = ""
    """What readers of the results must know about them, a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Method:
    """A named algorithm with the sample kinds it supports, the model roles it uses and its options.

    The fields from `streams` on are optional declarations for the guard, the doctor and the studies.
    """

    name: str
    summary: str
    kinds: frozenset[SampleKind]
    run: Run[Any]
    roles: tuple[str, ...] = ("base",)
    needs: frozenset[Feature] = frozenset()
    options: type[Options] = Options
    check: Check[Any] | None = None
    """Checks the options before the first call."""
    streams: FirstQuestion | None = None
    """Builds the request for the first answer, if that can be streamed and is the result unless it fails a check."""
    revision: Revision[Any] | None = None
    """How it revises answers; the guard adds its checks to this loop."""
    calibration: JudgeTest | None = None
    """Calibration of its judge, for `evenhand judges check MODEL`."""
    baselines: tuple[str, ...] = ()
    """The same method without its mitigation, closest first; audits compare with these to find over-correction."""
    fitted: Callable[[Any, str], Fitted] | None = None
    """(options, spec of the base model) → the weights that it uses."""

    def with_options(self, given: Mapping[str, Any]) -> Options:
        """Returns the given options on top of the preset and the defaults; invalid options are rejected by name."""
        return self.options.parse(f"method {self.name}", given)


METHODS: Registry[Method] = Registry(
    "method", package="evenhand.methods", fault=lambda made: signature_fault(made.run, "sample", "session")
)


def method(
    name: str,
    *,
    kinds: set[SampleKind],
    roles: tuple[str, ...] = ("base",),
    needs: frozenset[Feature] = frozenset(),
    options: type[OptionsT] = Options,
    check: Check[OptionsT] | None = None,
    streams: FirstQuestion | None = None,
    revision: Revision[OptionsT] | None = None,
    calibration: JudgeTest | None = None,
    baselines: tuple[str, ...] = (),
    fitted: Callable[[OptionsT, str], Fitted] | None = None,
) -> Callable[[Run[OptionsT]], Method]:
    """Decorator: registers an async function as the method `name`; its docstring's first line is the summary."""

    def wrap(run: Run[OptionsT]) -> Method:
        summary = doc_line(run)
        made = Method(
            name,
            summary,
            frozenset(kinds),
            run,
            roles,
            needs,
            options,
            check,
            streams=streams,
            revision=revision,
            calibration=calibration,
            baselines=baselines,
            fitted=fitted,
        )
        return METHODS.register(name)(made)

    return wrap


def check_fit(chosen: Method, kind: SampleKind, benchmark: str) -> None:
    """Rejects a method that does not support the benchmark's kind of sample, before the first call."""
    if kind not in chosen.kinds:
        able = [name for name in METHODS.names() if kind in METHODS.get(name).kinds]
        raise PlanError(
            f"The method {chosen.name} does not support the {kind!r} samples of {benchmark}. "
            f"Use one of these methods: {', '.join(able)}."
        )


def judge_tests() -> dict[str, JudgeTest]:
    """Return what the judge of each method should tell apart, where the method declares it."""
    found: dict[str, JudgeTest] = {}
    # Methods that share a judge share its test, under the name of one that is compared with no other.
    for name in sorted(METHODS.names(), key=lambda each: bool(METHODS.get(each).baselines)):
        test = METHODS.get(name).calibration
        if test is not None and all(test is not each for each in found.values()):
            found[name] = test
    return found


def prompts_of(chosen: Method) -> list[str]:
    """The ids of the built-in prompts that a method may use, those of its evaluators and of shared agents included.

    These are the prompt files beside the modules of the functions that it may call, as far as these functions name
    them; a method's own module names them anywhere.
    """
    parts: list[object] = [chosen.run]
    if chosen.revision is not None:
        named = [chosen.with_options(each) for each in ({}, *({PRESET: name} for name in chosen.options.presets))]
        evaluators = chosen.revision.evaluators
        parts += [each.evaluate for kind in chosen.kinds for options in named for each in evaluators(kind, options)]
    functions = _reached(parts)
    own = {sys.modules[each.__module__] for each in functions if each.__module__.startswith("evenhand.methods.")}
    sources = [(Path(inspect.getfile(each)).parent, inspect.getsource(each)) for each in (*functions, *own)]
    return [
        prompt_id
        for prompt_id, path in built_in_prompts().items()
        if any(folder == path.parent and f'"{path.stem}"' in source for folder, source in sources)
    ]


def _reached(parts: Iterable[object]) -> set[FunctionType]:
    """The functions of these rooms that these functions and classes name, those that they name, and so on."""
    found: set[FunctionType] = set()
    classes: set[type] = set()
    left = list(parts)
    while left:
        thing = inspect.unwrap(part) if callable(part := left.pop()) else part
        thing = getattr(thing, "run", None) or getattr(thing, "evaluate", None) or thing
        if not str(getattr(thing, "__module__", "")).startswith(_ASKING):
            continue
        if inspect.isclass(thing) and thing not in classes:
            classes.add(thing)
            left += [getattr(each, "fget", each) for each in vars(thing).values()]
        elif inspect.isfunction(thing) and thing not in found and Path(inspect.getfile(thing)).is_file():
            found.add(thing)
            left += [thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__]
    return found


def _names(code: CodeType) -> set[str]:
    """The names that a function uses, with those of functions inside it."""
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))
