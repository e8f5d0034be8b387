"""Zero-shot chain of thought (Kojima et al., 2022): reason first, then answer from the reasoning.

Two calls: free reasoning, then the letter in the same conversation, read exactly as the other methods read theirs.
The reasoning sees the options in the same shuffled order as the question that follows. A question without options is
answered in the model's own words.
"""

from __future__ import annotations

from evenhand.asking.chat import is_live, think_and_answer
from evenhand.asking.deliberate import deliberate
from evenhand.asking.reply import think_and_reply
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.session import Session
from evenhand.types import Outcome, Sample


@method("cot", kinds={"choice", "chat"}, max_tokens=256, temperature=0.0)
async def cot(sample: Sample, session: Session) -> Outcome:
    """Zero-shot chain of thought: reason step by step, then answer."""
    if is_live(sample):
        reason, answer = load_prompt(__file__, "live_reason"), load_prompt(__file__, "live_answer")
        return await think_and_answer(session, sample, reason, answer, agent="reasoner")
    if sample.kind == "chat":
        reason, answer = load_prompt(__file__, "chat_reason"), load_prompt(__file__, "chat_answer")
        return await think_and_reply(session, sample, reason, answer, agent="reasoner")
    reason, answer = load_prompt(__file__, "reason"), load_prompt(__file__, "answer")
    return await deliberate(session, sample, reason, answer, agent="reasoner", made="reasoning")
