"""Who may call the server, and how much: keys and limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from evenhand.server.config.base import STRICT

Permission = Literal["bypass", "admin", "score", "metrics"]


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class BudgetConfig(BaseModel):
    """What a key may spend in a period."""

    model_config = STRICT
    tokens: Annotated[int, Field(ge=1)] | None = None
    money: Annotated[float, Field(gt=0)] | None = None
    """In the currency of the prices."""
    per: Literal["day", "month", "total"]
    """The budget renews with the day or month, in UTC."""

    @model_validator(mode="after")
    def _has_an_amount(self) -> Self:
        if self.tokens is None and self.money is None:
            raise ValueError("give tokens, money or both")
        return self


class KeyConfig(BaseModel):
    """The hash of one client's API key, and its additional permissions."""

    model_config = STRICT
    hash: str
    may: tuple[Permission, ...] = ()
    per_minute: Annotated[float, Field(gt=0)] | None = None
    """Rate limit of this key in requests per minute."""
    at_once: Annotated[int, Field(ge=1)] | None = None
    """Concurrency limit of this key."""
    budget: BudgetConfig | None = None
    routes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The routes that the key may use; all by default."""
    expires: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """When the key stops working; a date means its beginning, and a time without a zone is UTC."""


class LimitsConfig(BaseModel):
    """Size, time and concurrency limits of one server."""

    model_config = STRICT
    body_mb: Annotated[float, Field(gt=0)] = 10.0
    seconds: Annotated[float, Field(gt=0)] = 300.0
    """Time limit of one request."""
    at_once: Annotated[int, Field(ge=1)] = 1000
    """Concurrency limit."""
    waiting: Annotated[int, Field(ge=0)] = 1000
    """Queue limit; further requests are answered with 429."""
    choices: Annotated[int, Field(ge=1)] = 8
    """Largest `n`, and most texts of one completions request: every answer runs its own loop."""
    inputs: Annotated[int, Field(ge=1)] = 100
    """Most texts of one moderations request."""
    messages: Annotated[int, Field(ge=1)] = 2000
    """Most messages of one request, and parts of their contents."""
    tools: Annotated[int, Field(ge=1)] = 128
    """Most tools or functions of one request."""
    shutdown_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time limit for requests in flight at shutdown."""
