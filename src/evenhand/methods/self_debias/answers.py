"""Self-debiasing of answers with prompts only (Gallegos et al., 2024), in two turns.

`self_debias_explain`: (1) explain which options rest on invalid assumptions about people; (2) answer.
`self_debias_reprompt`: (1) answer, as `default` does; (2) answer again without bias, having seen the first answer.

Departures:
* The prompts are our own, the options are shuffled per sample, and letters are parsed as in all methods.
* With several orders of the options, the second turn of `reprompt` sees the combined first answer in each of them.
* In a conversation, `reprompt` asks for an answer, then for that answer without bias.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.asking.chat import reply
from evenhand.asking.choice import choose, deliberate
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Outcome, Sample, Snapshot
from evenhand.methods.base import WritingOptions, method
from evenhand.methods.default import plain_prompt
from evenhand.session import Session


@method("self_debias_explain", kinds={"choice"}, options=WritingOptions)
async def self_debias_explain(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    """Self-debiasing by explanation: name the options that rest on invalid assumptions, then answer."""
    explain, answer = load_prompt(__file__, "explain"), load_prompt(__file__, "explain_answer")
    # "I cannot make assumptions about …" is a valid explanation here, not a refusal.
    params = session.options.params
    return await deliberate(
        session, sample, explain, answer, params, agent="explainer", made="explanation", wordy=False
    )


@method("self_debias_reprompt", kinds={"choice", "chat"})
async def self_debias_reprompt(sample: Sample, session: Session) -> Outcome:
    """Self-debiasing by reprompting: answer, then answer again with bias removed."""
    if sample.kind == "chat":
        return await _reprompt_chat(sample, session)
    question, again = plain_prompt("choice"), load_prompt(__file__, "reprompt")
    first = await choose(session, sample, question)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="no_first_answer", snapshots=(before,))

    def ask(options: str) -> Sequence[Message]:
        asked = question.render(context=sample.context, question=sample.prompt, options=options)
        return (*asked, Message("assistant", _as_listed(first.text, options)), *again.render(options=options))

    second = await choose(session, sample, again, ask, agent="reviser")
    return Outcome(second, snapshots=(before, Snapshot(1, second)))


async def _reprompt_chat(sample: Sample, session: Session) -> Outcome:
    question, again = plain_prompt("chat"), load_prompt(__file__, "reprompt_chat")
    first = await reply(session, question, sample.messages)
    before = Snapshot(0, first)
    if not isinstance(first, Answer):
        return Outcome(first, stop="no_first_answer", snapshots=(before,))
    messages = (*sample.messages, Message("assistant", first.text), *again.render())
    second = await reply(session, again, messages, agent="reviser")
    return Outcome(second, snapshots=(before, Snapshot(1, second)))


def _as_listed(text: str, options: str) -> str:
    """Returns an option with the letter under which it is shown."""
    return next((line for line in options.split("\n") if line[3:] == text), text)
