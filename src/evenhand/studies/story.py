"""Tells what happened to one sample in steps: first answer, critiques, decision, revision, final answer.

The steps come from the snapshots that a method records after each iteration. The notes `candidate`, `verdicts` and
`decision` are put into words; other plain notes are shown unchanged. Without notes, only the answers are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from evenhand.studies.results import ShownOutcome, ShownSnapshot

_DECISIONS = {
    "accepted": "accepts the answer.",
    "max_iterations": "stops: the revision limit is reached.",
    "no_evaluation": "stops: no evaluator could judge it.",
    "revise": "asks for a revision.",
}
_WORDED = ("candidate", "verdicts", "decision")


@dataclass(frozen=True, slots=True)
class Step:
    """One event; critics, decisions and notes refer to the answer before them."""

    kind: Literal["answer", "critic", "decision", "note", "end"]
    who: str
    text: str
    passed: bool | None = None
    """A critic's verdict; None if it could not judge."""
    details: str = ""

    @property
    def label(self) -> str:
        """The speaker, with a colon unless the text continues the sentence."""
        continues = self.kind == "decision" or self.text.startswith(("is ", "could "))
        return self.who if continues else f"{self.who}:"


def story(outcome: ShownOutcome) -> list[Step]:
    """Return the steps in order; none for a method that records no snapshots."""
    if not outcome.snapshots:
        return []
    candidates = [_candidate(each) for each in outcome.snapshots]
    steps = [
        step
        for number, (snapshot, text) in enumerate(zip(outcome.snapshots, candidates, strict=True))
        for step in (Step("answer", _name(number), text), *_note_steps(snapshot.notes))
    ]
    return [*steps, Step("end", "the end", _end(outcome.answer, candidates))]


def first_answer(outcome: ShownOutcome) -> str | None:
    """Return the answer before the method changed it, or None if it did not."""
    before = _candidate(outcome.snapshots[0]) if outcome.snapshots else outcome.answer
    return None if before == outcome.answer else before


def _candidate(snapshot: ShownSnapshot) -> str:
    """Return the answer that was judged, which is not always the one that was kept."""
    return str(snapshot.notes.get("candidate", snapshot.text))


def _name(number: int) -> str:
    return f"revision {number}" if number else "the first answer"


def _note_steps(notes: Mapping[str, Any]) -> Iterator[Step]:
    verdicts = notes.get("verdicts")
    for each in cast("list[Any]", verdicts) if isinstance(verdicts, list) else []:
        if isinstance(each, Mapping):
            yield _critic(cast("Mapping[str, Any]", each))
    for name, value in notes.items():
        if name not in _WORDED and (text := _plain(value)) is not None:
            yield Step("note", name, text)
    if "decision" in notes:
        yield Step("decision", "coordinator", _decision(str(notes["decision"])))


def _plain(value: Any) -> str | None:
    """Return a note as text; of a mapping, its plain values."""
    if isinstance(value, (str, int, float)):
        return str(value)
    if not isinstance(value, Mapping):
        return None
    items = cast("Mapping[str, Any]", value).items()
    return ", ".join(f"{name} {each}" for name, each in items if isinstance(each, (str, int, float))) or None


def _critic(verdict: Mapping[str, Any]) -> Step:
    who, details = f"{verdict.get('evaluator', 'an')} evaluator", str(verdict.get("details") or "")
    if "unscored" in verdict:
        return Step("critic", who, f"could not judge: {verdict['unscored']}")
    passed = bool(verdict.get("passed"))
    # Remarks on an answer that passed had no consequence, so they are not shown.
    text = "is satisfied." if passed else str(verdict.get("critique") or "is not satisfied.")
    return Step("critic", who, text, passed, details)


def _decision(decision: str) -> str:
    """Put decisions such as `revise: toxicity` into a sentence; unknown ones are quoted."""
    word, _, why = decision.partition(": ")
    if word not in _DECISIONS:
        return f"decides: {decision}"
    return _DECISIONS[word] if not why else f"{_DECISIONS[word].rstrip('.')} ({why})."


def _end(answer: str, candidates: Sequence[str]) -> str:
    """Say which of the answers was kept."""
    if answer not in candidates:
        return f"The final answer is none of these: {answer}"
    last = len(candidates) - 1
    if candidates[last] == answer:
        unchanged = last > 0 and candidates[0] == answer
        return "The answer did not change." if unchanged else f"{_name(last).capitalize()} is kept."
    kept = _name(candidates.index(answer)).capitalize()
    return f"{kept} is kept: it was better than {_name(last)}."
