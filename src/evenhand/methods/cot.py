"""Zero-shot chain of thought (Kojima et al., 2022): reason first, then answer from the reasoning.

Two calls: free reasoning, then the letter in the same conversation, read exactly as the other methods read theirs.
The reasoning sees the options in the same shuffled order as the question that follows.
"""

from __future__ import annotations

from evenhand.agents.choice import choose, declined
from evenhand.agents.reading import LETTERS, looks_like_refusal
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Message, Outcome, Params, Refusal, Sample, Unscored


@method("cot", kinds={"choice"}, max_tokens=256, temperature=0.0)
async def cot(sample: Sample, session: Session) -> Outcome:
    """Zero-shot chain of thought: reason step by step, then answer."""
    reason, answer = load_prompt(__file__, "cot_reason"), load_prompt(__file__, "cot_answer")
    order = session.permutation(len(sample.choices))
    shown = "\n".join(f"{LETTERS[i]}) {sample.choices[index]}" for i, index in enumerate(order))
    question = reason.render(context=sample.context, question=sample.prompt, options=shown)
    params = Params(temperature=session.options["temperature"], max_tokens=session.options["max_tokens"])
    generation = await session.ask(reason, question, params, agent="reasoner")
    completion = generation.completions[0]
    refusal = declined(completion) or (Refusal(completion.text) if looks_like_refusal(completion.text) else None)
    if refusal is not None:
        return Outcome(refusal, stop="refused")
    if not completion.text.strip():
        return Outcome(Unscored("the reasoning is empty"), stop="no_reasoning")
    conversation = (*question, Message("assistant", completion.text))
    result = await choose(session, sample, answer, lambda options: (*conversation, *answer.render(options=options)))
    return Outcome(result, notes={"reasoning": completion.text})
