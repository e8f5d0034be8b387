"""The server's config file and its validation: routes, keys, limits, audit file, CORS, scorer.

Clients send a route's name as `model`; the route has a model, a method and a policy. The options of `evenhand serve`
make a config with one route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from evenhand.data.yaml_file import parse_yaml
from evenhand.errors import DataError, PlanError, UnknownNameError, UsageError
from evenhand.guards.policy import BLOCKED_TEXT, PolicyAction, ToolArguments, Unchecked
from evenhand.methods import GUARD_METHOD

_STRICT = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")
_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")
Permission = Literal["bypass", "admin", "score", "metrics"]


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name may have at most 100 letters, digits and . _ : / @ -")
    return name


def _checked_origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError("write an origin like https://app.example.org, without a path")
    return text


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


Name = Annotated[str, AfterValidator(_checked_name)]
Origin = Annotated[str, AfterValidator(_checked_origin)]


class PriceConfig(BaseModel):
    """Price per million tokens."""

    model_config = _STRICT
    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RouteConfig(BaseModel):
    """The model, method and policy behind one model name."""

    model_config = _STRICT
    model: str
    """A model spec, e.g. openai/gpt-4o-mini."""
    method: str = GUARD_METHOD
    """NAME or NAME:KEY=VALUE,…"""
    judge: str | None = None
    """The evaluators' model; by default the route's own."""
    policy: PolicyAction = "revise"
    blocked_text: str = BLOCKED_TEXT
    latency: Annotated[float, Field(gt=0)] | None = None
    """Latency budget of the whole loop in seconds."""
    templates: str | None = None
    """A folder of prompt files of your own."""
    evaluators: tuple[str, ...] = ("toxicity",)
    thresholds: dict[str, Any] = {}
    unchecked: Unchecked | None = None
    """What happens to text that could not be checked; by default it is treated like text that fails."""
    tool_arguments: ToolArguments = "check"
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    """Environment variable with the API key of the model's endpoint."""
    judge_base_url: str | None = None
    """The judge's endpoint; by default the model's."""
    judge_key_env: str | None = None
    """Environment variable with the judge's API key; the model's key is never sent to another endpoint."""
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
                raise ValueError(f"{name} needs a judge; add one or remove this field")
        if self.judge == self.model and self.judge_price not in (None, self.price):
            raise ValueError("model and judge are the same, so give them the same price")
        return self


class KeyConfig(BaseModel):
    """The hash of one client's API key, and its additional permissions."""

    model_config = _STRICT
    hash: str
    may: tuple[Permission, ...] = ()
    per_minute: Annotated[float, Field(gt=0)] | None = None
    """Rate limit of this key in requests per minute."""
    routes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The routes that the key may use; all by default."""
    expires: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """When the key stops working; a date means its beginning, and a time without a zone is UTC."""


class LimitsConfig(BaseModel):
    """Size, time and concurrency limits of one server."""

    model_config = _STRICT
    body_mb: Annotated[float, Field(gt=0)] = 10.0
    seconds: Annotated[float, Field(gt=0)] = 300.0
    """Time limit of one request."""
    at_once: Annotated[int, Field(ge=1)] = 1000
    """Concurrency limit."""
    waiting: Annotated[int, Field(ge=0)] = 1000
    """Queue limit; further requests are answered with 429."""
    shutdown_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time limit for requests in flight at shutdown."""


class AuditConfig(BaseModel):
    """The audit file: a record of all requests."""

    model_config = _STRICT
    file: str | None = None
    texts: Literal["none", "redacted", "full"] = "none"
    megabytes: Annotated[float, Field(gt=0)] = 100.0
    """Size at which the file is rotated."""
    days: Annotated[float, Field(gt=0)] = 30.0
    """Retention of records in days."""


class LogConfig(BaseModel):
    """The log on stderr."""

    model_config = _STRICT
    requests: bool = True
    """Whether every request is logged; failed ones always are."""
    texts: Literal["none", "redacted", "full"] = "none"


class ServeConfig(BaseModel):
    """The whole config file."""

    model_config = _STRICT
    routes: Annotated[dict[Name, RouteConfig], Field(min_length=1)]
    keys: dict[Name, KeyConfig] = {}
    limits: LimitsConfig = LimitsConfig()
    audit: AuditConfig = AuditConfig()
    log: LogConfig = LogConfig()
    cors: tuple[Origin, ...] = ()
    """Web origins whose pages may call this server; none by default."""
    scorer: str = "builtin"
    """The scorer behind the scoring endpoints."""
    page: bool = True
    """Whether to serve the live page at /; it shows prompts and answers, which are kept in memory only."""

    @model_validator(mode="after")
    def _routes_of_keys_exist(self) -> Self:
        for name, key in self.keys.items():
            for route in set(key.routes or ()) - set(self.routes):
                raise PlanError(f"The key {name} is for the route {route}, which does not exist.")
        return self


def read_config(path: Path) -> ServeConfig:
    """Read the config from a YAML file; an error is one sentence with its place."""
    try:
        return parse_config(path.read_bytes(), path)
    except OSError as error:
        raise DataError(f"cannot be read: {error}.", file=path) from error


def parse_config(content: bytes, path: Path) -> ServeConfig:
    """Return the config in the content of a file."""
    value = parse_yaml(content, path)
    if not isinstance(value, Mapping):
        raise DataError("a server config begins with 'routes:'. See examples/guard.yaml.", file=path)
    try:
        return make_config({str(key): each for key, each in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except DataError:
        raise
    except UsageError as error:
        raise DataError(str(error), file=path) from error


def make_config(values: Mapping[str, Any]) -> ServeConfig:
    """Validate the values."""
    try:
        return ServeConfig.model_validate(dict(values))
    except ValidationError as error:
        # A misspelt field also makes the correct one missing; reporting the misspelling helps more.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        place = tuple(str(name) for name in first["loc"] if name != "[key]")
        raise _plan_error(first["type"], place, str(first["msg"])) from error


def _plan_error(kind: str, place: tuple[str, ...], message: str) -> PlanError:
    where = ".".join(place) or "the config"
    match kind:
        case "extra_forbidden":
            known = _fields(place)
            near = UnknownNameError("field", place[-1], known)
            return PlanError(f"At {where}: {str(near)[0].lower()}{str(near)[1:]}")
        case "missing" if place == ("routes",):
            return PlanError(
                "The config has no routes. Add at least one, e.g. routes: {assistant: {model: openai/NAME}}."
            )
        case "missing":
            return PlanError(f"The config lacks {where}. Add it.")
        case _:
            return PlanError(f"The config is wrong at {where}: {message.removeprefix('Value error, ').lower()}.")


def _fields(place: tuple[str, ...]) -> list[str]:
    """Return the known fields at the place of a misspelt one."""
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
