"""The server's config file and its validation: routes, keys, limits, state, audit file, log, CORS, scorer.

Clients send a route's name as `model`; the route has a model, a method and a policy. The options of `evenhand serve`
make a config with one route.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, IPvAnyNetwork, ValidationError, model_validator

from evenhand.core.errors import DataError, PlanError, UnknownNameError, UsageError
from evenhand.core.files import in_words, parse_yaml, path_of, place_of, read_bytes
from evenhand.guards.policy import (
    BLOCKED_REQUEST,
    BLOCKED_TEXT,
    INPUT_EVALUATORS,
    InputPolicyAction,
    OnUnrevised,
    PolicyAction,
    Scope,
    ToolArguments,
    Unchecked,
    live_thresholds,
)
from evenhand.methods import GUARD_METHOD
from evenhand.web.keys import STRICT, BudgetConfig, KeyConfig, Name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")


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

    @property
    def path(self) -> Path | None:
        return Path(self.file).expanduser() if self.file is not None else None


class LogConfig(BaseModel):
    """The log on stderr."""

    model_config = STRICT
    requests: bool = True
    """Whether every request is logged; failures of which clients get no reason always are."""
    texts: Literal["none", "redacted", "full"] = "none"


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


class WatchConfig(BaseModel):
    """Which requests are replayed, and at what cost."""

    model_config = STRICT
    share: Annotated[float, Field(gt=0, le=1)] = 0.01
    attributes: tuple[str, ...] = ("gender", "race")
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """The chance of any false alarm, ever, over all groups and measures of a server process."""
    replays_a_day: Annotated[int, Field(ge=2)] = 400
    cost_a_day: Annotated[float, Field(gt=0)] | None = None
    """In the currency of the routes' prices; a route without prices is then not watched."""
    file: str | None = None
    """Keeps the numbers over restarts; without it they begin anew."""
    presidio: bool = False
    """Redact with Microsoft Presidio (extra `presidio`) besides the patterns of the log."""
    seed: int | None = None


class PriceConfig(BaseModel):
    """Price per million tokens."""

    model_config = STRICT
    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class UpstreamConfig(BaseModel):
    """One of several endpoints behind a route; what it does not set is as the route says."""

    model_config = STRICT
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")] | None = None
    """For metrics, log and audit file; by default its number, from 1."""
    model: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    """Environment variable with the API key of this endpoint; without it, only OpenAI's own endpoint gets a key."""
    priority: int = 0
    """Upstreams with the lowest number are used first, the others if none of these can take the request."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None


class InputConfig(BaseModel):
    """Checks of a route's requests."""

    model_config = STRICT
    policy: InputPolicyAction = "flag"
    evaluators: tuple[str, ...] = INPUT_EVALUATORS
    thresholds: dict[str, Any] = {}
    scope: Scope = "new"
    blocked_text: str = BLOCKED_REQUEST
    unchecked: Unchecked | None = None
    judge: str | None = None
    """The model that evaluators ask about requests; by default the route's judge."""


