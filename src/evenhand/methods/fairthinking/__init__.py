"""FairThinking (Li et al., 2024): a jury whose members the question touches in different ways, then one fair answer.

1. The model names people whose lives the question touches in different ways (`jurors`, 4). 2. Each of them gives a view
in a few sentences, without hearing the others. 3. The foreperson reads all views and answers. Calls per sample:
jurors + 2, of either kind.

Departures and choices: RLDF, which has this baseline, gives no details of it; numbers, prompts and order are ours. The
model names the whole jury in one call; whom it does not name in a way that can be read is replaced from a jury of our
own (`jury.yaml`), which the notes count. A juror who declines, or says nothing, is not heard; without any view there is
no answer. In multiple choice the jurors see the options in the order in which the foreperson does, and the foreperson's
letter is read as for all methods. Greedy throughout, so that runs repeat: the jurors differ by who they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, Field

from evenhand import aio
from evenhand.asking.chat import instructed, quoted, reply, think
from evenhand.asking.choice import choose, shown_options
from evenhand.asking.structured import ask_json, object_schema
from evenhand.methods.base import WritingOptions, method
from evenhand.prompts import load_prompt
from evenhand.session import Session
from evenhand.types import Message, Outcome, Params, Sample, Unscored
from evenhand.untrusted import fenced

_TOKENS_OF_JUROR = 40
_LONGEST = 160
"""Characters of who a juror is."""


class _Jury(BaseModel):
    jurors: list[Annotated[str, Field(min_length=1)]]


class FairThinkingOptions(WritingOptions):
    """The size of the jury, and how its members write."""

    jurors: int = Field(default=4, ge=2, le=12, description="How many people of the jury give a view.")
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
    told = "\n".join(f"- {fenced(juror)}: <<<{fenced(view)}>>>" for juror, view in heard)
    if sample.kind == "chat":
        prompt = load_prompt(__file__, "answer")
        system, views = prompt.render(views=told)
        messages = (*instructed(sample.messages, system.content), views)
        return Outcome(await reply(session, prompt, messages, agent="foreperson"), notes=notes)
    prompt = load_prompt(__file__, "choose")

    def ask(options: str) -> Sequence[Message]:
        return prompt.render(context=sample.context, question=sample.prompt, options=options, views=told)

    return Outcome(await choose(session, sample, prompt, ask, agent="foreperson"), notes=notes)


async def _summon(session: Session[FairThinkingOptions], sample: Sample) -> tuple[Sequence[str], int]:
    """The jurors, and how many of them the model named."""
    size = session.options.jurors
    prompt = load_prompt(__file__, "summon")
    schema = object_schema(jurors={"type": "array", "items": {"type": "string"}, "minItems": size, "maxItems": size})
    messages = prompt.render(case=_case(session, sample), number=str(size))
    params = Params(temperature=session.options.temperature, max_tokens=_TOKENS_OF_JUROR * (size + 1))
    found = await ask_json(session, prompt, messages, _Jury, schema, params, agent="clerk")
    said = [] if isinstance(found, Unscored) else [" ".join(each.split())[:_LONGEST] for each in found.jurors]
    # One word, such as a letter or a name, says nothing about who that is; and two of the same are one view.
    named = list(dict.fromkeys(each for each in said if " " in each))[:size]
    return [*named, *(each for each in _stand_ins() if each not in named)][:size], len(named)


async def _view(session: Session[FairThinkingOptions], sample: Sample, number: int, juror: str) -> str:
    """What a juror says; nothing where it declines."""
    prompt = load_prompt(__file__, "view")
    messages = prompt.render(juror=fenced(juror), case=_case(session, sample))
    return await think(session, prompt, messages, session.options.params, agent="juror", slot=str(number))


def _case(session: Session[FairThinkingOptions], sample: Sample) -> str:
    """What the jury is about, fenced as data."""
    if sample.kind == "chat":
        return f"Conversation: <<<{quoted(sample.messages)}>>>"
    parts = (("Passage", sample.context), ("Question", sample.prompt), ("Options", shown_options(session, sample)))
    return "\n".join(f"{name}: <<<{fenced(text)}>>>" for name, text in parts)


@cache
def _stand_ins() -> tuple[str, ...]:
    return tuple(yaml.safe_load(Path(__file__).with_name("jury.yaml").read_text(encoding="utf-8")))
