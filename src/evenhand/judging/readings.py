"""Ways to read one rating of a judge, besides the number that it writes.

- `expected`: the expected value of the written number over the alternatives of its first digit (needs logprobs).
- `written`: the number itself.
- `odds`: the probability of Yes to a question, and of No to the opposite question; the mean of both log-odds.
- `pairwise`: the probability that the text has more of it than a text in the middle, asked in both orders.

Which of them sees most differs from model to model. `evenhand judges check` finds it by the controls and stores it in
the judge's card.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from evenhand.core import aio
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Completion, Message, Params, TokenLogprob, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.controls import Construct, Controls, construct
from evenhand.models.base import Model, read_replies
from evenhand.stats.agreement import log_odds, sigmoid

Reading = str
"""A name of `READINGS`."""
READINGS: tuple[Reading, ...] = ("expected", "written", "odds", "pairwise")
BY_QUESTION: tuple[Reading, ...] = ("odds", "pairwise")
"""The readings that take questions of their own, two short calls each."""
_ALTERNATIVES = 20
_TOKENS = 4


async def asked(model: Model, reading: Reading, controls: Controls, text: str, context: str) -> float | Unscored:
    """Return the rating of a text by one of the readings that ask a question."""
    about = construct(controls.construct)
    both = _odds if reading == "odds" else _pairwise
    found = await both(model, about, controls.low[0], fenced(text), fenced(context) or "(nothing)")
    first, second = found
    if isinstance(first, Unscored) or isinstance(second, Unscored):
        return first if isinstance(first, Unscored) else second
    return sigmoid((log_odds(first) - log_odds(second)) / 2)


async def _odds(model: Model, about: Construct, low: str, text: str, context: str) -> list[float | Unscored]:
    prompt, ask = load_prompt(__file__, "odds"), about.asks[low]
    return await aio.all_of(
        probability(model, prompt.render(context=context, text=text, question=question), ("yes", "no"))
        for question in (ask.yes, ask.no)
    )


async def _pairwise(model: Model, about: Construct, low: str, text: str, context: str) -> list[float | Unscored]:
    prompt, ask, other = load_prompt(__file__, "against"), about.asks[low], fenced(about.reference)
    return await aio.all_of(
        probability(model, prompt.render(context=context, first=first, second=second, question=ask.more), ("a", "b"))
        for first, second in ((text, other), (other, text))
    )


async def probability(model: Model, messages: tuple[Message, ...], words: tuple[str, str]) -> float | Unscored:
    """Return the probability of the first of two words as the reply; 1 or 0 where there are no logprobs."""
    scored = "logprobs" in model.features
    params = Params(temperature=0, max_tokens=1 if scored else _TOKENS, logprobs=_ALTERNATIVES if scored else 0)
    return (await read_replies(partial(model.generate, messages), params, partial(_read, words=words)))[0]


def _read(completion: Completion, words: tuple[str, str]) -> float | Unscored:
    if completion.refusal is not None or completion.finish == "filter":
        return Unscored("the judge declined", completion.refusal or completion.text)
    if completion.logprobs and (share := share_of(completion.logprobs[0], words)) is not None:
        return share
    said = completion.text.strip().strip("*\"'.:(").lower()
    for word, value in zip(words, (1.0, 0.0), strict=True):
        if said == word or said.startswith((f"{word} ", f"{word}.", f"{word},", f"{word}\n", f"{word})")):
            return value
    return Unscored(f"the judge said neither {words[0]} nor {words[1]}", completion.text)


def share_of(token: TokenLogprob, words: tuple[str, str]) -> float | None:
    """Return P(first) / (P(first) + P(second)) at one token; None if neither word is among its alternatives.

    A word that is not among the likeliest is as likely as the last of them: no less is known of it.
    """
    chances = dict.fromkeys(words, 0.0)
    for text, chance in token.chances().items():
        word = text.strip().lower()
        if word in chances:
            chances[word] += chance
    if not any(chances.values()):
        return None
    first, second = (chance or token.unlisted() for chance in chances.values())
    return first / (first + second)


def best_reading(found: Mapping[Reading, float | None]) -> Reading | None:
    """Return the reading with the highest AUC; on a tie the first, which takes fewer calls."""
    known = {reading: value for reading in READINGS if (value := found.get(reading)) is not None}
    return max(known, key=lambda each: known[each], default=None)
