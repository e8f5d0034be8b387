"""Where several processes of a server keep what they share."""

from __future__ import annotations

import os
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, model_validator

from evenhand.core.errors import PlanError
from evenhand.server.config.base import STRICT


class StateConfig(BaseModel):
    """A file for the processes of one host, or Redis for those of several."""

    model_config = STRICT
    file: str | None = None
    """An SQLite file."""
    redis: str | None = None
    """redis://HOST:PORT/NUMBER, without a password."""
    redis_env: str | None = None
    """Environment variable with the URL, which may hold a password."""
    required: bool = False
    """Whether requests of limited keys are rejected while the state cannot be reached."""

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if sum(each is not None for each in (self.file, self.redis, self.redis_env)) > 1:
            raise ValueError("give one of file, redis and redis_env")
        if self.redis is not None:
            if not self.redis.startswith(("redis://", "rediss://", "unix://")):
                raise ValueError("write redis as redis://HOST:PORT/0")
            if "@" in urlsplit(self.redis).netloc:
                raise ValueError("a URL with a password does not belong in the file; name its variable in redis_env")
        return self

    @property
    def is_given(self) -> bool:
        return any((self.file, self.redis, self.redis_env))

    def redis_url(self) -> str | None:
        if self.redis_env is None:
            return self.redis
        if not (url := os.environ.get(self.redis_env)):
            raise PlanError(f"The environment variable {self.redis_env} with the URL of Redis is not set.")
        return url
