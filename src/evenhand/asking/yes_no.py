"""Asking a yes-or-no question: the probability of yes.

Small models that rate everything between 60 and 70 still separate cases by the probability of one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from evenhand.asking.reply import ask_and_read_all
from evenhand.core.prompts import Prompt
from evenhand.core.types import Completion, Message, Params, TokenLogprob, Unscored
from evenhand.scorers.rubric import DECLINED, SAMPLING
from evenhand.session import Session

_ALTERNATIVES = 20
_TOKENS = 8
_FORM = {"type": "string", "enum": ["No", "Yes"]}


async def yes_probability(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str, role: str
) -> float | Unscored:
    """P(yes) / (P(yes) + P(no)) where the model gives logprobs; else the share of yes in the replies that are drawn.

    A word that is not among the likeliest tokens is as likely as the last of them: no less is known of it. A run that
    draws only one reply gets 1 or 0, by the word that the model writes.
    """
    if "logprobs" in session.model(role).features:
        params = Params(temperature=0, max_tokens=1, logprobs=_ALTERNATIVES)
        completion = (await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0]
        if completion.logprobs and (share := _share_of_yes(completion.logprobs[0])) is not None:
            session.readings["logprobs"] += 1
            return share
    features = session.model(role).features  # the first reply may have shown that there are no logprobs
    params = Params(temperature=0, max_tokens=_TOKENS, schema=_FORM if "schema" in features else None)
    samples = 1 if "logprobs" in features else session.answering.judge_samples
    if samples > 1:
        params = session.sampled(replace(params, temperature=SAMPLING, n=samples))
    found = await ask_and_read_all(session, prompt, messages, params, _written, agent=agent, role=role)
    said = [each for each in found if not isinstance(each, Unscored)]
    if not said:
        return found[0]
    session.readings["samples" if samples > 1 else "written"] += 1
    return fmean(said)


def _share_of_yes(token: TokenLogprob) -> float | None:
    chances = {"yes": 0.0, "no": 0.0}
    for text, chance in token.chances().items():
        word = text.strip().lower()
        if word in chances:
            chances[word] += chance
    if not any(chances.values()):
        return None
    yes, no = (chance or token.unlisted() for chance in chances.values())
    return yes / (yes + no)


def _written(completion: Completion) -> float | Unscored:
    if completion.refusal is not None or completion.finish == "filter":
        return Unscored(DECLINED, completion.refusal or completion.text)
    word = re.match(r"\W*(yes|no)\b", completion.text, re.IGNORECASE)
    if word is None:
        return Unscored("the judge said neither yes nor no", completion.text)
    return float(word[1].lower() == "yes")
