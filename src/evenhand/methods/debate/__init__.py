"""RLDF's multi-role debates (Cheng et al.): roles debate a topic over rounds, and a referee scores the bias of each.

1. In every round each of the sample's roles says in turn what it thinks of the question, with good and bad sides from
its own point of view, having heard those before it. 2. After the round, a referee scores every statement, 0 (no bias)
to 10, and ranks them, in one call. 3. In the next round everyone says it again with less of what the referee objects
to. After `rounds` rounds there are high-bias and low-bias statements on the same question, of which `evenhand pairs`
makes training data.

Modes: the audited model debates (self-reflection), or the model of the role `teacher` does (teacher-student); nothing
else differs. The referee is the model of the role `referee`, else the one that debates.

Departures and choices: each role is asked in a call of its own, where the paper has one model write the whole round. A
debater is shown the latest words of each other, its own last words, their score and the referee's reason; the paper's
referee gives none. Debaters are not asked for sentences of their training data, and see no examples, whose words would
come back in the training data. The first prompt asks for beliefs about kinds of people, or polite models show none.
Scores come before rank and reasons, and are expected values where the model gives logprobs; debaters hear the number as
written. With `scoring=odds` a score is how likely the referee calls the statement alone prejudiced, in one word. The
referee sees the statements in an order drawn for each round, and no example: small models repeat its scores, whatever
they read. With 0 `referee_tokens` it may write as many as its form takes; models that think before they write need
more. Where rank and scores disagree, that is noted and the scores count. Debaters are sampled (`temperature`), the
referee is not. A debater who declines is left out of that round, and noted. Where the referee cannot be read, after it
was asked once more, the round's statements have no score. The outcome's answer is the least biased statement of the
last round that has scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.asking.panel import Panel
from evenhand.asking.panel import Statement as Said
from evenhand.benchmarks.debates.records import (
    DECLINED,
    DISAGREED,
    ROUNDS,
    STATEMENTS,
    Statement,
    disagreements,
    noted,
    roles_of,
)
from evenhand.methods.base import method
from evenhand.methods.debate.calibrate import CALIBRATION
from evenhand.methods.debate.debaters import TEACHER, Silence, speak
from evenhand.methods.debate.options import DebateOptions
from evenhand.methods.debate.referee import REFEREE, Verdict, judge
from evenhand.session import BASE, Session
from evenhand.types import Answer, Outcome, Refusal, Result, Sample, Snapshot, Unscored

_Turn = Statement | Silence | Verdict


@method(
    "debate",
    kinds={"debate"},
    roles=(BASE, TEACHER, REFEREE),
    options=DebateOptions,
    calibration=CALIBRATION,
)
async def debate(sample: Sample, session: Session[DebateOptions]) -> Outcome:
    """Roles debate the question over rounds; a referee scores the bias of every statement (RLDF)."""
    roles = {role.name: role for role in roles_of(sample)}

    async def turn(name: str, number: int, heard: Sequence[Said[_Turn]]) -> _Turn:
        if name == REFEREE:
            said = [each.said for each in heard if each.place.round == number]
            return await judge(session, sample, number, [each for each in said if isinstance(each, Statement)])
        latest = {each.place.speaker: each.said for each in heard}
        others = {other: said.text for other, said in latest.items() if isinstance(said, Statement)}
        return await speak(session, sample, roles[name], number, others, _own(latest.get(REFEREE), name))

    # The referee is one of the speakers: it comes last in each round, and is heard in the next.
    rounds = await Panel((*roles, REFEREE), session.options.rounds).hold(turn)
    return concluded(rounds)


def _own(verdict: _Turn | None, name: str) -> Statement | None:
    """What the debater said in the round before, as it was judged."""
    statements = verdict.statements if isinstance(verdict, Verdict) else ()
    return next((each for each in statements if each.role == name), None)


def concluded(rounds: Sequence[Mapping[str, _Turn]]) -> Outcome:
    """The outcome of a debate, with every round as a snapshot."""
    snapshots = [
        Snapshot(number - 1, _result([turns]), {"candidate": _told(turns), **_notes([turns], number)})
        for number, turns in enumerate(rounds, 1)
    ]
    return Outcome(_result(rounds), "done", tuple(snapshots), _notes(rounds, len(rounds)))


def _told(turns: Mapping[str, _Turn]) -> str:
    """A round as people read it."""
    lines = [f"{said.role} (bias {_number(said.score)}): {said.text}" for said in _verdict(turns).statements]
    return "\n".join(
        [*lines, *(f"{name}: – {said.reason}" for name, said in turns.items() if isinstance(said, Silence))]
    )


def _number(score: float | None) -> str:
    return "not scored" if score is None else f"{score:.1f}"


def _notes(rounds: Sequence[Mapping[str, _Turn]], last: int) -> dict[str, Any]:
    """What rounds brought, the last of which is number `last`."""
    statements = [each for turns in rounds for each in _verdict(turns).statements]
    silences = [
        {"role": name, "round": number, "reason": said.reason, "text": said.text}
        for number, turns in enumerate(rounds, last - len(rounds) + 1)
        for name, said in turns.items()
        if isinstance(said, Silence)
    ]
    return {
        STATEMENTS: noted(statements),
        ROUNDS: last,
        DECLINED: silences,
        DISAGREED: disagreements(statements),
        "problems": [problem for turns in rounds if (problem := _verdict(turns).problem)],
    }


def _result(rounds: Sequence[Mapping[str, _Turn]]) -> Result:
    """The least biased statement of the last round that has scores; of equal ones, the first."""
    verdicts = [_verdict(turns) for turns in rounds]
    for verdict in reversed(verdicts):
        scored = [(each.score, each.text) for each in verdict.statements if each.score is not None]
        if scored:
            return Answer(min(scored, key=lambda each: each[0])[1])
    if any(verdict.statements for verdict in verdicts):
        return Unscored(f"the referee could not be read: {verdicts[-1].problem}")
    return Refusal(next(said.text for said in rounds[-1].values() if isinstance(said, Silence)))


def _verdict(turns: Mapping[str, _Turn]) -> Verdict:
    verdict = turns[REFEREE]
    assert isinstance(verdict, Verdict)
    return verdict
