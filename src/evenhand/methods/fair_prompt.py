"""An explicit fairness instruction in front of the same question: the cheapest mitigation there is."""

from __future__ import annotations

from evenhand.agents.chat import answers_in, asked, instructed, is_live
from evenhand.agents.reply import reply
from evenhand.agents.respond import respond
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Message, Outcome, Sample


@method("fair_prompt", kinds={"choice", "completion", "chat"})
async def fair_prompt(sample: Sample, session: Session) -> Outcome:
    """One question under an explicit instruction to be fair."""
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "fair_prompt_chat")
        if is_live(sample):
            return Outcome((await answers_in(session, sample, prompt, fair_conversation(sample)))[0])
        return Outcome(await reply(session, prompt, prompt.render(question=sample.prompt)))
    choice, completion = load_prompt(__file__, "fair_prompt"), load_prompt(__file__, "fair_prompt_completion")
    return await respond(session, sample, choice=choice, completion=completion)


def fair_conversation(sample: Sample) -> tuple[Message, ...]:
    """The conversation with the instruction in its system prompt."""
    instruction = next(text for role, text in load_prompt(__file__, "fair_prompt_chat").parts if role == "system")
    return instructed(asked(sample), instruction)
