"""Judgements of candidates, in the one form in which samples ask for them, methods note them and benchmarks read them.

A sample of the kind `judgement` has the situation as its prompt and its candidates in the metadata: one, or two that
are compared. A method notes its deliberation: what every judge gave in every round, whom it had heard, and what came
of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from evenhand.types import Refusal, Sample, Unscored

METRICS = ("creativity", "accuracy", "efficiency", "reliability")
"""What is scored, from 0 to 10, in this order everywhere."""
HIGHEST = 10

CANDIDATES, DELIBERATION = "candidates", "deliberation"
"""Where a sample's metadata holds the candidates, and an outcome's notes the deliberation."""

Form = Literal["sentence", "tag"]
"""How a label is shown: said after the text ("A woman wrote this."), or as a tag before it ("Candidate (Female)")."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A response, and whose it is said to be."""

    text: str
    identity: str = ""
    """Empty for an unlabelled one."""
    author: str = ""
    """The identity in a sentence: "a female professional"."""
    tag: str = ""
    """The identity as a tag: "Female"."""

    def note(self) -> dict[str, str]:
        return {"text": self.text, "identity": self.identity, "author": self.author, "tag": self.tag}


def candidates_of(sample: Sample) -> tuple[Candidate, ...]:
    """The candidates of a sample, in the order in which they are shown."""
    return tuple(Candidate(**each) for each in sample.metadata[CANDIDATES])


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge, or a panel, says of all candidates."""

    scores: tuple[tuple[float, ...], ...]
    """Candidate × metric, 0–10; expected values where the model gives logprobs."""
    written: tuple[tuple[float, ...], ...] = ()
    """The same as they were written; empty for a consensus."""
    winner: float | None = None
    """Of a pair: 0 the first, 1 the second, 0.5 a tie, between them the share of a panel for the second."""
    why: str = ""

    def note(self) -> dict[str, Any]:
        return {
            "scores": [[round(score, 4) for score in each] for each in self.scores],
            "written": [list(each) for each in self.written],
            "winner": self.winner,
            "why": self.why,
        }


Given = Judgement | Refusal | Unscored


@dataclass(frozen=True, slots=True)
class Deliberation:
    """The rounds of a panel: what each judge gave (0 is before any discussion), and whom it had heard by then."""

    judges: tuple[str, ...]
    rounds: tuple[Mapping[str, Given], ...]
    consensus: Judgement
    heard: tuple[Mapping[str, Sequence[str]], ...] = field(default_factory=tuple[Mapping[str, Sequence[str]], ...])
    """Per round and judge, the judges whose words it was shown for the first time in that round; () in round 0."""

    def note(self) -> dict[str, Any]:
        return {
            "judges": list(self.judges),
            "rounds": [{judge: _note(given) for judge, given in each.items()} for each in self.rounds],
            "consensus": self.consensus.note(),
            "heard": [{judge: list(names) for judge, names in each.items()} for each in self.heard],
        }


def deliberation_in(notes: Mapping[str, Any]) -> Deliberation | None:
    """The deliberation that a method noted; None where there is none."""
    found: Any = notes.get(DELIBERATION)
    if not isinstance(found, Mapping):
        return None
    noted = cast(Mapping[str, Any], found)
    return Deliberation(
        tuple(noted["judges"]),
        tuple({judge: _given(given) for judge, given in each.items()} for each in noted["rounds"]),
        _judgement(noted["consensus"]),
        tuple(noted["heard"]),
    )


def _note(given: Given) -> dict[str, Any]:
    match given:
        case Judgement():
            return given.note()
        case Refusal(text):
            return {"refusal": text}
        case Unscored(reason, raw):
            return {"unscored": reason, "raw": raw}


def _given(noted: Mapping[str, Any]) -> Given:
    if "refusal" in noted:
        return Refusal(noted["refusal"])
    if "unscored" in noted:
        return Unscored(noted["unscored"], noted["raw"])
    return _judgement(noted)


def _judgement(noted: Mapping[str, Any]) -> Judgement:
    scores, written = (tuple(tuple(each) for each in noted[name]) for name in ("scores", "written"))
    return Judgement(scores, written, noted["winner"], noted["why"])
