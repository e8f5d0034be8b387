"""The question with an explicit fairness instruction: the cheapest mitigation."""

from __future__ import annotations

from evenhand.asking.act import act
from evenhand.asking.chat import instructed, reply
from evenhand.asking.choice import choose
from evenhand.asking.completion import complete
from evenhand.asking.converse import USER, converse
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message, Outcome, Sample
from evenhand.methods.base import method
from evenhand.session import Session


def fair_question(sample: Sample) -> tuple[Prompt, tuple[Message, ...]]:
    """Returns the conversation with the instruction in its system prompt."""
    prompt = load_prompt(__file__, "chat")
    [system] = prompt.render()
    return prompt, instructed(sample.messages, system.content)


@method(
    "fair_prompt",
    kinds={"choice", "completion", "chat", "task", "conversation"},
    roles=("base", USER),
    streams=fair_question,
)
async def fair_prompt(sample: Sample, session: Session) -> Outcome:
    """One question under an explicit instruction to be fair."""
    if sample.kind in ("task", "conversation"):
        play = act if sample.kind == "task" else converse
        return await play(session, sample, *fair_question(sample))
    prompt = load_prompt(__file__, sample.kind)
    match sample.kind:
        case "chat":
            return Outcome(await reply(session, *fair_question(sample)))
        case "completion":
            return Outcome((await complete(session, sample, prompt))[0])
        case _:
            return Outcome(await choose(session, sample, prompt))
