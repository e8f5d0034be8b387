"""One route of the config: a model, a method and a policy."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from evenhand.guards.input_policy import BLOCKED_REQUEST, INPUT_EVALUATORS, InputPolicyAction, Scope
from evenhand.guards.policy import BLOCKED_TEXT, PolicyAction, ToolArguments, Unchecked
from evenhand.methods import GUARD_METHOD
from evenhand.server.config.base import STRICT


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
    templates: str | None = None
    """A folder of prompt files of your own."""
    evaluators: tuple[str, ...] = ("toxicity",)
    thresholds: dict[str, Any] = {}
    unchecked: Unchecked | None = None
    """What happens to text that could not be checked; by default it is treated like text that fails."""
    tool_arguments: ToolArguments = "check"
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
