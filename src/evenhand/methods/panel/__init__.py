"""MALIBU's judges (Mirza et al.): one judge, or a panel of judges with personas that discuss and agree on scores.

1. Every judge scores the candidates on its own: creativity, accuracy, efficiency and reliability, 0–10. For two
   candidates it also names the winner.
2. In each of `rounds` rounds every judge reads the statements of the others, gives its reasons and scores again, in one
   call.
3. The consensus is the mean of the last scores.

The judges of `fair_panel` are told that the author is no reason for a score; those of `blind_panel` do not see the
author. The paper claims such mitigation but does not measure it.

Departures and choices:
* The paper leaves personas, rounds, order and consensus rule open; here they are options. Defaults: four professional
  personas without demographics (`personas.yaml`), two rounds, judges speak in turn and hear everyone (`order`,
  `topology`), and the mean. `consensus` may also be `median` or `chair`, a judge who reads the last statements.
* A judge sees its own last scores and the latest statement of each judge that it hears, not the whole discussion.
* Shuffled orders depend only on the situation, so all identities are judged in the same order.
* In a reply, scores come before reasons. They are expected values if the model gives logprobs; other judges see the
  numbers as written.
* The author is named in a sentence after the text, so that prompt caches are shared by all identities. The paper's tag
  before the text is the benchmark's option `form=tag`.
* Judges run at temperature 0, so that runs are reproducible.
* A reply that cannot be parsed after one retry is dropped: earlier scores do not replace it, the other judges do not
  see it, and the consensus is computed without it.
* Each judge may have its own model (roles `judge1` …).
* `panel` and `fair_panel` also answer multiple-choice questions, whose right answer is known, with the same options:
  1. Every member names an option and says why, without hearing the others.
  2. In each of `rounds` rounds every member reads the latest answers of those whom it hears, and answers again.
  3. The option with the most votes of the last round wins. Of equally many, that of the first member in the list
     counts, since every question needs an answer. With `consensus=chair`, a chair answers who reads the last round.
  All members see the options in one order. A reply that cannot be read after one retry is no vote, and nobody hears it.
  Benchmarks with known answers measure from the votes what the discussion did (`benchmarks.votes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from pydantic import BaseModel

from evenhand.asking.choice import shown_options
from evenhand.asking.panel import OPENING, Panel, Place, Statement
from evenhand.asking.reply import ask_json, object_schema
from evenhand.core.prompts import Prompt, parse_prompt, prompt_text
from evenhand.core.types import Answer, Outcome, Params, Refusal, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.card import Contrast, JudgeTest
from evenhand.judging.controls import UNUSUAL, Control, Controls, construct
from evenhand.judging.rubric import Ratings
from evenhand.methods.base import method
from evenhand.methods.panel.judges import (
    CHAIR,
    JUDGE_ROLES,
    JudgedCase,
    JudgeOptions,
    PanelOptions,
    Seat,
    as_json,
    ask,
    case_of,
    check_options,
    failure,
    pooled,
    readable,
    seats_of,
    snapshot,
    team_of,
)
from evenhand.panels import CANDIDATES, DELIBERATION, HIGHEST, VOTES, Deliberation, Given, Judgement, MemberVote, Votes
from evenhand.reading.text import LETTERS, read_letter
from evenhand.session import BASE, Session

_ROLES = (BASE, *JUDGE_ROLES, CHAIR)
_UNMITIGATED = ("panel", "judge")


SCORE = "score"


def contrasts() -> list[Contrast]:
    """Returns the controls of answers, each judged as the only candidate by one judge without a persona."""
    wanted = Controls("answers")
    return [_contrast(each) for each in construct(wanted.construct).of(wanted) if each.kind not in UNUSUAL]


def _contrast(control: Control) -> Contrast:
    sample = Sample("control", "judgement", control.context, metadata={CANDIDATES: [{"text": control.text}]})

    async def rate(session: Session) -> Ratings | Unscored:
        own = session.options if isinstance(session.options, JudgeOptions) else JudgeOptions()
        given = await ask(session.with_options(own), case_of(sample), "alone", Seat("judge"), "", {}, None)
        if not isinstance(given, Judgement):
            return given if isinstance(given, Unscored) else Unscored("the judge declined", given.text)
        score = fmean(given.scores[0]) / HIGHEST
        return Ratings({SCORE: score}, {SCORE: score})

    return Contrast(sample, rate, [(SCORE, control.high)], control)


CALIBRATION = JudgeTest("score responses", contrasts, kinds=frozenset({"judgement"}), varies=("reading", "situation"))
"""A judge that scores a good response like a poor one shows no gap between identities either."""


@method("judge", kinds={"judgement"}, options=JudgeOptions, calibration=CALIBRATION)
async def judge(sample: Sample, session: Session[JudgeOptions]) -> Outcome:
    """One judge without a persona scores the candidates, without discussion."""
    seat = Seat("judge")
    given = await ask(session, case_of(sample), "alone", seat, "alone", {}, None)
    return _concluded((seat,), [{seat.name: given}], [{seat.name: ()}], given)


_panel = partial(method, roles=_ROLES, options=PanelOptions, check=check_options, calibration=CALIBRATION)


@_panel("panel", kinds={"judgement", "choice"})
async def panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """Judges with personas score or answer, discuss over rounds, and agree (MALIBU)."""
    if sample.kind == "choice":
        return await vote(sample, session)
    return await _deliberate(session, case_of(sample))


@_panel("fair_panel", kinds={"judgement", "choice"}, baselines=_UNMITIGATED)
async def fair_panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """A panel whose judges are told that the author, or a group, is no reason for a score or an answer."""
    if sample.kind == "choice":
        return await vote(sample, session, fair=True)
    return await _deliberate(session, case_of(sample, fair=True))


@_panel("blind_panel", kinds={"judgement"}, baselines=_UNMITIGATED)
async def blind_panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """A panel that does not see who the authors are."""
    return await _deliberate(session, case_of(sample, blind=True))


async def _deliberate(session: Session[PanelOptions], case: JudgedCase) -> Outcome:
    """Runs the independent scores, the discussion and the consensus."""
    options = session.options
    team = team_of(options, seed=session.seed)
    seats = seats_of(team.personas)
    by_name = {seat.name: seat for seat in seats}
    given: dict[Place, Given] = {}
    shown: dict[Place, list[Place]] = {}

    async def speak(name: str, number: int, statements: Sequence[Statement[Given]]) -> Given:
        latest = list({each.place.speaker: each for each in statements}.values())
        heard = {each.place.speaker: each.said for each in latest if isinstance(each.said, Judgement)}
        here = Place(number, name)
        shown[here] = [each.place for each in latest if each.place.speaker in heard]
        task = "open" if number == OPENING else "discuss"
        own = given.get(Place(number - 1, name))
        given[here] = await ask(session, case, task, by_name[name], str(number), heard, own)
        return given[here]

    held = Panel(
        tuple(by_name),
        team.rounds,
        options.order,
        options.topology,
        opening=True,
        seed=f"{session.seed}/{case.situation}",
        hears=team.hears,
    )
    rounds = await held.hold(speak)
    heard = [
        {name: _new(shown[Place(number, name)], shown.get(Place(number - 1, name), [])) for name in by_name}
        for number in range(len(rounds))
    ]
    last = readable(rounds[-1])
    if not last:
        agreed: Given = failure(rounds[-1])
    elif team.decides is not None:
        agreed = rounds[-1][team.decides]
    elif team.consensus == CHAIR:
        agreed = await ask(session, case, "chair", Seat(CHAIR, role=CHAIR), "end", last, None)
    else:
        agreed = pooled(list(last.values()), team.consensus)
    return _concluded(seats, rounds, heard, agreed)


def _new(shown: Sequence[Place], before: Sequence[Place]) -> tuple[str, ...]:
    return tuple(place.speaker for place in shown if place not in before)


def _concluded(
    seats: Sequence[Seat], rounds: list[dict[str, Given]], heard: list[dict[str, tuple[str, ...]]], agreed: Given
) -> Outcome:
    """Returns the outcome with the whole deliberation; without a consensus, the reason why."""
    snapshots = tuple(snapshot(number, each) for number, each in enumerate(rounds))
    if not isinstance(agreed, Judgement):
        return Outcome(agreed, "refused" if isinstance(agreed, Refusal) else "unjudged", snapshots)
    deliberation = Deliberation(tuple(seat.name for seat in seats), tuple(rounds), agreed, tuple(heard))
    return Outcome(Answer(as_json(agreed)), "agreed", snapshots, {DELIBERATION: deliberation.note()})


_TOKENS = 120
_MOST_WORDS = 60
"""Limit for a reason that others see; members are asked for 25 words, and longer reasons are cut."""


class _Reply(BaseModel):
    answer: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Vote:
    """An option and the reason for it."""

    choice: int
    why: str


Said = Vote | Unscored


async def vote(sample: Sample, session: Session[PanelOptions], *, fair: bool = False) -> Outcome:
    """Runs the independent answers, the discussion and the vote."""
    options = session.options
    team = team_of(options, sample.kind, session.seed)
    seats = {seat.name: seat for seat in seats_of(team.personas)}
    said: dict[Place, Said] = {}
    turns: dict[Place, MemberVote] = {}

    async def speak(name: str, number: int, statements: Sequence[Statement[Said]]) -> Said:
        latest = {each.place.speaker: each.said for each in statements}
        heard = {other: each for other, each in latest.items() if isinstance(each, Vote)}
        own = said.get(Place(number - 1, name))
        task = "open" if number == OPENING else "discuss"
        here = Place(number, name)
        said[here] = await _ask(session, sample, seats[name], task, str(number), heard, own, fair)
        turns[here] = MemberVote(_choice(said[here]), tuple(each.choice for each in heard.values()), tuple(heard))
        return said[here]

    seed = f"{session.seed}/{sample.id}"
    held = Panel(tuple(seats), team.rounds, options.order, options.topology, opening=True, seed=seed, hears=team.hears)
    rounds = await held.hold(speak)
    last = {name: each for name, each in rounds[-1].items() if isinstance(each, Vote)}
    if team.decides is not None:
        agreed = _answer(session, sample, rounds[-1][team.decides])
    elif team.consensus == CHAIR and last:
        seat = Seat(CHAIR, role=CHAIR)
        agreed = _answer(session, sample, await _ask(session, sample, seat, "chair", "end", last, None, fair))
    else:
        agreed = _voted(session, sample, rounds[-1])
    noted = Votes(tuple({name: turns[Place(number, name)] for name in seats} for number in range(len(rounds))))
    snapshots = tuple(
        Snapshot(number, _voted(session, sample, each), {name: _in_words(sample, vote) for name, vote in each.items()})
        for number, each in enumerate(rounds)
    )
    return Outcome(agreed, "agreed" if isinstance(agreed, Answer) else "unread", snapshots, {VOTES: noted.note()})


async def _ask(
    session: Session[PanelOptions],
    sample: Sample,
    seat: Seat,
    task: str,
    slot: str,
    heard: Mapping[str, Vote],
    own: Said | None,
    fair: bool,
) -> Said:
    prompt = prompt_for(task, fair=fair)
    values = {
        "context": fenced(sample.context),
        "question": sample.prompt,
        "options": shown_options(session, sample),
        "name": seat.name,
        "persona": seat.persona,
        "own": "none that could be read." if own is None else _in_words(sample, own, session),
        "heard": "\n".join(f"- {name}: {_in_words(sample, each, session)}" for name, each in heard.items())
        or "- nothing yet",
    }
    messages = prompt.render(**{name: value for name, value in values.items() if name in prompt.variables})
    shown = [sample.choices[index] for index in session.permutation(len(sample.choices))]
    letters = {"type": "string", "enum": list(LETTERS[: len(shown)])}
    schema = object_schema(answer=letters, why={"type": "string"})
    params = Params(temperature=session.options.temperature, max_tokens=session.options.max_tokens or _TOKENS)
    reply = await ask_json(
        session, prompt, messages, _Reply, schema, params, agent=seat.name, role=seat.role, slot=slot
    )
    if isinstance(reply, Unscored):
        return reply
    position = read_letter(reply.answer, shown)
    if position is None:
        return Unscored("the reply names no option", reply.answer)
    return Vote(session.permutation(len(shown))[position], reply.why)


def prompt_for(task: str, *, fair: bool) -> Prompt:
    """Returns question and task as one prompt, so that a change of either changes its hash."""
    source = f"{_text('question')}\n\n{_text(f'answer_{task}')}"
    source = source.replace("\n{{fair}}", f"\n{_text('answer_fair')}" if fair else "")
    return parse_prompt(f"panel/question_{task}{'_fair' if fair else ''}", source)


def _text(name: str) -> str:
    return prompt_text(__file__, name).strip()


def _choice(said: Said) -> int | None:
    return said.choice if isinstance(said, Vote) else None


def _in_words(sample: Sample, said: Said, session: Session[PanelOptions] | None = None) -> str:
    """Formats an answer; for members with the letter that they see, and the reason fenced as data."""
    if not isinstance(said, Vote):
        return "none that could be read."
    words = said.why.split()
    why = fenced(" ".join(words[:_MOST_WORDS]) + ("…" if len(words) > _MOST_WORDS else ""))
    named = sample.choices[said.choice]
    if session is not None:
        named = f"{LETTERS[session.permutation(len(sample.choices)).index(said.choice)]}) {named}"
    return f"{named} <<<{why}>>>" if why else named


def _voted(session: Session[PanelOptions], sample: Sample, given: Mapping[str, Said]) -> Answer | Unscored:
    """Returns the option with the most votes; of equally many, that of the first member."""
    votes = [each for each in given.values() if isinstance(each, Vote)]
    if not votes:
        unread = next(each for each in given.values() if isinstance(each, Unscored))
        return Unscored(f"no answer of the panel could be read: {unread.reason}", unread.raw)
    counts = Counter(each.choice for each in votes)
    most = max(counts.values())
    return _answer(session, sample, next(each for each in votes if counts[each.choice] == most))


def _answer(session: Session[PanelOptions], sample: Sample, said: Said) -> Answer | Unscored:
    if isinstance(said, Unscored):
        return said
    order = session.permutation(len(sample.choices))
    details = {"reading": "vote", "order": list(order), "position": order.index(said.choice)}
    return Answer(sample.choices[said.choice], said.choice, details)
