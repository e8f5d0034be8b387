"""The dry run: a few samples through every arm against a stand-in model, to count calls, tokens and money.

No model is loaded and none is called. Prompt tokens are estimated from text length, reply tokens are counted at the
most that each request allows, so that the money printed is an upper bound where lengths are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import orjson

from evenhand.benchmarks.base import Benchmark, Selection, load_benchmark
from evenhand.core.options import Options
from evenhand.core.types import (
    Answer,
    Completion,
    Message,
    Outcome,
    Params,
    Sample,
    TokenLogprob,
    ToolCall,
    Unscored,
    Usage,
)
from evenhand.evaluators.base import Evaluator, Thresholds, Verdict
from evenhand.judging.rubric import AGAIN_IN_FORM, ASKED_FORM
from evenhand.methods.base import Method
from evenhand.models.base import Feature, Model, estimate_tokens, split_spec
from evenhand.models.budget import FREE, Price
from evenhand.models.endpoints import provider_class
from evenhand.models.fake import FunctionModel
from evenhand.models.load import load_model, takes_effort
from evenhand.models.reasoning import declared_room
from evenhand.runs.controls import certify, due_before
from evenhand.runs.parts import LoadedArm, check_plan, session_settings
from evenhand.runs.plan import Arm, ModelPlan, Plan
from evenhand.runs.pools import ScorerPool, check_scorers, results_of, scores_of
from evenhand.runs.shards import Shard, numbered
from evenhand.scorers.base import ATTRIBUTES, Scorer, Scores
from evenhand.search.base import Hit, SearchResult
from evenhand.session import BASE, Session

TRIED = 24
"""Samples that are tried; the others are assumed to cost the same."""
UNBOUNDED_REPLY = 512
CONTROLS = "controls"
"""The label of what judges and scorers are checked by."""
_CRITIQUE = 48
"""Words of a critique: as many as a judge has room for."""
_MORE_IS_WORSE = ("stereotyping", "harm", "breach", "bias")
"""Ratings for which the highest value is the worst; for all others it is the lowest."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected usage of one arm."""

    label: str
    samples: int
    usage: Usage
    """At most; retries of failed calls come on top."""
    least_calls: int
    """The calls if every answer can be read as it is first asked for."""


Drawn = dict[str, tuple[int, list[Sample]]]
"""What decides the samples → how many there are, and those that are tried."""


async def forecast(
    plan: Plan, prices: Mapping[str, Price], shard: Shard | None = None, drawn: Drawn | None = None
) -> list[Forecast]:
    """Return the expected usage of every arm, or of a shard of it; the cost is None where a price is missing.

    Plans that share `drawn` read the samples of one benchmark once.
    """
    with plan.prompts().used():
        return await _forecast(plan, prices, shard, {} if drawn is None else drawn)


async def _forecast(plan: Plan, prices: Mapping[str, Price], shard: Shard | None, drawn: Drawn) -> list[Forecast]:
    benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
    arms = check_plan(plan, benchmark)
    judges: list[tuple[ModelPlan, FunctionModel]] = []

    def load(model: ModelPlan) -> Model:
        judges.append((model, _stand_in(model)))
        return judges[-1][1]

    pool = ScorerPool(plan, {}, load)
    scorers = [pool.get(spec) for spec in (benchmark.scorers if plan.scorers is None else plan.scorers)]
    check_scorers(scorers, benchmark.kind)
    key = plan.model_dump_json(include={"benchmark", "benchmark_options", "limit", "templates"})
    key += f" {plan.seeds[0]} {shard}"
    if key not in drawn:
        drawn[key] = _draw(benchmark, Selection(plan.limit, plan.seeds[0]), shard)
    total, tried = drawn[key]
    scale = total / max(1, len(tried))
    forecasts: list[Forecast] = []
    for arm, method, options in arms:
        pool.load_for(options)
        used, outcomes = await _arm(plan, arm, method, options, tried, prices)
        most, _ = await _arm(plan, arm, method, options, tried, prices, wordy=True)
        least, most = sorted((used, most), key=lambda each: each.calls)
        forecasts.append(Forecast(arm.label, total, _scaled(most, scale), round(least.calls * scale)))
        for sample, outcome in zip(tried, outcomes, strict=True):
            for scorer in scorers:
                if scorer.asks_model:
                    await scores_of(scorer, sample, results_of(outcome), benchmark.scored_text)
    if judges:
        used = sum((requested(stand_in, model, prices) for model, stand_in in judges), Usage())
        scaled = _scaled(used, scale)
        forecasts.append(Forecast("scoring", total, scaled, scaled.calls))
    for _, stand_in in judges:
        stand_in.requests.clear()
    models = [(model, _stand_in(model)) for arm, _, _ in arms for model in (arm.judge,)]
    loaded = [
        LoadedArm(arm, method, options, {BASE: stand_in}, {})
        for (arm, method, options), (_, stand_in) in zip(arms, models, strict=True)
    ]
    await certify(due_before(plan, benchmark, scorers, loaded))
    used = sum((requested(stand_in, model, prices) for model, stand_in in (*judges, *models)), Usage())
    if used.calls:
        forecasts.append(Forecast(CONTROLS, used.calls, used, used.calls))
    await pool.aclose()
    return forecasts


