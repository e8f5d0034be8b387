"""Closed book: the question alone, for comparison with methods that may read.

The passage that belongs to the question is never shown; what is answered is what the model knows by itself. (The
public runs of MABRF gave the passage to the baseline that they call internal knowledge.)
"""

from __future__ import annotations

from evenhand.agents.answer import answer
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("closed_book", kinds={"answer"})
async def closed_book(sample: Sample, session: Session) -> Outcome:
    """The question without its passage: what the model knows by itself."""
    prompt = load_prompt(__file__, "closed_book")
    return Outcome(await answer(session, sample, prompt, lambda: prompt.render(question=sample.prompt)))
