"""RLDF's multi-role debates (Cheng et al.): roles debate a topic over rounds, and a referee scores the bias of each.

1. In every round each role gives its view of the question in turn, with good and bad sides from its own point of view,
   after hearing the roles before it.
2. After the round, a referee scores all statements from 0 (no bias) to 10 and ranks them, in one call.
3. In the next round each role restates its view with less of what the referee objected to.

After `rounds` rounds there are high-bias and low-bias statements on the same question; `evenhand train pairs` makes
training data from them.

Modes: the audited model debates (self-reflection), or the model of the role `teacher` does (teacher-student). The
referee is the model of the role `referee`; without one, the debating model.

Departures and choices:
* `presets.yaml` lists what the paper and its authors' code do otherwise, element by element.
* Each role speaks in its own call, and so does the referee; with `calls=round`, as in the paper, one call writes what
  all of them say, unless a model has the role `referee`. Scores that are missing in such a text stay missing.
* A debater sees the latest statement of every other role (with `hears`, the latest of all), and its own last statement
  with its score and the referee's reason. The paper's referee gives no reasons.
* Debaters are not asked to quote their training data. They see no examples, whose words would end up in the new data.
* The first prompt asks for beliefs about groups of people; otherwise polite models show no bias.
* In the referee's reply, scores come before rank and reasons. They are expected values if the model gives logprobs;
  debaters see the number as written.
* With `scoring=odds` the score is the probability that the referee calls the single statement prejudiced.
* The referee sees the statements in a random order in each round, and no example: small models copy its scores.
* `referee_tokens=0` allows as many tokens as the reply's form needs.
* If rank and scores disagree, this is noted and the scores count.
* Debaters are sampled (`temperature`), the referee is greedy.
* A debater who declines is skipped in that round, and this is noted.
* If the referee's reply cannot be parsed after one retry, the round's statements have no score.
* The answer is the least biased statement of the last round with scores.

RLAIF is the baseline closest to RLDF: a referee scores sampled answers for bias; there is no debate. The neutral
question is asked `answers` times, as a user would ask it, and the referee of the debates scores the answers. The notes
have the form of a one-round debate, so that `evenhand train pairs` can make training data from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenhand.asking.panel import Panel
from evenhand.asking.panel import Statement as Said
from evenhand.benchmarks.debates import (
    DECLINED,
    DISAGREED,
    ROUNDS,
    STATEMENTS,
    WORST,
    Statement,
    disagreements,
    noted,
    roles_of,
)
from evenhand.core import aio
from evenhand.core.types import Answer, Cut, Outcome, Refusal, Result, Sample, Snapshot, Unscored
from evenhand.judging.card import Calibration, Contrast, JudgeTest, rated_once
from evenhand.judging.controls import OFF_TOPIC, UNUSUAL, Control, construct
from evenhand.judging.rubric import Ratings
from evenhand.methods.base import method
from evenhand.methods.debate.agents import (
    REFEREE,
    TEACHER,
    DebateOptions,
    RefereeOptions,
    RlaifOptions,
    RoundScores,
    Silence,
    judge,
    odds_of,
    speak,
    speak_together,
    stated,
)
from evenhand.methods.default import plain_prompt
from evenhand.session import BASE, Session

# --- calibration of the debate's referee: the better way of scoring and the threshold between high and low bias ---
# Two statements on one question differ only in their prejudice: the controls of prejudice. They are scored together,
# in both orders, like the statements of a round; then each is scored alone by the probability of yes. Debaters never
# see them. Refusals and nonsense are scored alone as well.

BY_ODDS = "odds"
_SCORINGS = {REFEREE: "numbers", BY_ODDS: "odds"}
"""Rating → the option `scoring` that it calibrates."""
_SPEAKERS = ("one person", "another person")
_BIASED, _FAIR = f"{REFEREE}/biased", f"{REFEREE}/fair"
"""One reply rates both statements: the first should be high, the second low."""
_ABOUT = "Prejudice about people because of their {group}, such as taking it for a sign of what somebody is worth."
_HIGHEST = WORST - 0.01
"""`evenhand train pairs` takes thresholds below 10."""


def contrasts() -> list[Contrast]:
    """Returns every pair of statements, scored together in both orders, and every statement scored alone."""
    controls = [each for each in construct("prejudice").controls if each.kind not in (*UNUSUAL, OFF_TOPIC)]
    questions: dict[str, list[Control]] = {}
    for each in controls:
        if each.high is not None:
            questions.setdefault(each.context, []).append(each)
    together = [each for number, pair in enumerate(questions.values()) for each in _together(number, pair)]
    alone = [_scored_by_odds(_sample(number, each), each) for number, each in enumerate(controls)]
    return [*together, *alone]


def _together(number: int, pair: Sequence[Control]) -> Iterator[Contrast]:
    sides = [(_BIASED if each.high else _FAIR, each) for each in pair]
    # Both orders are shuffled with the same seed, so each statement comes first once.
    for first, second in (sides, sides[::-1]):
        yield _scored_together(_sample(number, pair[0]), dict([first, second]))


def _scored_together(sample: Sample, controls: Mapping[str, Control]) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        said = [Statement(name, 1, each.text) for name, each in zip(_SPEAKERS, controls.values(), strict=True)]
        own = session.options if isinstance(session.options, RefereeOptions) else RefereeOptions()
        verdict = await judge(session.with_options(own), sample, 1, said)
        if verdict.problem:
            return verdict.problem
        judged = zip(controls, verdict.statements, strict=True)
        scores = {side: each.score / WORST for side, each in judged if each.score is not None}
        return Ratings(scores, scores)

    return Contrast(sample, rate, [(_BIASED, True), (_FAIR, False)], replace(controls[_BIASED], kind=REFEREE))


def _scored_by_odds(sample: Sample, control: Control) -> Contrast:
    return rated_once(sample, BY_ODDS, lambda session: odds_of(session, sample, control.text, BASE), control)


def _sample(number: int, control: Control) -> Sample:
    about = _ABOUT.format(group=control.group or "group")
    return Sample(f"contrast/{number}", "debate", control.context, metadata={"about": about})


def suggested_options(calibrations: Sequence[Calibration]) -> dict[str, str]:
    """Returns the suggested options of `debate` for this referee; none for a referee at chance."""
    best = _best(calibrations)
    return {} if best is None else {"scoring": _SCORINGS[best.rating]}


def suggested_threshold(calibrations: Sequence[Calibration]) -> float | None:
    """Returns the threshold between high and low bias, 0 to 10, with the suggested options."""
    best = _best(calibrations)
    return None if best is None or best.threshold is None else min(round(WORST * best.threshold, 2), _HIGHEST)


def _commands(calibrations: Sequence[Calibration]) -> list[str]:
    threshold = suggested_threshold(calibrations)
    return [] if threshold is None else [f"evenhand train pairs RUN --threshold {threshold:g}"]


def _used(options: RefereeOptions) -> list[str]:
    return [rating for rating, scoring in _SCORINGS.items() if scoring == options.scoring]


def _best(calibrations: Sequence[Calibration]) -> Calibration | None:
    """Returns the better way of scoring; on a tie numbers, which need no further calls."""
    able = [each for each in calibrations if each.rating in _SCORINGS and each.threshold is not None]
    return max(able, key=lambda each: each.auc or 0, default=None)


CALIBRATION = JudgeTest("referee", contrasts, suggested_options, frozenset({"debate"}), _commands, _used, role=REFEREE)


_Turn = Statement | Silence | RoundScores


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
    together: dict[str, Statement | Silence] = {}
    scores = RoundScores(())

    async def turn(name: str, number: int, heard: Sequence[Said[_Turn]]) -> _Turn:
        nonlocal together, scores
        if name == REFEREE and session.options.calls == "round" and REFEREE not in session.models:
            return scores
        if name == REFEREE:
            said = [each.said for each in heard if each.place.round == number]
            return await judge(session, sample, number, [each for each in said if isinstance(each, Statement)])
        latest = {each.place.speaker: each.said for each in heard}
        if session.options.calls == "round":
            if name == next(iter(roles)):
                last = latest.get(REFEREE)
                before = last.statements if isinstance(last, RoundScores) else ()
                together, scores = await speak_together(session, sample, list(roles.values()), number, before)
            return together[name]
        said = [each.said for each in heard if isinstance(each.said, Statement)][-session.options.hears :]
        chosen = said if session.options.hears else [each for each in latest.values() if isinstance(each, Statement)]
        others = [(each.role, each.text) for each in chosen]
        return await speak(session, sample, roles[name], number, others, _own(latest.get(REFEREE), name))

    # The referee is one of the speakers: it comes last in each round and is heard in the next.
    rounds = await Panel((*roles, REFEREE), session.options.rounds).hold(turn)
    return concluded(rounds)


def _own(verdict: _Turn | None, name: str) -> Statement | None:
    """Returns the debater's judged statement of the previous round."""
    statements = verdict.statements if isinstance(verdict, RoundScores) else ()
    return next((each for each in statements if each.role == name), None)


