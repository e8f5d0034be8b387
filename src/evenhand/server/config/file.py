"""The server's config file and its validation.

Clients send a route's name as `model`; the route has a model, a method and a policy. The options of `evenhand serve`
make a config with one route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, IPvAnyNetwork, ValidationError, model_validator

from evenhand.core.errors import DataError, PlanError, UnknownNameError, UsageError
from evenhand.data.yaml_file import parse_yaml, read_yaml
from evenhand.server.config.access import BudgetConfig, KeyConfig, LimitsConfig
from evenhand.server.config.base import STRICT, Name
from evenhand.server.config.route import InputConfig, PriceConfig, RouteConfig, UpstreamConfig
from evenhand.server.config.state import StateConfig
from evenhand.server.config.telemetry import AuditConfig, LogConfig

_ORIGIN = re.compile(r"https?://[^/\s*]+|\*")


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


class _Keys(BaseModel):
    model_config = STRICT
    keys: Annotated[dict[Name, KeyConfig], Field(min_length=1)]


def read_keys(path: Path) -> dict[str, KeyConfig]:
    """Return the keys in a file that has nothing else; a server's own config is refused, since its keys may chat."""
    value: Any = read_yaml(path)
    try:
        return dict(_Keys.model_validate(value).keys)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(name) for name in first["loc"]) or "the file"
        raise DataError(
            f"at {where}: {str(first['msg']).lower()}. The file has only keys, as `evenhand serve keys NAME` prints "
            "them: keys: {NAME: {hash: …}}.",
            file=path,
        ) from error


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
        "state": StateConfig,
    }
    if {"price", "judge_price"} & set(place[:-1]):
        return list(PriceConfig.model_fields)
    if "upstreams" in place[2:-1]:
        return list(UpstreamConfig.model_fields)
    if "budget" in place[:-1]:
        return list(BudgetConfig.model_fields)
    if place[0] == "routes" and "input" in place[2:-1]:
        return list(InputConfig.model_fields)
    return list((ServeConfig if len(place) == 1 else groups[place[0]]).model_fields)
