"""The Judge inside a method: a rubric put to the session's judge model, every call recorded as a turn."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.session import Session
from evenhand.types import Generation, Message, Params, Unscored

JUDGE = "judge"
"""The role of the model that judges; without one of its own it is the base model."""


async def judge(
    session: Session, rubric: Rubric, messages: Sequence[Message], *, agent: str, role: str = JUDGE
) -> Ratings | Unscored:
    """The ratings that the rubric asks for, or why there are none."""

    async def ask(asked: Sequence[Message], params: Params) -> Generation:
        return await session.ask(rubric.prompt, asked, params, agent=agent, role=role)

    return await rate(ask, rubric, messages, session.model(role).features)