def concluded(rounds: Sequence[Mapping[str, _Turn]]) -> Outcome:
    """Returns the outcome of a debate, with every round as a snapshot."""
    snapshots = [
        Snapshot(number - 1, _result([turns]), {"candidate": _round_text(turns), **_notes([turns], number)})
        for number, turns in enumerate(rounds, 1)
    ]
    return Outcome(_result(rounds), "done", tuple(snapshots), _notes(rounds, len(rounds)))


def _round_text(turns: Mapping[str, _Turn]) -> str:
    lines = [f"{said.role} (bias {_score_text(said.score)}): {said.text}" for said in _scores_of(turns).statements]
    return "\n".join(
        [*lines, *(f"{name}: – {said.reason}" for name, said in turns.items() if isinstance(said, Silence))]
    )


def _score_text(score: float | None) -> str:
    return "not scored" if score is None else f"{score:.1f}"


def _notes(rounds: Sequence[Mapping[str, _Turn]], last: int) -> dict[str, Any]:
    """Returns the notes on some rounds; `last` is the number of the last one."""
    statements = [each for turns in rounds for each in _scores_of(turns).statements]
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
        "problems": [problem.reason for turns in rounds if (problem := _scores_of(turns).problem)],
    }


def _result(rounds: Sequence[Mapping[str, _Turn]]) -> Result:
    """Returns the least biased statement of the last round with scores; on a tie, the first."""
    scored_rounds = [_scores_of(turns) for turns in rounds]
    for verdict in reversed(scored_rounds):
        scored = [(each.score, each.text) for each in verdict.statements if each.score is not None]
        if scored:
            return Answer(min(scored, key=lambda each: each[0])[1])
    problem = next((verdict.problem for verdict in reversed(scored_rounds) if verdict.problem), None)
    if problem is not None:
        return replace(problem, reason=f"the referee's reply could not be parsed: {problem.reason}", raw="")
    silences = [said for said in rounds[-1].values() if isinstance(said, Silence)]
    cut = next((said for said in silences if said.cut), None)
    return Cut(cut.reason, cut.text) if cut else Refusal(silences[0].text)


def _scores_of(turns: Mapping[str, _Turn]) -> RoundScores:
    verdict = turns[REFEREE]
    assert isinstance(verdict, RoundScores)
    return verdict


@method(
    "rlaif",
    kinds={"debate"},
    roles=(BASE, TEACHER, REFEREE),
    options=RlaifOptions,
    calibration=CALIBRATION,
)
async def rlaif(sample: Sample, session: Session[RlaifOptions]) -> Outcome:
    """Several answers to the question, scored for bias by a referee, without a debate (RLAIF)."""
    names = [f"answer {number}" for number in range(1, session.options.answers + 1)]
    said = dict(zip(names, await aio.all_of([_answer(sample, session, name) for name in names]), strict=True))
    verdict = await judge(session, sample, 1, [each for each in said.values() if isinstance(each, Statement)])
    return concluded([{**said, REFEREE: verdict}])


async def _answer(sample: Sample, session: Session[RlaifOptions], name: str) -> Statement | Silence:
    prompt = plain_prompt("chat")
    return await stated(session, prompt, prompt.render(question=sample.prompt), name, 1)
