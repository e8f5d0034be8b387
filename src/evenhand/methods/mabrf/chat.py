"""MABRF in a conversation: the reasoning before an answer is judged and rephrased, then answered from.

There is no passage: the judge asks what the reasoning assumes about people that nobody has said. The solver's own
answer stands where its reasoning is free of bias; it is asked for while the judge reads.
"""

from __future__ import annotations

from evenhand import aio
from evenhand.asking.chat import answers_in, asked, quoted, think
from evenhand.asking.choice import declined
from evenhand.asking.judge import judge
from evenhand.errors import ModelError
from evenhand.methods.mabrf.agents import BIAS, RELEVANCY, REPHRASER, SOLVER, TERMINATOR
from evenhand.methods.mabrf.versions import Version, best_of, concluded
from evenhand.prompts import load_prompt
from evenhand.reading.text import looks_like_refusal, without_thought
from evenhand.scorers.rubric import Ratings, Rubric
from evenhand.session import Session
from evenhand.types import Message, Outcome, Params, Result, Sample, Snapshot, Unscored
from evenhand.untrusted import fenced

_HIGH = 9
_NO_OBJECTION = "it rests on something that nobody has said"


async def answer_fairly(sample: Sample, session: Session) -> Outcome:
    """Think, answer and be judged; rephrase while there is bias; answer from the best reasoning."""
    _, steps = await think(session, sample, load_prompt(__file__, "chat_solve"), agent="solver", role=SOLVER)
    if not steps:
        return Outcome(await _answer(session, sample, None, SOLVER), "no_reasoning")
    first, rated = await aio.both(_answer(session, sample, steps, SOLVER), _rate(session, sample, steps))
    if isinstance(rated, Unscored):
        notes = {"reasoning": steps, "unjudged": rated.reason}
        return Outcome(first, "unjudged", (Snapshot(0, first, notes),), notes)
    versions = [Version(steps, rated)]
    stop = await _improve(sample, session, versions)
    best = best_of(versions)
    result = first if best is versions[0] else await _answer(session, sample, best.reasoning, TERMINATOR)
    return concluded(result, stop, first, versions, float(session.options["accept"]))


async def _improve(sample: Sample, session: Session, versions: list[Version]) -> str:
    accept, iterations = float(session.options["accept"]), int(session.options["iterations"])
    while versions[-1].bias >= accept:
        if len(versions) > iterations:
            return "max_iterations"
        last = versions[-1]
        written = await _rephrase(session, sample, last.reasoning, last.found.texts[f"{BIAS}_reason"])
        if not written:
            return "no_rephrasing"
        if any(written == version.reasoning for version in versions):
            return "unchanged"
        found = await _rate(session, sample, written)
        if isinstance(found, Unscored):
            return "unjudged"
        versions.append(Version(written, found))
    return "debiased"


async def _answer(session: Session, sample: Sample, steps: str | None, role: str) -> Result:
    """The answer after the reasoning, which stands in the conversation as the model's own; the plain one for None."""
    prompt, solve = load_prompt(__file__, "chat_answer"), load_prompt(__file__, "chat_solve")
    thought = () if steps is None else (*solve.render(), Message("assistant", steps), *prompt.render())
    return (await answers_in(session, sample, prompt, (*asked(sample), *thought), agent=role, role=role))[0]


async def _rate(session: Session, sample: Sample, reasoning: str) -> Ratings | Unscored:
    rubric = Rubric(load_prompt(__file__, "chat_judge"), (BIAS, RELEVANCY), high=_HIGH)
    messages = rubric.prompt.render(conversation=quoted(sample), reasoning=fenced(reasoning))
    try:
        return await judge(session, rubric, messages, agent="judge")
    except ModelError as error:  # somebody waits for an answer: it does not fail with its judge
        return Unscored(f"the judge failed: {error}")


async def _rephrase(session: Session, sample: Sample, reasoning: str, objection: str) -> str:
    """The reasoning without what the judge objects to; empty when the model gives none."""
    prompt = load_prompt(__file__, "chat_rephrase")
    messages = prompt.render(
        conversation=quoted(sample), reasoning=fenced(reasoning), objection=fenced(objection) or _NO_OBJECTION
    )
    params = Params(temperature=session.options["temperature"], max_tokens=session.options["max_tokens"])
    completion = (await session.ask(prompt, messages, params, agent="rephraser", role=REPHRASER)).completions[0]
    text = without_thought(completion.text).strip(" \t\n<>")
    return "" if declined(completion) or looks_like_refusal(text) else text
