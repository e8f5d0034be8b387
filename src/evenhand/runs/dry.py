"""The dry run: a few samples through every arm against a stand-in model, to count calls, tokens and money.

No model is loaded and none is called. Prompt tokens are estimated from text length, reply tokens are counted at the
most that each request allows, so that the money printed is an upper bound where lengths are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from evenhand.agents.session import Answering, Session
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.methods.base import Method
from evenhand.models.base import PROVIDERS, Feature, Model, split_spec
from evenhand.models.budget import FREE, Price
from evenhand.models.fake import FunctionModel
from evenhand.runs.parts import check_plan
from evenhand.runs.plan import Arm, Plan
from evenhand.types import Completion, Message, Params, Sample, TokenLogprob, Usage

TRIED = 24
"""Samples that are tried; the rest are taken to be like them."""
UNBOUNDED_REPLY = 512


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one arm would take."""

    label: str
    samples: int
    usage: Usage


async def forecast(plan: Plan, prices: Mapping[str, Price]) -> list[Forecast]:
    """The expected usage of every arm; cost None where a price is missing."""
    benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
    arms = check_plan(plan, benchmark)
    total = 0
    tried: list[Sample] = []
    for total, sample in enumerate(benchmark.samples(Selection(plan.limit, plan.seeds[0])), 1):  # noqa: B007
        if len(tried) < TRIED:
            tried.append(sample)
    return [await _arm(plan, arm, method, options, tried, total, prices) for arm, method, options in arms]


async def _arm(
    plan: Plan,
    arm: Arm,
    method: Method,
    options: Mapping[str, Any],
    tried: Sequence[Sample],
    total: int,
    prices: Mapping[str, Price],
) -> Forecast:
    models = {role: _stand_in(model.spec) for role, model in arm.models.items()}
    used = Usage()
    for sample in tried:
        session = Session(
            sample,
            models,
            arm.seed,
            options,
            Answering(plan.orders, plan.reading),
            Params(temperature=plan.temperature, max_tokens=plan.max_tokens),
        )
        await method.run(sample, session)
        for turn in session.trace:
            spec = (arm.models.get(turn.role) or arm.models["base"]).spec
            if turn.generation is not None:
                used += _bounded(turn.generation.usage, turn.params, _price(spec, prices))
    scale = total / max(1, len(tried))
    return Forecast(
        arm.label,
        total,
        Usage(
            calls=round(used.calls * scale),
            prompt_tokens=round(used.prompt_tokens * scale),
            completion_tokens=round(used.completion_tokens * scale),
            cost=None if used.cost is None else used.cost * scale,
        ),
    )


def _bounded(usage: Usage, params: Params, price: Price | None) -> Usage:
    reply = (params.max_tokens or UNBOUNDED_REPLY) * params.n
    bounded = Usage(calls=usage.calls, prompt_tokens=usage.prompt_tokens, completion_tokens=reply)
    return Usage(
        bounded.calls,
        bounded.prompt_tokens,
        bounded.completion_tokens,
        cost=price.of(bounded) if price else None,
    )


def _price(spec: str, prices: Mapping[str, Price]) -> Price | None:
    return prices.get(spec) or (FREE if PROVIDERS.get(split_spec(spec)[0]).free else None)


def _stand_in(spec: str) -> Model:
    """A fake with the features that the provider declares, so that methods take the same path."""
    provider: Any = PROVIDERS.get(split_spec(spec)[0])
    declared = getattr(provider, "all_features", provider.features)
    features = cast(frozenset[Feature], declared if isinstance(declared, frozenset) else frozenset())
    return FunctionModel(_reply, spec=spec, features=features)


def _reply(messages: Sequence[Message], params: Params) -> Completion:
    del messages
    if params.schema is not None:
        return Completion(orjson.dumps(_instance(params.schema)).decode())
    # A reply that is long enough to look like one, and that begins with a letter for those who read letters.
    text = "A" if params.max_tokens == 1 else "A) " + "step " * min(64, params.max_tokens or 64)
    logprobs = (TokenLogprob("A", 0.0, (("A", 0.0),)),) if params.logprobs else None
    return Completion(text, logprobs=logprobs)


def _instance(schema: Mapping[str, Any]) -> Any:
    """A smallest value that satisfies a schema of the kinds that prompts here use."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _instance(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [_instance(schema.get("items", {}))] * schema.get("minItems", 1)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "text"
