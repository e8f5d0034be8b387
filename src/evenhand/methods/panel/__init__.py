"""MALIBU's judges (Mirza et al.): one judge, or a panel with personas that scores, discusses and agrees.

1. Every judge scores the candidates on its own: creativity, accuracy, efficiency and reliability, 0–10; of two
candidates it names the winner as well. 2. In each of `rounds` rounds every judge reads what it hears from others, says
why it thinks as it does and gives its scores again, in one call. 3. The consensus is the mean of the last scores.

Departures and choices: the paper leaves personas, rounds, order and the rule of consensus open. Here they are options:
four professional points of view without any demographic (`personas.yaml`, or a file of your own), two rounds, in turn,
everyone hearing everyone (`order`, `topology`), the mean (`consensus`: `median`, or a `chair` who reads the last
statements). A judge is shown its own last scores and the latest words of each judge that it hears, not all that was
ever said. Shuffled orders depend on the situation alone, so that all identities are judged in the same order. Scores
come before reasons in a reply, and are expected values where the model gives logprobs; others hear the numbers as
written. The author is said in a sentence after the text, so that prompt caches serve all identities; the paper's tag
before it is the benchmark's form `tag`. Judges are asked at temperature 0, so that runs repeat. A reply that cannot be
read, after it was asked for once more, is none: the judge's earlier scores do not stand in for it, the others hear
nothing of it, and the consensus is that of the rest. A judge may have a model of its own (roles `judge1` …).

`fair_panel` is told that the author is no reason for a score; `blind_panel` is not told the author. The paper claims
such mitigation and does not measure it.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.asking.panel import OPENING, Panel, Place, Statement
from evenhand.benchmarks.judgement import DELIBERATION, Deliberation, Given, Judgement
from evenhand.methods.base import method
from evenhand.methods.panel.consensus import failure, pooled, readable, snapshot, told
from evenhand.methods.panel.judges import CHAIR, JUDGE_ROLES, Case, Seat, ask, case_of, seats_of
from evenhand.methods.panel.options import JudgeOptions, PanelOptions, check_options, personas_for
from evenhand.session import BASE, Session
from evenhand.types import Answer, Outcome, Refusal, Sample

_ROLES = (BASE, *JUDGE_ROLES, CHAIR)
_UNMITIGATED = ("panel", "judge")


@method("judge", kinds={"judgement"}, options=JudgeOptions)
async def judge(sample: Sample, session: Session[JudgeOptions]) -> Outcome:
    """One judge without a persona scores the candidates, and that is that."""
    seat = Seat("judge")
    given = await ask(session, case_of(sample), "alone", seat, "alone", {}, None)
    return _concluded((seat,), [{seat.name: given}], [{seat.name: ()}], given)


@method("panel", kinds={"judgement"}, roles=_ROLES, options=PanelOptions, check=check_options)
async def panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """Judges with personas score the candidates, discuss over rounds, and agree (MALIBU)."""
    return await _deliberate(session, case_of(sample))


@method(
    "fair_panel", kinds={"judgement"}, roles=_ROLES, options=PanelOptions, check=check_options, baselines=_UNMITIGATED
)
async def fair_panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """A panel whose judges are told that the author is no reason for a score."""
    return await _deliberate(session, case_of(sample, fair=True))


@method(
    "blind_panel", kinds={"judgement"}, roles=_ROLES, options=PanelOptions, check=check_options, baselines=_UNMITIGATED
)
async def blind_panel(sample: Sample, session: Session[PanelOptions]) -> Outcome:
    """A panel that is not told who the authors are."""
    return await _deliberate(session, case_of(sample, blind=True))


async def _deliberate(session: Session[PanelOptions], case: Case) -> Outcome:
    """Independent scores, the discussion, and the consensus."""
    options = session.options
    seats = seats_of(personas_for(options))
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
        options.rounds,
        options.order,
        options.topology,
        opening=True,
        seed=f"{session.seed}/{case.situation}",
    )
    rounds = await held.hold(speak)
    heard = [
        {name: _new(shown[Place(number, name)], shown.get(Place(number - 1, name), [])) for name in by_name}
        for number in range(len(rounds))
    ]
    last = readable(rounds[-1])
    if not last:
        agreed: Given = failure(rounds[-1])
    elif options.consensus == CHAIR:
        agreed = await ask(session, case, "chair", Seat(CHAIR, role=CHAIR), "end", last, None)
    else:
        agreed = pooled(list(last.values()), options.consensus)
    return _concluded(seats, rounds, heard, agreed)


def _new(shown: Sequence[Place], before: Sequence[Place]) -> tuple[str, ...]:
    return tuple(place.speaker for place in shown if place not in before)


def _concluded(
    seats: Sequence[Seat], rounds: list[dict[str, Given]], heard: list[dict[str, tuple[str, ...]]], agreed: Given
) -> Outcome:
    """The outcome with its story; without a consensus, why there is none."""
    snapshots = tuple(snapshot(number, each) for number, each in enumerate(rounds))
    if not isinstance(agreed, Judgement):
        return Outcome(agreed, "refused" if isinstance(agreed, Refusal) else "unjudged", snapshots)
    deliberation = Deliberation(tuple(seat.name for seat in seats), tuple(rounds), agreed, tuple(heard))
    return Outcome(Answer(told(agreed)), "agreed", snapshots, {DELIBERATION: deliberation.note()})
