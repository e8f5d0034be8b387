"""Zero-shot chain of thought (Kojima et al., 2022): reason first, then answer from the reasoning.

Two calls: free reasoning, then the letter in the same conversation, read exactly as the other methods read theirs.
The reasoning sees the options in the same shuffled order as the question that follows.
"""

from __future__ import annotations

from evenhand.agents.deliberate import deliberate
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("cot", kinds={"choice"}, max_tokens=256, temperature=0.0)
async def cot(sample: Sample, session: Session) -> Outcome:
    """Zero-shot chain of thought: reason step by step, then answer."""
    reason, answer = load_prompt(__file__, "cot_reason"), load_prompt(__file__, "cot_answer")
    return await deliberate(session, sample, reason, answer, agent="reasoner", made="reasoning")
