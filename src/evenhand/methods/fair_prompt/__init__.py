"""An explicit fairness instruction in front of the same question: the cheapest mitigation there is."""

from __future__ import annotations

from evenhand.asking.chat import answers_in, asked, instructed, is_live
from evenhand.asking.reply import reply
from evenhand.asking.respond import respond
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.session import Session
from evenhand.types import Message, Outcome, Sample


@method("fair_prompt", kinds={"choice", "completion", "chat"})
async def fair_prompt(sample: Sample, session: Session) -> Outcome:
    """One question under an explicit instruction to be fair."""
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "chat")
        if is_live(sample):
            return Outcome((await answers_in(session, sample, prompt, fair_conversation(sample)))[0])
        return Outcome(await reply(session, prompt, prompt.render(question=sample.prompt)))
    choice, completion = load_prompt(__file__, "choice"), load_prompt(__file__, "completion")
    return await respond(session, sample, choice=choice, completion=completion)


def fair_conversation(sample: Sample) -> tuple[Message, ...]:
    """The conversation with the instruction in its system prompt."""
    instruction = next(text for role, text in load_prompt(__file__, "chat").parts if role == "system")
    return instructed(asked(sample), instruction)