def _draw(benchmark: Benchmark, selection: Selection, shard: Shard | None) -> tuple[int, list[Sample]]:
    total = sum(1 for _ in numbered(benchmark.samples(selection), shard))
    # Spread evenly, because neighbours are often of the same kind.
    places = {round(i * total / TRIED) for i in range(TRIED)}
    samples = (sample for _, sample in numbered(benchmark.samples(selection), shard))
    return total, [sample for place, sample in enumerate(samples) if place in places]


async def _arm(
    plan: Plan,
    arm: Arm,
    method: Method,
    options: Options,
    tried: Sequence[Sample],
    prices: Mapping[str, Price],
    *,
    wordy: bool = False,
) -> tuple[Usage, list[Outcome]]:
    """Run the tried samples under one arm; return their usage and outcomes.

    The first token of a `wordy` model is never the answer, so that methods ask again in another way.
    """
    models = {role: _stand_in(model, wordy=wordy) for role, model in arm.models.items()}
    used = Usage()
    outcomes: list[Outcome] = []
    for sample in tried:
        session = Session(
            sample,
            models,
            arm.seed,
            options.model_copy(update=dict(options.at_most)),
            scorers=_Severe,
            searches=_Fruitful,
            evaluating=_never_passed,
            **session_settings(plan),
        )
        outcomes.append(await method.run(sample, session))
        for turn in session.trace:
            model = arm.models.get(turn.role) or arm.models["base"]
            if turn.generation is not None:
                used += _bounded(turn.generation.usage, turn.params, model, prices)
    return used, outcomes


def check_there(models: Iterable[ModelPlan], made: Path | None = None) -> None:
    """Refuse models that would run in this process and are not there; those to be trained below `made` come later."""
    for model in models:
        if getattr(_provider(model), "replicable", False) and not (made and model.spec.startswith(f"hf/{made}/")):
            load_model(model.spec, model.options(1))  # weights are not read before the first call


def may_think(plan: Plan) -> bool:
    """Whether some model of the plan may think before it answers without the plan saying so."""
    return any(takes_effort(_provider(model)) and not declared_room(model.extra) for model in plan.every_model())


def _scaled(used: Usage, scale: float) -> Usage:
    return Usage(
        calls=round(used.calls * scale),
        prompt_tokens=round(used.prompt_tokens * scale),
        completion_tokens=round(used.completion_tokens * scale),
        cost=None if used.cost is None else used.cost * scale,
    )


def requested(stand_in: FunctionModel, model: ModelPlan, prices: Mapping[str, Price]) -> Usage:
    """Return the usage of the requests that a stand-in received; the cost is None where the price is missing."""
    used = Usage()
    for messages, params in stand_in.requests:
        tokens = sum(estimate_tokens(message.content) for message in messages)
        used += _bounded(Usage(calls=1, prompt_tokens=tokens), params, model, prices)
    return used


