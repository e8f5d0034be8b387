"""MABRF (Roy and Rehman): judge and rephrase the reasoning, with evidence from a search where one is given.

1. The solver reasons in steps and answers. 2. The judge rates the reasoning's bias and relevancy, 1–10, with
reasons. 3. While the bias is above 1, at most `iterations` times: the search agent gathers evidence, the rephraser
rewrites the steps, the judge rates them again. 4. The terminating agent answers from the best reasoning.

Departures and choices: a bias of 1 is one that rounds to 1 (`accept` is the bound), since the rating is the judge's
expected value where the model gives logprobs; the right bound depends on the judge, and `evenhand doctor MODEL
--judge` finds it. Ratings are asked for as one digit, 0–9, and told as 1–10. The solver thinks freely and its steps
are numbered afterwards; one that answers without any is asked for them. The terminating agent has the reasoning as
its own turn of the conversation, and keeps to it as chain of thought does; where the solver's own reasoning is the
best, its answer stands and nobody is asked again. The best reasoning is kept: the lowest bias, then the highest
relevancy. The rephraser sees the passage, to tell what is said from what is guessed. Facts from outside may only
replace unsupported claims, with their source; they reach the rephraser alone. A reasoning that comes back unchanged
ends the loop, as asking again would bring the same. The last rating is the final one; nothing is judged twice. Where
the first judgement cannot be read, there is no outcome; where a later one cannot, the best so far stands. Judges are
asked at temperature 0, others at 0.2, and the final letter is read from its probabilities, as for all methods. With
`look`, the judge first says, before it has seen any reasoning, how likely it is that the passage tells what is asked;
a reasoning that names somebody is then as biased as that is unlikely, and one that leaves the question open as it is
likely. The rephraser is told which of the two it was and starts afresh, without the old steps. Small judges need
this: shown an argument, they believe it, and shown their old steps, small writers repeat them. With `domain`, the
judge is told what to look out for in the sample's category, which the paper proposes as future work. `chat.py` is MABRF
in a conversation.
"""

from __future__ import annotations

from evenhand import aio
from evenhand.asking.evidence import SEARCH, Evidence, SearchAgent, search_agent
from evenhand.asking.judge import JUDGE
from evenhand.benchmarks.bbq.ratings import FIRST_RATINGS, RATINGS
from evenhand.methods.base import method
from evenhand.methods.mabrf.agents import (
    REPHRASER,
    SOLVER,
    TERMINATOR,
    look,
    rate_reasoning,
    rephrase,
    solve,
    terminate,
)
from evenhand.methods.mabrf.calibrate import CALIBRATION
from evenhand.methods.mabrf.chat import answer_fairly
from evenhand.methods.mabrf.options import MabrfFirstOptions, MabrfOptions, check_options
from evenhand.methods.mabrf.versions import Version, best_of, concluded, improve
from evenhand.session import BASE, Session
from evenhand.types import Answer, Outcome, Refusal, Result, Sample, Snapshot, Unscored


@method(
    "mabrf",
    kinds={"choice", "chat"},
    roles=(BASE, SOLVER, JUDGE, SEARCH, REPHRASER, TERMINATOR),
    options=MabrfOptions,
    check=check_options,
    calibration=CALIBRATION,
)
async def mabrf(sample: Sample, session: Session[MabrfOptions]) -> Outcome:
    """Judge and rephrase the reasoning until it is free of bias, then answer from it (MABRF)."""
    if sample.kind == "chat":
        return await answer_fairly(sample, session)
    start = await _start(sample, session)
    if isinstance(start, Outcome):
        return start
    first, told, version = start
    versions = [version]
    searcher = _search_agent(session)

    async def rewrite(last: Version) -> tuple[str, Evidence | None]:
        evidence = await searcher.about_reasoning(sample, last.reasoning) if searcher else None
        return await rephrase(session, sample, last.reasoning, last.objection, evidence), evidence

    stop = await improve(session, versions, rewrite, lambda written: rate_reasoning(session, sample, written, told))
    best = best_of(versions)
    unchanged = best is versions[0] and isinstance(first, Answer)
    result = first if unchanged else await terminate(session, sample, best.reasoning)
    return concluded(result, stop, first, versions, session.options.accept, **(searcher.note() if searcher else {}))


@method("mabrf_first", kinds={"choice"}, roles=(BASE, SOLVER, JUDGE), options=MabrfFirstOptions)
async def mabrf_first(sample: Sample, session: Session[MabrfFirstOptions]) -> Outcome:
    """MABRF's solver and judge alone: the model's own reasoning, rated and left as it is."""
    start = await _start(sample, session)
    if isinstance(start, Outcome):
        return start
    first, _, version = start
    notes = version.notes(session.options.accept)
    return Outcome(first, "rated", (Snapshot(0, first, notes),), {**notes, FIRST_RATINGS: notes[RATINGS]})


async def _start(sample: Sample, session: Session[MabrfFirstOptions]) -> tuple[Result, float | None, Version] | Outcome:
    """The solver's answer, the judge's look and the rated reasoning; the outcome where there is none of these."""
    solution, told = await aio.both(solve(session, sample), _look(session, sample))
    if isinstance(solution.result, Refusal):
        return Outcome(solution.result, "refused")
    if not solution.reasoning:
        return Outcome(Unscored("the solver gave no reasoning"), "no_reasoning")
    rated = told if isinstance(told, Unscored) else await rate_reasoning(session, sample, solution.reasoning, told)
    if isinstance(rated, Unscored):
        snapshot = Snapshot(0, solution.result, {"reasoning": solution.reasoning})
        reason = f"the reasoning could not be judged: {rated.reason}"
        return Outcome(Unscored(reason, rated.raw), "unjudged", (snapshot,))
    assert not isinstance(told, Unscored)
    return solution.result, told, Version(solution.reasoning, rated)


async def _look(session: Session[MabrfFirstOptions], sample: Sample) -> float | Unscored | None:
    return await look(session, sample) if session.options.look else None


def _search_agent(session: Session[MabrfOptions]) -> SearchAgent | None:
    options = session.options
    if not options.search:
        return None
    return search_agent(session, options.search, results=options.results, pages=options.pages)
