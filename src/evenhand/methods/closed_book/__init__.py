"""Closed book: the question alone, for comparison with methods that may read.

The passage that belongs to the question is never shown; what is answered is what the model knows by itself. (The
public runs of MABRF gave the passage to the baseline that they call internal knowledge.)
"""

from __future__ import annotations

from evenhand.asking.answer import answer
from evenhand.methods.base import method
from evenhand.prompts import Prompt, load_prompt
from evenhand.session import Session
from evenhand.types import Outcome, Sample


@method("closed_book", kinds={"answer"})
async def closed_book(sample: Sample, session: Session) -> Outcome:
    """The question without its passage: what the model knows by itself."""
    prompt = question_prompt()
    return Outcome(await answer(session, sample, prompt, prompt.render(question=sample.prompt)))


def question_prompt() -> Prompt:
    """The question alone, for methods that have found no evidence."""
    return load_prompt(__file__, "question")
