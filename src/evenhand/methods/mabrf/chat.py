"""MABRF in a conversation: judges and rephrases the reasoning, then answers from it.

There is no passage: the judge rates whether the reasoning assumes things about people that nobody has said. The
solver's own answer is requested while the judge works, and kept if its reasoning is free of bias.
"""

from __future__ import annotations

from functools import partial

from evenhand.asking.chat import quoted, reply, think
from evenhand.asking.evidence import Evidence
from evenhand.core import aio
from evenhand.core.errors import ModelError
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Outcome, Result, Sample, Snapshot, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.judge import judge
from evenhand.methods.mabrf.agents import REPHRASER, SOLVER, TERMINATOR, Judgement, judged, rubric
from evenhand.methods.mabrf.options import MabrfOptions
from evenhand.methods.mabrf.versions import Version, concluded, improve, kept_of
from evenhand.session import Session

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
) -> Judgement | Unscored:
    """Rates a reasoning. Only bias counts: what a conversation is about need not have been told in it."""
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
