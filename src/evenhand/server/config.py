"""The server's one config file, checked as a whole: routes, keys, limits, audit file, CORS, scorer.

A route is a name that clients put into `model`: behind it stand a model, a method and a policy. Flags of
`evenhand serve` make a config of one route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from evenhand.data.yaml_file import read_yaml
from evenhand.errors import DataError, PlanError, UnknownNameError, UsageError
from evenhand.guards.policy import BLOCKED_TEXT, PolicyAction
from evenhand.methods import GUARD_METHOD

_STRICT = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")
_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")
Permission = Literal["bypass", "admin", "score", "metrics"]


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name has at most 100 letters, digits and . _ : / @ -")
    return name


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError("an origin is written like https://app.example.org, without a path")
    return text


Name = Annotated[str, AfterValidator(_named)]
Origin = Annotated[str, AfterValidator(_origin)]


class PriceConfig(BaseModel):
    """Money per million tokens."""

    model_config = _STRICT
    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RouteConfig(BaseModel):
    """What stands behind one model name."""

    model_config = _STRICT
    model: str
    """A model spec, e.g. openai/gpt-4o-mini."""
    method: str = GUARD_METHOD
    """NAME or NAME:KEY=VALUE,…"""
    judge: str | None = None
    """The critics' model; the route's own where none is given."""
    policy: PolicyAction = "revise"
    blocked_text: str = BLOCKED_TEXT
    latency: Annotated[float, Field(gt=0)] | None = None
    """Seconds for the whole loop."""
    evaluators: tuple[str, ...] = ("toxicity",)
    thresholds: dict[str, Any] = {}
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key for the model's endpoint."""
    judge_base_url: str | None = None
    """The judge's endpoint; the model's where none is given."""
    judge_key_env: str | None = None
    """Where the judge's key is; the model's is never sent to an endpoint of the judge's own."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    retries: Annotated[int, Field(ge=0)] = 2
    concurrency: Annotated[int, Field(ge=1)] = 1000
    price: PriceConfig | None = None
    judge_price: PriceConfig | None = None
    extra: dict[str, Any] = {}
    """Options of the model, e.g. {slots: 4} for local/ models."""

    @model_validator(mode="after")
    def _fields_of_a_judge_need_one(self) -> Self:
        for name in ("judge_base_url", "judge_key_env", "judge_price"):
            if getattr(self, name) is not None and self.judge is None:
                raise ValueError(f"{name} is there, but no judge")
        if self.judge == self.model and self.judge_price not in (None, self.price):
            raise ValueError("model and judge have one name, and need one price: costs are counted by name")
        return self


class KeyConfig(BaseModel):
    """One client's key, as its hash, and what it may do beyond asking."""

    model_config = _STRICT
    hash: str
    may: tuple[Permission, ...] = ()
    per_minute: Annotated[float, Field(gt=0)] | None = None
    """Requests, where the server's own limit does not fit."""


class LimitsConfig(BaseModel):
    """What one server takes on."""

    model_config = _STRICT
    body_mb: Annotated[float, Field(gt=0)] = 10.0
    seconds: Annotated[float, Field(gt=0)] = 300.0
    """For one request, from its first byte to the last of the answer."""
    at_once: Annotated[int, Field(ge=1)] = 1000
    """Requests that are worked on at the same time."""
    waiting: Annotated[int, Field(ge=0)] = 1000
    """Requests that may wait for their turn; more are answered 429."""
    shutdown_seconds: Annotated[float, Field(gt=0)] = 60.0
    """For requests in flight when the server is told to end."""


class AuditConfig(BaseModel):
    """The record of all requests in a file."""

    model_config = _STRICT
    file: str | None = None
    texts: Literal["none", "redacted", "full"] = "none"
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """Size at which a new file is begun."""
    days: Annotated[float, Field(gt=0)] = 30.0
    """For how long records are kept."""


class LogConfig(BaseModel):
    """The lines on stderr."""

    model_config = _STRICT
    requests: bool = True
    """A line for every request; warnings and errors are always told."""
    texts: Literal["none", "redacted", "full"] = "none"


class ServeConfig(BaseModel):
    """The whole file."""

    model_config = _STRICT
    routes: Annotated[dict[Name, RouteConfig], Field(min_length=1)]
    keys: dict[Name, KeyConfig] = {}
    limits: LimitsConfig = LimitsConfig()
    audit: AuditConfig = AuditConfig()
    log: LogConfig = LogConfig()
    cors: tuple[Origin, ...] = ()
    """Web origins whose pages may call this server; none by default."""
    scorer: str = "builtin"
    """Answers the scoring endpoints."""
    page: bool = True
    """The live page at /; it shows prompts and answers, which are kept in memory alone."""


def read_config(path: Path) -> ServeConfig:
    """The config in a YAML file; what is wrong is told in one sentence with its place."""
    value = read_yaml(path)
    if not isinstance(value, Mapping):
        raise DataError("a config of the server begins with 'routes:'; see examples/guard.yaml.", file=path)
    try:
        return make_config({str(key): each for key, each in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except DataError:
        raise
    except UsageError as error:
        raise DataError(str(error), file=path) from error


def make_config(values: Mapping[str, Any]) -> ServeConfig:
    """A checked config."""
    try:
        return ServeConfig.model_validate(dict(values))
    except ValidationError as error:
        # A misspelt field may also make the right one missing; the misspelling is what helps.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise _complaint(
            first["type"], tuple(str(part) for part in first["loc"] if part != "[key]"), str(first["msg"])
        ) from error


def _complaint(kind: str, place: tuple[str, ...], message: str) -> PlanError:
    where = ".".join(place) or "the config"
    match kind:
        case "extra_forbidden":
            known = _fields(place)
            near = UnknownNameError("field", place[-1], known)
            return PlanError(f"At {where}: {str(near)[0].lower()}{str(near)[1:]}")
        case "missing" if place == ("routes",):
            return PlanError(
                "The config has no routes; write at least one, e.g. routes: {assistant: {model: openai/NAME}}."
            )
        case "missing":
            return PlanError(f"The config lacks {where}.")
        case _:
            return PlanError(f"The config is wrong at {where}: {message.removeprefix('Value error, ').lower()}.")


def _fields(place: tuple[str, ...]) -> list[str]:
    """The fields that there are where one was misspelt."""
    groups: dict[str, type[BaseModel]] = {
        "routes": RouteConfig,
        "keys": KeyConfig,
        "limits": LimitsConfig,
        "audit": AuditConfig,
        "log": LogConfig,
    }
    if {"price", "judge_price"} & set(place[:-1]):
        return list(PriceConfig.model_fields)
    return list((ServeConfig if len(place) == 1 else groups[place[0]]).model_fields)
