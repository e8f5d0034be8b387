"""FairThinking (Li et al., 2024): a jury of people affected in different ways, then one fair answer.

1. The model names people whom the question affects in different ways (`jurors`, 4).
2. Each juror gives a view in a few sentences, without hearing the others.
3. The foreperson reads all views and answers.

This takes jurors + 2 calls per sample, for multiple choice and for conversations.

Departures and choices:
* RLDF uses this baseline without details; the numbers, prompts and order are our own.
* The model names the whole jury in one call. Jurors that cannot be parsed are replaced from our own list (`jury.yaml`);
  the notes count how many the model named.
* A juror who declines or says nothing is skipped. Without any view there is no answer.
* In multiple choice, jurors and foreperson see the options in the same order, and the letter is parsed as in all
  methods.
* Decoding is greedy, so that runs are reproducible; the jurors differ by persona.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from evenhand.asking.chat import instructed, quoted, reply, think
from evenhand.asking.choice import choose, shown_options
from evenhand.asking.reply import ask_json, object_schema
from evenhand.core import aio
from evenhand.core.files import read_yaml
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Outcome, Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.methods.base import WritingOptions, method
from evenhand.session import Session

_TOKENS_OF_JUROR = 40
_LONGEST = 160
"""Maximum number of characters of a juror's description."""


class _Jury(BaseModel):
    jurors: list[Annotated[str, Field(min_length=1)]]


class FairThinkingOptions(WritingOptions):
    jurors: int = Field(default=4, ge=2, le=12, description="Number of jurors.")
    max_tokens: int = Field(default=128, ge=1, le=100_000, description="Maximum number of tokens of a view.")


@method("fairthinking", kinds={"choice", "chat"}, options=FairThinkingOptions)
async def fairthinking(sample: Sample, session: Session[FairThinkingOptions]) -> Outcome:
    """A jury of people whom the question touches gives its views, and a foreperson answers fairly (FairThinking)."""
    jury, named = await _summon(session, sample)
    views = await aio.all_of(_view(session, sample, number, juror) for number, juror in enumerate(jury, 1))
    heard = [(juror, view) for juror, view in zip(jury, views, strict=True) if view]
    notes = {"jury": list(jury), "named": named, "views": [view for _, view in heard]}
    if not heard:
        return Outcome(Unscored("no juror gave a view"), "no_views", notes=notes)
    quoted_views = "\n".join(f"- {fenced(juror)}: <<<{fenced(view)}>>>" for juror, view in heard)
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "answer")
        system, views = prompt.render(views=quoted_views)
        messages = (*instructed(sample.messages, system.content), views)
        return Outcome(await reply(session, prompt, messages, agent="foreperson"), notes=notes)
    prompt = load_prompt(__file__, "choose")

    def ask(options: str) -> Sequence[Message]:
        return prompt.render(context=sample.context, question=sample.prompt, options=options, views=quoted_views)

    return Outcome(await choose(session, sample, prompt, ask, agent="foreperson"), notes=notes)


async def _summon(session: Session[FairThinkingOptions], sample: Sample) -> tuple[Sequence[str], int]:
    """Returns the jurors and how many of them the model named."""
    size = session.options.jurors
    prompt = load_prompt(__file__, "summon")
    schema = object_schema(jurors={"type": "array", "items": {"type": "string"}, "minItems": size, "maxItems": size})
    messages = prompt.render(case=_case(session, sample), number=str(size))
    params = Params(temperature=session.options.temperature, max_tokens=_TOKENS_OF_JUROR * (size + 1))
    reply = await ask_json(session, prompt, messages, _Jury, schema, params, agent="clerk")
    said = [] if isinstance(reply, Unscored) else [" ".join(each.split())[:_LONGEST] for each in reply.jurors]
    # A single word, such as a letter or a name, does not describe a person; duplicates would repeat one view.
    named = list(dict.fromkeys(each for each in said if " " in each))[:size]
    return [*named, *(each for each in _stand_ins() if each not in named)][:size], len(named)


async def _view(session: Session[FairThinkingOptions], sample: Sample, number: int, juror: str) -> str:
    """Returns a juror's view; empty if the juror declines."""
    prompt = load_prompt(__file__, "view")
    messages = prompt.render(juror=fenced(juror), case=_case(session, sample))
    return await think(session, prompt, messages, session.options.params, agent="juror", slot=str(number))


def _case(session: Session[FairThinkingOptions], sample: Sample) -> str:
    """Returns the case for the jury, fenced as data."""
    if sample.kind == "chat":
        return f"Conversation: <<<{quoted(sample.messages)}>>>"
    parts = (("Passage", sample.context), ("Question", sample.prompt), ("Options", shown_options(session, sample)))
    return "\n".join(f"{name}: <<<{fenced(text)}>>>" for name, text in parts)


@cache
def _stand_ins() -> tuple[str, ...]:
    return tuple(read_yaml(Path(__file__).with_name("jury.yaml")))