class RouteConfig(BaseModel):
    """The model, method and policy behind one model name."""

    model_config = STRICT
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
    system: str | None = None
    """A file or a text that stands before the system prompt of every request."""
    history: str | None = None
    """A file with turns that stand before the first turn of every request."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    stop: str | tuple[str, ...] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """These three are the settings of requests that do not set them."""
    templates: str | None = None
    """A folder of prompt files of your own."""
    evaluators: tuple[str, ...] = ("toxicity",)
    thresholds: dict[str, Any] = {}
    unchecked: Unchecked | None = None
    """What happens to text that could not be checked; by default it is treated like text that fails."""
    tool_arguments: ToolArguments = "check"
    on_unrevised: OnUnrevised | None = None
    """What happens under `revise` to an answer that could not be improved until it passes; by default it is returned
    with the reason, and in a stream the rest of it is withheld."""
    input: InputConfig | None = None
    """Checks of requests; none by default."""
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    """Environment variable with the API key of the model's endpoint."""
    upstreams: Annotated[tuple[UpstreamConfig, ...], Field(min_length=1)] | None = None
    """Several endpoints, in place of `base_url` and `key_env`."""
    judge_base_url: str | None = None
    """The judge's endpoint; by default the model's."""
    judge_key_env: str | None = None
    """Environment variable with the judge's API key; the model's key is never sent to another endpoint."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    retries: Annotated[int, Field(ge=0)] = 2
    concurrency: Annotated[int, Field(ge=1)] = 1000
    """Concurrent calls of the model, or of each upstream."""
    price: PriceConfig | None = None
    judge_price: PriceConfig | None = None
    extra: dict[str, Any] = {}
    """Options of the model, e.g. {slots: 4} for local/ models."""

    def settings(self) -> dict[str, Any]:
        """Return the generation settings of requests that do not set them."""
        return self.model_dump(include={"temperature", "stop", "max_tokens"}, exclude_none=True, mode="json")

    @model_validator(mode="after")
    def _fields_of_a_judge_need_one(self) -> Self:
        for name in ("judge_base_url", "judge_key_env", "judge_price"):
            if getattr(self, name) is not None and self.judge is None:
                raise ValueError(f"{name} needs a judge; add one or remove this field")
        if self.judge == self.model and self.judge_price not in (None, self.price):
            raise ValueError("model and judge are the same, so give them the same price")
        return self

    @model_validator(mode="after")
    def _upstreams_have_their_own_endpoints(self) -> Self:
        if self.upstreams is None:
            return self
        for name in sorted({"base_url", "key_env"} & self.model_fields_set):
            raise ValueError(f"a route with upstreams has no {name} of its own; move it to the upstreams")
        names = [each.name or str(place) for place, each in enumerate(self.upstreams, 1)]
        if len(set(names)) < len(names):
            raise ValueError("each upstream needs another name")
        return self


def _checked_origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError("write an origin like https://app.example.org, without a path")
    return text


Origin = Annotated[str, AfterValidator(_checked_origin)]


class ServeConfig(BaseModel):
    """The whole config file."""

    model_config = STRICT
    routes: Annotated[dict[Name, RouteConfig], Field(min_length=1)]
    keys: dict[Name, KeyConfig] = {}
    limits: LimitsConfig = LimitsConfig()
    state: StateConfig = StateConfig()
    audit: AuditConfig = AuditConfig()
    log: LogConfig = LogConfig()
    cors: tuple[Origin, ...] = ()
    """Web origins whose pages may call this server; none by default."""
    proxies: tuple[IPvAnyNetwork, ...] = ()
    """Networks of the reverse proxies whose X-Forwarded-For and Forwarded headers are believed."""
    telemetry: Literal["otel"] | None = None
    """Traces for OpenTelemetry; they are also on if the environment names a collector."""
    scorer: str = Field(default_factory=lambda: live_thresholds({}).scorer)
    """The scorer behind the scoring endpoints; by default that of the guard."""
    watch: WatchConfig | None = None
    """Replays a share of the requests with the identity swapped; off without it."""
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
    return parse_config(read_bytes(path), path)


def parse_config(content: bytes, path: Path) -> ServeConfig:
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
        raise _plan_error(first) from error


def _plan_error(fault: ErrorDetails) -> PlanError:
    place = path_of(fault)
    where = place_of(place)
    match fault["type"]:
        case "extra_forbidden":
            known = _fields(place)
            near = UnknownNameError("field", str(place[-1]), known)
            return PlanError(f"At {where}: {str(near)[0].lower()}{str(near)[1:]}")
        case "missing" if place == ("routes",):
            return PlanError(
                "The config has no routes. Add at least one, e.g. routes: {assistant: {model: openai/NAME}}."
            )
        case "missing":
            return PlanError(f"The config lacks {where}. Add it.")
        case _:
            return PlanError(f"The config is wrong at {in_words(fault)}.")


def _fields(place: tuple[int | str, ...]) -> list[str]:
    """Return the known fields at the place of a misspelt one."""
    groups: dict[str, type[BaseModel]] = {
        "routes": RouteConfig,
        "keys": KeyConfig,
        "limits": LimitsConfig,
        "audit": AuditConfig,
        "log": LogConfig,
        "state": StateConfig,
        "watch": WatchConfig,
    }
    if {"price", "judge_price"} & set(place[:-1]):
        return list(PriceConfig.model_fields)
    if "upstreams" in place[2:-1]:
        return list(UpstreamConfig.model_fields)
    if "budget" in place[:-1]:
        return list(BudgetConfig.model_fields)
    if place[0] == "routes" and "input" in place[2:-1]:
        return list(InputConfig.model_fields)
    return list((ServeConfig if len(place) == 1 else groups[str(place[0])]).model_fields)
