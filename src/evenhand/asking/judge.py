"""The judge inside a method: a rubric for the session's judge model, every call recorded as a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.session import Session
from evenhand.types import Generation, Message, Params, Unscored

JUDGE = "judge"
"""The role of the model that judges; the base model where no other is given."""


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

    They are greedy; if the run wants several samples and the model gives no logprobs, they are drawn instead.
    """
    numbers = count()

    async def ask(messages: Sequence[Message], params: Params) -> Generation:
        at = None if slot is None else f"{slot}/{next(numbers)}"
        return await session.ask(rubric.prompt, messages, params, agent=agent, role=role, slot=at)

    def params() -> Params:
        made = rubric.params(session.model(role).features, session.answering.judge_samples)
        return session.limited(adjusted(session.sampled(made) if made.n > 1 else made), role)

    first = params()
    ratings = await rate(ask, rubric, messages, first)
    if isinstance(ratings, Ratings) and params().n > first.n:  # the reply has shown that there are no logprobs
        ratings = await rate(ask, rubric, messages, params())
    if isinstance(ratings, Ratings):
        session.readings[ratings.reading] += 1
    return ratings
