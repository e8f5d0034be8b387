"""An explicit fairness instruction in front of the same question: the cheapest mitigation there is."""

from __future__ import annotations

from evenhand.agents.reply import reply
from evenhand.agents.respond import respond
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("fair_prompt", kinds={"choice", "completion", "chat"})
async def fair_prompt(sample: Sample, session: Session) -> Outcome:
    """One question under an explicit instruction to be fair."""
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "fair_prompt_chat")
        return Outcome(await reply(session, prompt, prompt.render(question=sample.prompt)))
    choice, completion = load_prompt(__file__, "fair_prompt"), load_prompt(__file__, "fair_prompt_completion")
    return await respond(session, sample, choice=choice, completion=completion)