async def _never_passed(each: Evaluator, sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict:
    """Asks the evaluator and rejects the answer in any case, so that every iteration is counted."""
    await each.evaluate(sample, answer, session)
    return Verdict(passed=False, critique=" ".join(["text"] * _CRITIQUE), harm=1.0, excess=1.0)


class _Severe(Scorer):
    """Stands in for the scorers that methods use: nothing is ever good enough, so that every iteration is counted."""

    version = "0"
    attributes = ATTRIBUTES

    def __init__(self, spec: str) -> None:
        self.argument = spec

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts
        return [dict.fromkeys(ATTRIBUTES, 1.0) for _ in texts]


class _Fruitful:
    """Stands in for searches: every query finds something, so that it has to be summed up."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
        hits = tuple(Hit("title", f"https://example.org/{number}", "text " * 200) for number in range(limit))
        del pages
        return SearchResult(query, self.spec, "", hits)


def _bounded(usage: Usage, params: Params, model: ModelPlan, prices: Mapping[str, Price]) -> Usage:
    """Return the usage of a call whose reply is as long as it may be, thoughts included where they are declared."""
    room = 0 if params.max_tokens is None or params.max_tokens_exact else declared_room(model.extra)
    reply = 0 if params.given else ((params.max_tokens or UNBOUNDED_REPLY) + room) * params.n
    bounded = Usage(calls=usage.calls, prompt_tokens=usage.prompt_tokens, completion_tokens=reply)
    price = prices.get(model.spec) or model.price or (FREE if _provider(model).free else None)
    return replace(bounded, cost=price.of(bounded) if price else None)


def _provider(model: ModelPlan) -> Any:
    return provider_class(model.provider or split_spec(model.spec)[0])


def _stand_in(model: ModelPlan, *, wordy: bool = False) -> FunctionModel:
    """A fake with the features that the provider declares, so that methods take the same path.

    It can always be constrained: those that cannot are asked for the same JSON in words, in as many calls.
    """
    provider = _provider(model)
    declared = getattr(provider, "all_features", provider.features)
    features = cast(frozenset[Feature], declared if isinstance(declared, frozenset) else frozenset())
    if declared_room(model.extra):
        features -= {"logprobs"}
    made = FunctionModel(_wordy if wordy else _exact, spec=model.spec, features=(*features, "schema"))
    made.preamble = model.preamble
    return made


def _exact(messages: Sequence[Message], params: Params) -> Completion:
    return Completion(_in_form(form)) if (form := ASKED_FORM.get()) else _reply(messages, params)


def _wordy(messages: Sequence[Message], params: Params) -> Completion:
    if params.tools:  # the first is called again and again, up to the limit of steps
        return Completion("", calls=(ToolCall("call", str(params.tools[0]["name"]), "{}"),))
    if params.logprobs and params.max_tokens == 1:
        return Completion("Well", "length", logprobs=(TokenLogprob("Well", 0.0, (("Well", 0.0),)),))
    return _reply(messages, params)


def _reply(messages: Sequence[Message], params: Params) -> Completion:
    if params.given:
        return Completion(params.given[0], logprobs=(TokenLogprob(params.given[0], -1.0 * len(params.given[0])),))
    if params.tools:
        return Completion(" ".join(["text"] * (params.max_tokens or UNBOUNDED_REPLY)))
    if params.schema is not None:
        # What is said in words is as long as it may be: it may be part of later prompts, which are paid for as well.
        words = (params.max_tokens or UNBOUNDED_REPLY) // max(1, _texts(params.schema))
        return Completion(orjson.dumps(_instance(params.schema, " ".join(["text"] * max(1, words)))).decode())
    if AGAIN_IN_FORM in messages[-1].content:
        return Completion(_in_form(messages[-1].content.partition(AGAIN_IN_FORM)[2]))
    # No two answers are alike, so that none counts as judged before; each is long enough to look like one, does not
    # repeat itself, since a judge would leave it out, and begins with a letter for those who read letters.
    mark = crc32(orjson.dumps([message.content for message in messages] + [params.seed]))
    letter = "AB"[mark % 2]
    steps = "".join(f"w{number:03} " for number in range(min(64, params.max_tokens or 64)))
    text = letter if params.max_tokens == 1 else f"{letter}) {mark} {steps}"
    # "No" answers yes-or-no questions.
    logprobs = (TokenLogprob(letter, 0.0, ((letter, 0.0), ("No", -1.0))),) if params.logprobs else None
    return Completion(text, logprobs=logprobs)


def _in_form(form: str) -> str:
    """The worst reply in a form that is not JSON: lines `NAME: 1-10`, or a scale alone."""
    lines: list[str] = []
    for line in form.splitlines():
        name, colon, scale = line.rpartition(": ")
        low, _, high = scale.partition("-")
        lines.append(f"{name}{colon}{high if name in _MORE_IS_WORSE and high else low.partition(' or ')[0]}")
    return "\n".join(lines)


def _texts(schema: Mapping[str, Any]) -> int:
    """How many values of an instance are texts; what is listed are names and the like."""
    if "enum" in schema:
        return 0
    match schema.get("type"):
        case "object":
            return sum(map(_texts, schema.get("properties", {}).values()))
        case "array" | "integer" | "number" | "boolean":
            return 0
        case _:
            return 1


def _instance(schema: Mapping[str, Any], text: str) -> Any:
    """A value that satisfies a schema of the kinds that prompts here use, the smallest but for its texts."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {
                name: each["maximum"] if name in _MORE_IS_WORSE and "maximum" in each else _instance(each, text)
                for name, each in schema.get("properties", {}).items()
            }
        case "array":
            return [_instance(schema.get("items", {}), "text")] * schema.get("minItems", 1)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return text[: schema.get("maxLength")]
