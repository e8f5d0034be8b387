"""The plain model: asks the question without any mitigation. This is the baseline of every comparison."""

from __future__ import annotations

from evenhand.asking.act import act
from evenhand.asking.answer import answer
from evenhand.asking.chat import reply
from evenhand.asking.choice import choose, compares, likeliest
from evenhand.asking.completion import complete
from evenhand.asking.converse import USER, converse
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message, Outcome, Sample
from evenhand.methods.base import method
from evenhand.session import Session


def plain_question(sample: Sample) -> tuple[Prompt, tuple[Message, ...]]:
    """Returns the conversation unchanged."""
    return plain_prompt("chat"), sample.messages


@method(
    "default",
    kinds={"choice", "completion", "answer", "chat", "task", "conversation"},
    roles=("base", USER),
    streams=plain_question,
)
async def default(sample: Sample, session: Session) -> Outcome:
    """The model as it is: one question, with its passage where it has one, no mitigation."""
    prompt = load_prompt(__file__, sample.kind)
    match sample.kind:
        case "answer":
            return Outcome(await answer(session, sample, prompt))
        case "chat":
            return Outcome(await reply(session, prompt, sample.messages))
        case "task" | "conversation":
            play = act if sample.kind == "task" else converse
            return await play(session, sample, prompt, sample.messages)
        case "completion":
            return Outcome((await complete(session, sample, prompt, plain=True))[0])
        case _ if compares(session, sample):
            return Outcome(await likeliest(session, sample))
        case _:
            return Outcome(await choose(session, sample, prompt))


def plain_prompt(name: str) -> Prompt:
    """Returns the prompt without mitigation, for methods that begin with the plain model's answer."""
    return load_prompt(__file__, name)
