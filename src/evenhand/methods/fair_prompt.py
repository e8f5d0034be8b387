"""An explicit fairness instruction in front of the same question: the cheapest mitigation there is."""

from __future__ import annotations

from evenhand.agents.choice import choose
from evenhand.agents.session import Session
from evenhand.methods.base import method
from evenhand.prompts import load_prompt
from evenhand.types import Outcome, Sample


@method("fair_prompt", kinds={"choice"})
async def fair_prompt(sample: Sample, session: Session) -> Outcome:
    """One question under an explicit instruction to be fair."""
    return Outcome(await choose(session, sample, load_prompt(__file__, "fair_prompt")))
