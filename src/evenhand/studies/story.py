"""The trace of one sample as a story: the answer, what each critic said, what was decided, the revision, the end.

It is read from the snapshots that a method leaves after each iteration. Notes of the form `{"candidate", "verdicts",
"decision"}` are told in words, other plain notes as they are; a method without notes still shows its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from evenhand.studies.results import ShownOutcome, ShownSnapshot

_DECISIONS = {
    "accepted": "accepts it.",
    "max_iterations": "stops: no revision is left.",
    "no_evaluation": "stops: no evaluator could judge it.",
    "revise": "asks for a revision.",
}
_TOLD = ("candidate", "verdicts", "decision")


@dataclass(frozen=True, slots=True)
class Step:
    """One event; critics, decisions and notes belong to the answer before them."""

    kind: Literal["answer", "critic", "decision", "note", "end"]
    who: str
    text: str
    passed: bool | None = None
    """A critic's verdict; None where it could not judge."""
    details: str = ""

    @property
    def label(self) -> str:
        """Who, as it stands before the text: some texts go on with the sentence, others are speech."""
        goes_on = self.kind == "decision" or self.text.startswith(("is ", "could "))
        return self.who if goes_on else f"{self.who}:"


def story(outcome: ShownOutcome) -> list[Step]:
    """The steps in order; none for a method that leaves no snapshots."""
    if not outcome.snapshots:
        return []
    candidates = [_candidate(each) for each in outcome.snapshots]
    steps = [
        step
        for number, (snapshot, text) in enumerate(zip(outcome.snapshots, candidates, strict=True))
        for step in (Step("answer", _name(number), text), *_said(snapshot.notes))
    ]
    return [*steps, Step("end", "the end", _end(outcome.answer, candidates))]


def first_answer(outcome: ShownOutcome) -> str | None:
    """What the sample's answer was before the method changed it; None where it did not."""
    before = _candidate(outcome.snapshots[0]) if outcome.snapshots else outcome.answer
    return None if before == outcome.answer else before


def _candidate(snapshot: ShownSnapshot) -> str:
    """The answer that was judged, which is not always the one that is kept."""
    return str(snapshot.notes.get("candidate", snapshot.text))


def _name(number: int) -> str:
    return f"revision {number}" if number else "the first answer"


def _said(notes: Mapping[str, Any]) -> Iterator[Step]:
    verdicts = notes.get("verdicts")
    for each in cast("list[Any]", verdicts) if isinstance(verdicts, list) else []:
        if isinstance(each, Mapping):
            yield _critic(cast("Mapping[str, Any]", each))
    for name, value in notes.items():
        if name not in _TOLD and (told := _plain(value)) is not None:
            yield Step("note", name, told)
    if "decision" in notes:
        yield Step("decision", "coordinator", _decision(str(notes["decision"])))


def _plain(value: Any) -> str | None:
    """A note as text; of a mapping, its plain values."""
    if isinstance(value, (str, int, float)):
        return str(value)
    if not isinstance(value, Mapping):
        return None
    parts = cast("Mapping[str, Any]", value).items()
    return ", ".join(f"{name} {each}" for name, each in parts if isinstance(each, (str, int, float))) or None


def _critic(verdict: Mapping[str, Any]) -> Step:
    who, details = f"{verdict.get('evaluator', 'an')} evaluator", str(verdict.get("details") or "")
    if "unscored" in verdict:
        return Step("critic", who, f"could not judge: {verdict['unscored']}")
    passed = bool(verdict.get("passed"))
    # What is said in passing of an answer that passed is no reason for anything.
    text = "is content." if passed else str(verdict.get("critique") or "is not content.")
    return Step("critic", who, text, passed, details)


def _decision(decision: str) -> str:
    """`revise: toxicity` and the like as a sentence; what is not known as it is."""
    word, _, why = decision.partition(": ")
    if word not in _DECISIONS:
        return f"decides: {decision}"
    return _DECISIONS[word] if not why else f"{_DECISIONS[word].rstrip('.')} ({why})."


def _end(answer: str, candidates: Sequence[str]) -> str:
    """Which of the answers is kept."""
    if answer not in candidates:
        return f"The answer is another: {answer}"
    last = len(candidates) - 1
    if candidates[last] == answer:
        unchanged = last > 0 and candidates[0] == answer
        return "The answer is as it was." if unchanged else f"{_name(last).capitalize()} is kept."
    kept = _name(candidates.index(answer)).capitalize()
    return f"{kept} is kept: it was better than {_name(last)}."
