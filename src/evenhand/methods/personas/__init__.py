"""Multi-persona thinking: views of opposed identities and of a neutral one, which criticise each other, then an answer.

1. For every person among the options, the model speaks as somebody of the same group; once more as an observer who
   belongs to none of them. Each gives a view of the question.
2. In every further round each of them sees all views and criticises what rests on prejudice.
3. One call answers, with the last views before it.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from evenhand.asking.chat import think
from evenhand.asking.choice import choose, shown_options
from evenhand.core import aio
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message, Outcome, Sample
from evenhand.core.untrusted import fenced
from evenhand.methods.base import WritingOptions, method
from evenhand.reading.text import abstains, unread
from evenhand.session import Session

NEUTRAL = "an observer who belongs to none of the groups in question and has no stake in the answer"


class PersonasOptions(WritingOptions):
    rounds: int = Field(default=2, ge=1, le=5, description="Rounds of views; from the second on with critiques.")
    max_tokens: int = Field(default=128, ge=1, le=100_000, description="Maximum number of tokens of a view.")


@method("personas", kinds={"choice"}, options=PersonasOptions)
async def personas(sample: Sample, session: Session[PersonasOptions]) -> Outcome:
    """Multi-persona thinking: opposed and neutral views that criticise each other, then one answer."""
    if unscored := unread(f"{sample.context} {sample.prompt}"):
        return Outcome(unscored)
    people = [option for option in sample.choices if not abstains(option)]
    cast = [*(f"somebody of the same group as “{each}”" for each in people), NEUTRAL]
    views: list[str] = []
    for number in range(session.options.rounds):
        shown = {"views": _listed(cast, views)} if views else {}
        prompt = load_prompt(__file__, "critique" if views else "view")
        views = await aio.all_of(
            _speak(sample, session, prompt, persona, shown, f"{number}/{place}") for place, persona in enumerate(cast)
        )
    prompt = load_prompt(__file__, "answer")
    result = await choose(session, sample, prompt, partial(_question, sample, prompt, _listed(cast, views)))
    return Outcome(result, notes={"views": dict(zip(cast, views, strict=True))})


async def _speak(
    sample: Sample,
    session: Session[PersonasOptions],
    prompt: Prompt,
    persona: str,
    shown: dict[str, str],
    slot: str,
) -> str:
    options = shown_options(session, sample)
    messages = prompt.render(persona=persona, context=sample.context, question=sample.prompt, options=options, **shown)
    return await think(session, prompt, messages, session.options.params, agent="persona", slot=slot)


def _question(sample: Sample, prompt: Prompt, views: str, options: str) -> tuple[Message, ...]:
    return prompt.render(context=sample.context, question=sample.prompt, options=options, views=views)


def _listed(cast: list[str], views: list[str]) -> str:
    return "\n".join(f"{who}: <<<{fenced(view)}>>>" for who, view in zip(cast, views, strict=True) if view)
