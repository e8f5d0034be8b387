"""The judge inside a method: ratings by a rubric, or the probability of yes; every call is recorded as a turn.

Small models that rate everything between 60 and 70 still separate cases by the probability of one word. Several judges
are all asked, and pooled as the run says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import fmean, median
from typing import Literal

from pydantic import Field

from evenhand.asking.reply import SAMPLING, ask_and_read_all
from evenhand.core import aio
from evenhand.core.options import Options
from evenhand.core.prompts import Prompt, bands_of, load_prompt
from evenhand.core.types import Completion, Generation, Message, Params, TokenLogprob, Unscored
from evenhand.core.untrusted import fenced
from evenhand.judging.controls import Construct, Controls, construct
from evenhand.judging.rubric import DECLINED, Ratings, Rubric, rate
from evenhand.models.base import Model, read_replies
from evenhand.session import Session
from evenhand.stats.agreement import log_odds, sigmoid

# --- ways to read one rating of a judge, besides the number that it writes ---
# - `expected`: the expected value of the written number over the alternatives of its first digit (needs logprobs).
# - `written`: the number itself.
# - `odds`: the probability of Yes to a question, and of No to the opposite question; the mean of both log-odds.
# - `pairwise`: the probability that the text has more of it than a text in the middle, asked in both orders.
#
# Which of them sees most differs from model to model. `evenhand judges check` finds it by the controls and stores it
# in the judge's card.

Reading = str
"""A name of `READINGS`."""
READINGS: tuple[Reading, ...] = ("expected", "written", "odds", "pairwise")
BY_QUESTION: tuple[Reading, ...] = ("odds", "pairwise")
"""The readings that take questions of their own, two short calls each."""
_READING_TOKENS = 4


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
    params = Params(temperature=0, max_tokens=1 if scored else _READING_TOKENS, logprobs=_ALTERNATIVES if scored else 0)
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


JUDGE = "judge"
"""The role of the model that judges; the base model where no other is given. Further judges are `judge_2`, …"""
FAR_APART = 0.2
"""Judges whose ratings differ by this much or more, of 1, disagree."""
AGREED, DISAGREED = "judges_agreed", "judges_disagreed"
"""What is noted in the session's readings where there are several judges."""
_FORM = "Reply with one JSON object"
"""Begins the last paragraph of a rubric; examples stand before it."""
_ALTERNATIVES = 20
_TOKENS = 8
_YES_OR_NO = {"type": "string", "enum": ["No", "Yes"]}


class JudgeReading(Options):
    """The option of methods with a judge that says what its ratings are."""

    reading: Literal["expected", "written"] = Field(
        default="expected",
        description="A rating is the expected value of the judge's number by its probabilities, or the number written.",
    )


class BandedReading(JudgeReading):
    """The options of methods whose judge has rated examples."""

    bands: bool = Field(default=False, description="Whether the judge sees a rated example of each band of its scales.")


def is_judge(role: str) -> bool:
    """Whether a role is that of a judge, the first or a further one."""
    return re.fullmatch(rf"{JUDGE}(_[2-9]\d*)?", role) is not None


def judges_in(roles: Iterable[str]) -> list[str]:
    """The roles of all judges among `roles`; the first is always there."""
    return [JUDGE, *sorted({role for role in roles if is_judge(role)} - {JUDGE})]


async def judge(
    session: Session,
    rubric: Rubric,
    messages: Sequence[Message],
    *,
    agent: str,
    role: str = JUDGE,
    slot: str | None = None,
    adjusted: Callable[[Params], Params] = lambda params: params,
) -> Ratings | Unscored:
    """The ratings that the rubric asks for, or why there are none; `adjusted` changes the parameters of the calls.

    They are greedy; if the run wants several samples and the model gives no logprobs, they are drawn instead. Several
    judges are all asked; their ratings are pooled as the run says. With the method's option `bands`, judges see an
    example of low, middle and high ratings.
    """
    options = session.options
    if isinstance(options, BandedReading) and options.bands:
        rubric, messages = with_bands(rubric, messages)
    roles = judges_in(session.models) if role == JUDGE else [role]
    found = await aio.all_of(
        _ratings(
            session,
            rubric,
            messages,
            agent=agent if each == role else f"{agent} {each}",
            role=each,
            slot=slot,
            adjusted=adjusted,
        )
        for each in roles
    )
    rated = [each for each in found if isinstance(each, Ratings)]
    if len(roles) == 1 or not rated:
        return found[0]
    return _pooled(session, rated)


async def judged_yes(session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str) -> float | Unscored:
    """The judge's probability of yes; several judges are all asked, and pooled as the run says."""
    roles = judges_in(session.models)
    found = await aio.all_of(
        yes_probability(session, prompt, messages, agent=agent if each == JUDGE else f"{agent} {each}", role=each)
        for each in roles
    )
    said = [each for each in found if not isinstance(each, Unscored)]
    if len(roles) == 1 or not said:
        return found[0]
    session.readings[DISAGREED if max(said) - min(said) >= FAR_APART else AGREED] += 1
    return float(_pool(session)(said))


