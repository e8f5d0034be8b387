"""Closed book: asks the question without its passage, as a baseline for methods that search.

The answer shows what the model knows by itself. (The public runs of MABRF gave the passage to the baseline that they
call internal knowledge.)
"""

from __future__ import annotations

from evenhand.asking.answer import answer
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Outcome, Sample
from evenhand.methods.base import method
from evenhand.session import Session


@method("closed_book", kinds={"answer"})
async def closed_book(sample: Sample, session: Session) -> Outcome:
    """Answers the question without its passage, from the model's own knowledge."""
    prompt = question_prompt()
    return Outcome(await answer(session, sample, prompt, prompt.render(question=sample.prompt)))


def question_prompt() -> Prompt:
    """Returns the prompt with the question only, also for methods that found no evidence."""
    return load_prompt(__file__, "question")
