"""The judge inside a method: a rubric for the session's judge model, every call recorded as a turn."""

from __future__ import annotations

from collections.abc import Sequence
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
    params: Params | None = None,
) -> Ratings | Unscored:
    """The ratings that the rubric asks for, or why there are none; `params` replace those of `judging`."""
    numbers = count()

    async def ask(messages: Sequence[Message], params: Params) -> Generation:
        at = None if slot is None else f"{slot}/{next(numbers)}"
        return await session.ask(rubric.prompt, messages, params, agent=agent, role=role, slot=at)

    ratings = await rate(ask, rubric, messages, session.limited(params or judging(session, rubric, role), role))
    if isinstance(ratings, Ratings):
        session.readings[ratings.reading] += 1
    return ratings


def judging(session: Session, rubric: Rubric, role: str = JUDGE) -> Params:
    """The parameters of a judge's call: greedy, or several samples if the run wants them and there are no logprobs."""
    params = rubric.params(session.model(role).features, session.answering.judge_samples)
    return session.sampled(params) if params.n > 1 else params
