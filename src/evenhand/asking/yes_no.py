"""Asking a yes-or-no question: the probability of yes.

Small models that rate everything between 60 and 70 still separate cases by the probability of one word.
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


async def yes_probability(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str, role: str
) -> float | Unscored:
    """P(yes) / (P(yes) + P(no)) where the model gives logprobs, else 1 or 0 by the word it writes."""
    features = session.model(role).features
    if "logprobs" in features:
        params = Params(temperature=0, max_tokens=1, logprobs=_ALTERNATIVES)
        completion = (await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0]
        if completion.logprobs and (share := _share_of_yes(completion.logprobs[0])) is not None:
            return share
    params = Params(temperature=0, max_tokens=8, schema=_FORM if "schema" in features else None)
    return _written((await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0])


def _share_of_yes(token: TokenLogprob) -> float | None:
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
    word = re.match(r"\W*(yes|no)\b", completion.text, re.IGNORECASE)
    if word is None:
        return Unscored("the judge said neither yes nor no", completion.text)
    return float(word[1].lower() == "yes")
