"""A panel on a multiple-choice question: its members answer alone, discuss over rounds, and vote.

`panel` and `fair_panel` do this for samples of the kind `choice`, with the options that they have for scores:
1. Every member names an option and says why, without hearing the others.
2. In each of `rounds` rounds every member reads the latest answers of those whom it hears, and answers again.
3. The option with the most votes of the last round wins. Of equally many, that of the first member in the list counts,
   since every question needs an answer. With `consensus=chair`, a chair answers who reads the last round.

All members see the options in one order. A reply that cannot be read after one retry is no vote, and nobody hears it.
Benchmarks with known answers measure from the votes what the discussion did (`benchmarks.votes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from evenhand.asking.choice import shown_options
from evenhand.asking.panel import OPENING, Panel, Place, Statement
from evenhand.asking.reply import ask_json, object_schema
from evenhand.core.prompts import Prompt, parse_prompt, prompt_text
from evenhand.core.types import Answer, Outcome, Params, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.methods.panel.judges import CHAIR, PanelOptions, Seat, seats_of, team_of
from evenhand.panels import VOTES, MemberVote, Votes
from evenhand.reading.text import LETTERS, read_letter
from evenhand.session import Session

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
