"""The judge inside a method: a rubric for the session's judge model, every call recorded as a turn."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.session import Session
from evenhand.types import Generation, Message, Params, Unscored

JUDGE = "judge"
"""The role of the model that judges; the base model where no other is given."""


async def judge(
    session: Session, rubric: Rubric, messages: Sequence[Message], *, agent: str, role: str = JUDGE
) -> Ratings | Unscored:
    """The ratings that the rubric asks for, or why there are none."""

    async def ask(messages: Sequence[Message], params: Params) -> Generation:
        return await session.ask(rubric.prompt, messages, params, agent=agent, role=role)

    return await rate(ask, rubric, messages, session.model(role).features)
