"""Self-reflection: answer, list one's own assumptions, answer again.

1. The model answers, as `default` does.
2. In the same conversation it lists what it assumed about people, and whether that was stated.
3. It answers again without assumptions that were not stated.

If it lists nothing, the first answer stands and `stop` is `no_assumptions`.
"""

from __future__ import annotations

from evenhand.asking.chat import reply, think
from evenhand.asking.choice import choose, shown_options
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Sample, Snapshot
from evenhand.methods.base import WritingOptions, method
from evenhand.methods.default import plain_prompt
from evenhand.session import Session


@method("reflect", kinds={"choice", "chat"}, options=WritingOptions)
async def reflect(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    """Self-reflection: answer, list one's own assumptions, answer again."""
    chat = sample.kind == "chat"
    question = plain_prompt(sample.kind)
    if chat:
        asked = sample.messages
        first = await reply(session, question, asked)
    else:
        options = shown_options(session, sample)
        asked = question.render(context=sample.context, question=sample.prompt, options=options)
        first = await choose(session, sample, question)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="no_first_answer", snapshots=(before,))
    prompt = load_prompt(__file__, "assumptions")
    asked = (*asked, Message("assistant", first.text), *prompt.render())
    listed = await think(session, prompt, asked, session.options.params, agent="reflector")
    if not listed:
        return Outcome(first, stop="no_assumptions", snapshots=(before,))
    again = load_prompt(__file__, "chat_answer" if chat else "answer")
    said = (*asked, Message("assistant", listed))
    second = (
        await reply(session, again, (*said, *again.render()), agent="reviser")
        if chat
        else await choose(
            session, sample, again, lambda options: (*said, *again.render(options=options)), agent="reviser"
        )
    )
    return Outcome(second, snapshots=(before, Snapshot(1, second)), notes={"assumptions": listed})
