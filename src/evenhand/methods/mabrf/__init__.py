"""MABRF (Roy and Rehman): judges and rephrases the reasoning, optionally with evidence from a search.

1. The solver reasons in steps and answers.
2. The judge rates four kinds of bias, groundedness and relevancy of the reasoning, 1–10, with reasons.
3. While it is biased or not grounded, at most `iterations` times: the search agent gathers evidence, the rephraser
   rewrites the steps, and the judge rates them again.
4. The terminating agent answers from the best reasoning.

In a conversation there is no passage: the judge rates whether the reasoning assumes things about people that nobody has
said. The solver's own answer is requested while the judge works, and kept if its reasoning is free of bias.

Departures and choices:
* A bias that rounds to 1 counts as 1 (`accept` is the threshold), since the rating is the judge's expected value if the
  model gives logprobs. The right threshold depends on the judge; `evenhand judges check MODEL` finds the
  thresholds, which are used where the plan sets neither `accept` nor `grounded` nor `look`. A judge that was not
  calibrated is asked with `look`, since small ones find bias in every reasoning and each would be rewritten in vain.
* Ratings are requested as one digit, 0–9, and reported as 1–10.
* The paper's judge rates one bias with four kinds in mind; ours rates the kinds apart, and the worst counts. A guess
  about a person need not be any of them, so groundedness is rated apart, and must reach `grounded`.
* Facts with a source are not bias: the judge sees those that a reasoning was written with.
* The solver reasons freely; its steps are numbered afterwards. A solver that answers without steps is asked for them.
* The terminating agent sees the reasoning as its own turn of the conversation, as in chain of thought. If the solver's
  own reasoning is the best, its answer is kept without another call.
* The best reasoning is kept: the lowest fault, then the highest relevancy.
* The rephraser sees the passage, so that it can separate facts from guesses.
* Facts from a search may only replace unsupported claims, with title or address of their source.
* An unchanged reasoning ends the loop, since asking again would give the same. So do `patience` rewrites in a row
  that the judge finds no better.
* The last rating is final; nothing is judged twice.
* If the first rating cannot be parsed, there is no outcome; if a later one cannot, the best reasoning so far is used.
* The judge runs at temperature 0, the others at 0.2. The final letter is read from probabilities, as in all methods.
* With `look`, the judge first gives p = P(passage answers the question), before it sees any reasoning. Groundedness is
  p if the reasoning names a person, 1−p if it abstains, and it alone decides. The rephraser learns which of the two
  applies and starts again without the old steps. Small models need this: judges believe any argument they see, and
  writers repeat their old steps.
* `presets.yaml` lists what the paper and its authors' notebooks do otherwise, element by element.
* With `domain`, the judge is told what to look for in the sample's category, which the paper proposes as future work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from evenhand.asking.chat import quoted, reply, think
from evenhand.asking.web import SEARCH, Evidence, SearchAgent, search_agent
from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, RATINGS
from evenhand.core import aio
from evenhand.core.errors import ModelError
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Cut, Message, Outcome, Refusal, Result, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import JUDGE, judge
from evenhand.methods.base import method
from evenhand.methods.mabrf.agents import (
    REPHRASER,
    SOLVER,
    TERMINATOR,
    JudgedReasoning,
    MabrfFirstOptions,
    MabrfOptions,
    Version,
    check_options,
    concluded,
    improve,
    judged,
    kept_of,
    looks,
    p_passage_answers,
    rate_reasoning,
    rephrase,
    rubric,
    solve,
    terminate,
)
from evenhand.methods.mabrf.calibrate import CALIBRATION
from evenhand.session import BASE, Session


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
    first, p, version = start
    versions = [version]
    searcher = _search_agent(session)

    async def rewrite(last: Version) -> tuple[str, Evidence | None]:
        evidence = await searcher.about_reasoning(sample, last.reasoning) if searcher else None
        return await rephrase(session, sample, last.reasoning, last.objection, evidence), evidence

    async def rate(written: str, evidence: Evidence | None) -> JudgedReasoning | Unscored:
        return await rate_reasoning(session, sample, written, p, evidence)

    stop = await improve(session, versions, rewrite, rate)
    best = kept_of(versions, session.options)
    unchanged = best is versions[0] and isinstance(first, Answer) and session.options.terminator == "changed"
    result = first if unchanged else await terminate(session, sample, best.reasoning)
    return concluded(result, stop, first, versions, best, **(searcher.note() if searcher else {}))


@method(
    "mabrf_first",
    kinds={"choice"},
    roles=(BASE, SOLVER, JUDGE),
    options=MabrfFirstOptions,
    calibration=CALIBRATION,
)
async def mabrf_first(sample: Sample, session: Session[MabrfFirstOptions]) -> Outcome:
    """MABRF's solver and judge alone: the model's own reasoning is rated and not rewritten."""
    start = await _start(sample, session)
    if isinstance(start, Outcome):
        return start
    first, _, version = start
    notes = version.notes()
    return Outcome(first, "rated", (Snapshot(0, first, notes),), {**notes, FIRST_RATINGS: notes[RATINGS]})


async def _start(sample: Sample, session: Session[MabrfFirstOptions]) -> tuple[Result, float | None, Version] | Outcome:
    """Returns the solver's answer, P(passage answers) and the rated reasoning, or the outcome if one is missing."""
    solution, p = await aio.both(solve(session, sample), _passage_answers(session, sample))
    if isinstance(solution.result, Refusal):
        return Outcome(solution.result, "refused")
    if not solution.reasoning:
        cut = isinstance(solution.result, Cut)
        return Outcome(solution.result if cut else Unscored("the solver gave no reasoning"), "no_reasoning")
    rated = p if isinstance(p, Unscored) else await rate_reasoning(session, sample, solution.reasoning, p)
    if isinstance(rated, Unscored):
        snapshot = Snapshot(0, solution.result, {"reasoning": solution.reasoning})
        unjudged = replace(rated, reason=f"the reasoning could not be judged: {rated.reason}")
        return Outcome(unjudged, "unjudged", (snapshot,))
    assert not isinstance(p, Unscored)
    return solution.result, p, Version(solution.reasoning, rated)