def with_bands(rubric: Rubric, messages: Sequence[Message]) -> tuple[Rubric, Sequence[Message]]:
    """Returns rubric and request with the examples of its bands; as they are if the rubric has none."""
    examples = bands_of(rubric.prompt)
    if not examples:
        return rubric, messages
    *before, last = messages
    lines = last.content.split("\n")
    # What is rated is quoted further up, so the last such line is the rubric's own.
    place = max((number for number, line in enumerate(lines) if _FORM in line), default=len(lines))
    content = "\n".join([*lines[:place], examples, *lines[place:]])
    digest = hashlib.sha256(f"{rubric.prompt.hash}\0{examples}".encode()).hexdigest()[:16]
    prompt = replace(rubric.prompt, id=f"{rubric.prompt.id}_bands", hash=digest)
    return replace(rubric, prompt=prompt), (*before, replace(last, content=content))


def _pooled(session: Session, rated: Sequence[Ratings]) -> Ratings:
    """The mean of the judges' ratings, or their median, with which the majority decides; the words of the nearest."""
    pool = _pool(session)
    columns = {name: [each.values[name] for each in rated] for name in rated[0].values}
    values = {name: float(pool(column)) for name, column in columns.items()}
    apart = max(max(column) - min(column) for column in columns.values())
    session.readings[DISAGREED if apart >= FAR_APART else AGREED] += 1
    nearest = min(rated, key=lambda each: sum(abs(each.values[name] - value) for name, value in values.items()))
    return replace(nearest, values=values)


def _pool(session: Session) -> Callable[[Sequence[float]], float]:
    return median if session.answering.judge_pool == "vote" else fmean


async def _ratings(
    session: Session,
    rubric: Rubric,
    messages: Sequence[Message],
    *,
    agent: str,
    role: str,
    slot: str | None,
    adjusted: Callable[[Params], Params],
) -> Ratings | Unscored:
    numbers = count()
    options = session.options
    as_written = isinstance(options, JudgeReading) and options.reading == "written"

    async def ask(messages: Sequence[Message], params: Params) -> Generation:
        at = None if slot is None else f"{slot}/{next(numbers)}"
        return await session.ask(rubric.prompt, messages, params, agent=agent, role=role, slot=at)

    samples = session.answering.judge_samples

    def params() -> Params:
        features = session.model(role).features
        made = rubric.params(features - {"logprobs"} if as_written else features, 1 if as_written else samples)
        return session.limited(adjusted(session.sampled(made) if made.n > 1 else made), role)

    first = params()
    ratings = await rate(ask, rubric, messages, first)
    if isinstance(ratings, Ratings) and params().n > first.n:  # the reply has shown that there are no logprobs
        ratings = await rate(ask, rubric, messages, params())
    if isinstance(ratings, Ratings):
        session.readings[ratings.reading] += 1
    return ratings


async def yes_probability(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str, role: str
) -> float | Unscored:
    """P(yes) / (P(yes) + P(no)) where the model gives logprobs; else the share of yes in the replies that are drawn.

    A word that is not among the likeliest tokens is as likely as the last of them: no less is known of it. A run that
    draws only one reply gets 1 or 0, by the word that the model writes.
    """
    if "logprobs" in await session.features(role):
        params = Params(temperature=0, max_tokens=1, logprobs=_ALTERNATIVES)
        completion = (await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0]
        if completion.logprobs and (share := share_of(completion.logprobs[0], ("yes", "no"))) is not None:
            session.readings["logprobs"] += 1
            return share
    features = session.model(role).features  # the first reply may have shown that there are no logprobs
    params = Params(temperature=0, max_tokens=_TOKENS, schema=_YES_OR_NO if "schema" in features else None)
    samples = 1 if "logprobs" in features else session.answering.judge_samples
    if samples > 1:
        params = session.sampled(replace(params, temperature=SAMPLING, n=samples))
    found = await ask_and_read_all(session, prompt, messages, params, _written, agent=agent, role=role)
    said = [each for each in found if not isinstance(each, Unscored)]
    if not said:
        return found[0]
    session.readings["samples" if samples > 1 else "written"] += 1
    return fmean(said)


def _written(completion: Completion) -> float | Unscored:
    if completion.refusal is not None or completion.finish == "filter":
        return Unscored(DECLINED, completion.refusal or completion.text)
    word = re.match(r"\W*(yes|no)\b", completion.text, re.IGNORECASE)
    if word is None:
        return Unscored("the judge said neither yes nor no", completion.text)
    return float(word[1].lower() == "yes")
