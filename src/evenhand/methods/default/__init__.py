"""The plain model: the question as it is, nothing added. Every comparison starts here."""

from __future__ import annotations

from evenhand.asking.answer import answer
from evenhand.asking.chat import answers_in, asked, is_live
from evenhand.asking.reply import reply
from evenhand.asking.respond import respond
from evenhand.methods.base import method
from evenhand.prompts import Prompt, load_prompt
from evenhand.session import Session
from evenhand.types import Outcome, Sample


@method("default", kinds={"choice", "completion", "answer", "chat"})
async def default(sample: Sample, session: Session) -> Outcome:
    """The model as it is: one question, with its passage where it has one, no mitigation."""
    if sample.kind == "answer":
        return Outcome(await answer(session, sample, load_prompt(__file__, "answer")))
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "chat")
        if is_live(sample):
            return Outcome((await answers_in(session, sample, prompt, asked(sample)))[0])
        return Outcome(await reply(session, prompt, prompt.render(question=sample.prompt)))
    choice, completion = load_prompt(__file__, "choice"), load_prompt(__file__, "completion")
    return await respond(session, sample, choice=choice, completion=completion)


def plain_prompt(name: str) -> Prompt:
    """The prompt that asks with nothing added, for methods that begin with the model's own answer."""
    return load_prompt(__file__, name)