async def _passage_answers(session: Session[MabrfFirstOptions], sample: Sample) -> float | Unscored | None:
    return await p_passage_answers(session, sample) if looks(session, sample) else None


def _search_agent(session: Session[MabrfOptions]) -> SearchAgent | None:
    options = session.options
    if not options.search:
        return None
    return search_agent(session, options.search, queries=options.queries, results=options.results, pages=options.pages)


_NO_OBJECTION = "it rests on something that nobody has said"


async def answer_fairly(sample: Sample, session: Session[MabrfOptions]) -> Outcome:
    """Reasons, answers and judges; rephrases while there is bias; answers from the best reasoning."""
    solve = load_prompt(__file__, "chat_solve")
    question = (*sample.messages, *solve.render())
    steps = await think(session, solve, question, session.options.params, agent="solver", role=SOLVER)
    if not steps:
        answer = load_prompt(__file__, "chat_answer")
        return Outcome(await reply(session, answer, sample.messages, agent=SOLVER, role=SOLVER), "no_reasoning")
    rate = partial(_rate, session, sample)
    first, rated = await aio.both(_answer(session, sample, steps, SOLVER), rate(steps))
    if isinstance(rated, Unscored):
        notes = {"reasoning": steps, "unjudged": rated.reason}
        return Outcome(first, "unjudged", (Snapshot(0, first, notes),), notes)
    versions = [Version(steps, rated)]
    stop = await improve(session, versions, partial(_rephrase, session, sample), rate)
    best = kept_of(versions, session.options)
    unchanged = best is versions[0] and session.options.terminator == "changed"
    result = first if unchanged else await _answer(session, sample, best.reasoning, TERMINATOR)
    return concluded(result, stop, first, versions, best)


async def _answer(session: Session, sample: Sample, steps: str, role: str) -> Result:
    """Answers after the reasoning, which is in the conversation as the model's own turn."""
    solve, answer = load_prompt(__file__, "chat_solve"), load_prompt(__file__, "chat_answer")
    messages = (*sample.messages, *solve.render(), Message("assistant", steps), *answer.render())
    return await reply(session, answer, messages, agent=role, role=role)


async def _rate(
    session: Session[MabrfOptions], sample: Sample, reasoning: str, _evidence: Evidence | None = None
) -> JudgedReasoning | Unscored:
    """Rates a reasoning by bias alone: a conversation may be about things that were not mentioned in it."""
    asked = rubric("chat_judge")
    messages = asked.prompt.render(conversation=quoted(sample.messages), reasoning=fenced(reasoning))
    try:
        ratings = await judge(session, asked, messages, agent="judge")
    except ModelError as error:  # a failing judge must not fail the answer
        return Unscored(f"the judge failed: {error}")
    return ratings if isinstance(ratings, Unscored) else judged(ratings, session.options.accept, None)


async def _rephrase(session: Session[MabrfOptions], sample: Sample, last: Version) -> tuple[str, None]:
    """Rewrites the reasoning without what the judge objects to, without evidence; empty if the model gives none."""
    prompt = load_prompt(__file__, "chat_rephrase")
    messages = prompt.render(
        conversation=quoted(sample.messages),
        reasoning=fenced(last.reasoning),
        objection=fenced(last.objection) or _NO_OBJECTION,
    )
    written = await think(session, prompt, messages, session.options.params, agent="rephraser", role=REPHRASER)
    return written.strip(" \t\n<>"), None
