"""One call as the sample's kind asks for it, for methods that differ in their prompts alone."""

from __future__ import annotations

from evenhand.asking.choice import choose
from evenhand.asking.completion import complete
from evenhand.prompts import Prompt
from evenhand.session import Session
from evenhand.types import Outcome, Sample


async def respond(session: Session, sample: Sample, *, choice: Prompt, completion: Prompt) -> Outcome:
    """The chosen option, or the continuation where the sample is a text to continue."""
    if sample.kind == "completion":
        return Outcome((await complete(session, sample, completion))[0])
    return Outcome(await choose(session, sample, choice))
