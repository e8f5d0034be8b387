"""The plain model: the question as it is, nothing added. Every comparison starts here."""

from __future__ import annotations

from evenhand.agents.choice import choose
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("default", kinds={"choice"})
async def default(sample: Sample, session: Session) -> Outcome:
    """The model as it is: one question, no mitigation."""
    return Outcome(await choose(session, sample, load_prompt(__file__, "default")))
