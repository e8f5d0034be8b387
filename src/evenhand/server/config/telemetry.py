"""What the server writes down: the audit file and the log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from evenhand.server.config.base import STRICT


class AuditConfig(BaseModel):
    """The audit file: a record of all requests."""

    model_config = STRICT
    file: str | None = None
    texts: Literal["none", "redacted", "full"] = "none"
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """Size at which the file is rotated."""
    days: Annotated[float, Field(gt=0)] = 30.0
    """Retention of records in days."""
    key_env: str | None = None
    """Environment variable with the key that signs the file's hash chain."""


class LogConfig(BaseModel):
    """The log on stderr."""

    model_config = STRICT
    requests: bool = True
    """Whether every request is logged; failed ones always are."""
    texts: Literal["none", "redacted", "full"] = "none"
