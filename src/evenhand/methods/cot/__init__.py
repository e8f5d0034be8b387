"""Zero-shot chain of thought (Kojima et al., 2022): reason first, then answer from the reasoning.

Two calls: free reasoning, then the letter in the same conversation, parsed as in all methods. The reasoning sees the
options in the same shuffled order as the question that follows. Conversations are answered in free text. If the model
writes no reasoning, it is asked for a plain answer and `stop` is `no_reasoning`.
"""

from __future__ import annotations

from evenhand.asking.chat import reply, think
from evenhand.asking.choice import deliberate
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Outcome, Sample
from evenhand.methods.base import WritingOptions, method
from evenhand.session import Session


@method("cot", kinds={"choice", "chat"}, options=WritingOptions)
async def cot(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    """Zero-shot chain of thought: reason step by step, then answer."""
    if sample.kind == "chat":
        return await _answer_conversation(sample, session)
    reason, answer = load_prompt(__file__, "reason"), load_prompt(__file__, "answer")
    return await deliberate(session, sample, reason, answer, session.options.params, agent="reasoner", made="reasoning")


async def _answer_conversation(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    reason, answer = load_prompt(__file__, "chat_reason"), load_prompt(__file__, "chat_answer")
    question = (*sample.messages, *reason.render())
    reasoning = await think(session, reason, question, session.options.params, agent="reasoner")
    if not reasoning:
        return Outcome(await reply(session, answer, sample.messages), stop="no_reasoning")
    messages = (*question, Message("assistant", reasoning), *answer.render())
    return Outcome(await reply(session, answer, messages), notes={"reasoning": reasoning})
