"""The record of an answer: its checks, the action taken and the reasons. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from evenhand.core.types import Turn, Usage
from evenhand.core.untrusted import clean
from evenhand.show.markup import tag
from evenhand.show.page import details
from evenhand.show.table import Cell, Table, Tabular, columns, notebook_html

Action = Literal["passed", "revised", "flagged", "blocked", "tried", "unrevised", "unchecked", "input-blocked"]
"""`tried`: a better answer was found, but it fails too; `unrevised`: it failed, and no better one was found;
`unchecked`: nothing failed, but something in it could not be checked; `input-blocked`: the request was refused before
the model was called."""
InputAction = Literal["passed", "flagged", "blocked", "unchecked"]
_SHORT = 80
_SENTENCES: Mapping[str, str] = {
    "tried": "The answer was revised and still fails",
    "unrevised": "The answer fails, and no better one was found",
    "unchecked": "The answer could not be checked in full",
    "input-blocked": "The request was blocked before the model was called",
}


@dataclass(frozen=True, slots=True)
class CheckList:
    """Which checks look at every answer of a guard, and which of the usual ones, toxicity and bias, do not.

    It is shown to clients, so it names no model: a judge is "a judge".
    """

    run: tuple[str, ...] = ()
    """Each with what reads the text, e.g. `toxicity (builtin 2.3)`."""
    not_run: tuple[str, ...] = ("toxicity", "bias")
    requests: tuple[str, ...] = ()
    """The checks of requests."""

    def __str__(self) -> str:
        missing = " and ".join(self.not_run) + (" are" if len(self.not_run) > 1 else " is") + " not checked"
        parts = [f"checks: {', '.join(self.run) or 'none'}"]
        parts += [f"requests: {', '.join(self.requests)}"] if self.requests else []
        return "; ".join([*parts, missing] if self.not_run else parts)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one evaluator for one text."""

    name: str
    score: float | None
    """On the evaluator's own scale; None where the text could not be scored, and `problem` says why."""
    limit: float | None
    passed: bool
    words: str = ""
    """The evaluator's critique."""
    problem: str = ""

    @property
    def sentence(self) -> str:
        if self.score is None:
            return f"{self.name} has no score: {self.problem}."
        limit = "" if self.limit is None else f" (limit {self.limit:g})"
        return f"{self.name} is {self.score:.3g}{limit}, which {'passes' if self.passed else 'fails'}."


@dataclass(frozen=True, slots=True)
class InputRecord:
    """What became of a request, from its own checks."""

    action: InputAction
    why: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Guarded(Tabular):
    """An answer that went through the guard, with the record of what was changed and why."""

    text: str
    """The text that the client receives; empty if the answer is only tool calls."""
    message: Mapping[str, Any]
    """The assistant message in OpenAI's form: content, tool_calls, refusal, …"""
    finish: str
    """OpenAI's finish_reason."""
    action: Action
    why: tuple[str, ...] = ()
    """The checks that the first answer failed, and other reasons in words."""
    first: str = ""
    """The model's first answer."""
    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()
    input: InputRecord | None = None
    """The check of the request; None if the guard does not check requests."""
    checks: CheckList = CheckList()
    """Which checks this guard runs, and which it does not."""
    late: bool = False
    """Whether the latency budget was used up."""
    iterations: int = 0
    """The number of revisions."""
    usage: Usage = Usage()
    """The usage of all calls for this answer."""
    trace: tuple[Turn, ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by stage: `input`, `answer`, `checks`, `revision`, `total`."""
    upstream: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The raw response that holds the returned answer; empty where there is none."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    errors: tuple[str, ...] = ()
    """Messages of calls that failed, for the operator: they may hold addresses and texts of endpoints."""

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHORT else f"{self.text[: _SHORT - 1]}…"
        return clean(f"Guarded({self.action}{f' ({self.why[0]})' if self.why else ''}: {text!r})")

    @property
    def verdicts(self) -> list[str]:
        """What became of the answer, and each check of it, in sentences."""
        became = _SENTENCES.get(self.action, f"The answer was {self.action}")
        request = [] if self.input is None else [each.sentence for each in self.input.checks]
        if self.input is not None and self.input.action != "blocked":
            request.insert(0, f"The request was {self.input.action}{_because(self.input.why)}.")
        missing = [f"{name.capitalize()} was not checked." for name in self.checks.not_run]
        return [f"{became}{_because(self.why)}.", *(each.sentence for each in self.after), *request, *missing]

    def rows(self, table: str = "") -> list[dict[str, Any]]:
        """One row for each check of the request (`input`), of the first answer (`before`) and of the returned one."""
        del table
        requested = self.input.checks if self.input else ()
        stages = {"input": requested, "before": self.before, "after": self.after}
        return [{"stage": stage, **asdict(each)} for stage, checks in stages.items() for each in checks]

    def _repr_html_(self) -> str:
        answer, first = (tag("blockquote", each, style="white-space:pre-wrap") for each in (self.text, self.first))
        heads = columns("stage", "check", "score", "limit", "passed", "critique", "problem", words=7)
        rows = [[Cell("" if each is None else str(each)) for each in row.values()] for row in self.rows()]
        more = details("First answer and checks", first, notebook_html(Table("Checks", heads, rows)))
        return tag("div", tag("p", tag("b", self.verdicts[0])), answer, more)


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a streamed answer that has passed its checks; the last one carries the whole record."""

    text: str
    checks: tuple[Check, ...] = ()
    final: Guarded | None = None


def _because(why: Sequence[str]) -> str:
    return f": {', '.join(why)}" if why else ""
