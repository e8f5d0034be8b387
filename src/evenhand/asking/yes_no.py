"""A question that is answered by yes or no: how likely yes is.

Small models that rate everything between 60 and 70 still tell by the odds of one word what they think.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from evenhand.prompts import Prompt
from evenhand.session import Session
from evenhand.types import Completion, Message, Params, TokenLogprob, Unscored

_ALTERNATIVES = 20
_FORM = {"type": "string", "enum": ["No", "Yes"]}


async def likely(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str, role: str
) -> float | Unscored:
    """P(yes) against P(no) where the model gives logprobs, else 1 or 0 by what it writes."""
    features = session.model(role).features
    if "logprobs" in features:
        params = Params(temperature=0, max_tokens=1, logprobs=_ALTERNATIVES)
        completion = (await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0]
        if completion.logprobs and (odds := _odds(completion.logprobs[0])) is not None:
            return odds
    params = Params(temperature=0, max_tokens=8, schema=_FORM if "schema" in features else None)
    return _written((await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0])


def _odds(token: TokenLogprob) -> float | None:
    chances = {"yes": 0.0, "no": 0.0}
    for text, logprob in {token.token: token.logprob, **dict(token.top)}.items():
        word = text.strip().lower()
        if word in chances:
            chances[word] += math.exp(logprob)
    total = sum(chances.values())
    return chances["yes"] / total if total > 0 else None


def _written(completion: Completion) -> float | Unscored:
    if completion.refusal is not None or completion.finish == "filter":
        return Unscored("the judge declined", completion.refusal or completion.text)
    found = re.match(r"\W*(yes|no)\b", completion.text, re.IGNORECASE)
    if found is None:
        return Unscored("the judge said neither yes nor no", completion.text)
    return float(found[1].lower() == "yes")
