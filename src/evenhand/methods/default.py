"""The plain model: the question as it is, nothing added. Every comparison starts here."""

from __future__ import annotations

from evenhand.agents.answer import answer
from evenhand.agents.chat import answers_in, asked, is_live
from evenhand.agents.reply import reply
from evenhand.agents.respond import respond
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("default", kinds={"choice", "completion", "answer", "chat"})
async def default(sample: Sample, session: Session) -> Outcome:
    """The model as it is: one question, with its passage where it has one, no mitigation."""
    if sample.kind == "answer":
        return Outcome(await answer(session, sample, load_prompt(__file__, "default_answer")))
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "default_chat")
        if is_live(sample):
            return Outcome((await answers_in(session, sample, prompt, asked(sample)))[0])
        return Outcome(await reply(session, prompt, prompt.render(question=sample.prompt)))
    choice, completion = load_prompt(__file__, "default"), load_prompt(__file__, "default_completion")
    return await respond(session, sample, choice=choice, completion=completion)
