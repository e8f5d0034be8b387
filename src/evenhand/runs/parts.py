"""Checks a plan before any call, and loads the methods, options and models of its arms."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import BENCHMARKS, Benchmark
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.options import Options
from evenhand.core.types import Params, SampleKind
from evenhand.judging.card import Calibrated, card_caveats, method_card
from evenhand.judging.judge import JUDGE, is_judge
from evenhand.methods.base import METHODS, Method, check_fit
from evenhand.models.base import HopefulModel, Model, PromptedModel, split_spec
from evenhand.models.budget import DISCOUNT, Budget, Limits, MeteredModel, Price
from evenhand.models.cache import CachedModel, ResponseCache
from evenhand.models.endpoints import check_no_call, provider_class
from evenhand.models.load import load_model
from evenhand.models.request import model_identity
from evenhand.runs.plan import ALL_ROLES, Arm, ModelPlan, Plan
from evenhand.runs.shards import Shard
from evenhand.scorers.base import needs_model
from evenhand.session import Answering


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run a plan; nothing here changes results."""

    concurrency: int = 64
    budget: Limits = Limits()
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    cache: Path | None = None
    reuse_answers: bool = True
    """Whether the answers of other runs in the cache are reused, also those of endpoints that may have changed."""
    scope: str | None = None
    """Whose answers a new run reuses: those of the runs with the same scope; None: its own."""
    resume: bool = False
    retry_failed: bool = False
    skip_damaged: bool = False
    """Whether stored rows that cannot be read are left out; otherwise they end the run."""
    ready: Mapping[str, Model] = field(default_factory=dict[str, Model])
    """Models that are there already, by spec: used instead of what the spec would load."""
    allow_call: bool = True
    """Whether models of the provider `call` may be loaded, which run Python code; a stored plan may be a stranger's."""
    max_failed: str | None = None
    """The run counts as failed if more samples of an arm have no grade: a share such as `5%`, or a number."""
    shard: Shard | None = None
    """The part of the plan that is run; None: all of it."""
    on: str | None = None
    """Where Ray is, for ray/ models and workers: `ray` (this machine, or RAY_ADDRESS) or `ray://HOST:PORT`."""
    batch_api: bool = False
    """Whether requests go into batches of the provider's batch API; `batch_queue`: into files, which others answer."""
    batch_queue: bool = False
    workers: int | None = None
    """How many processes on Ray share the samples; None: this process runs them all."""
    otel: bool = False
    """Whether spans and results go to OpenTelemetry; also on if the environment names a collector."""
    log_to: tuple[str, ...] = ()
    """Trackers that get the results at the end: `mlflow`, `mlflow:URI`, `wandb` or `wandb:PROJECT`."""
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The command that was asked for and its fields, by which a resumed run ends as it would have ended."""

    @property
    def in_batches(self) -> bool:
        return self.batch_api or self.batch_queue

    def stored(self) -> dict[str, Any]:
        """What a run keeps of its settings, so that it can be resumed without them."""
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _SESSION}
        return {name: None if value is None else _STORED.get(name, _as_it_is)(value) for name, value in kept.items()}

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> Settings:
        """The settings of a run that is resumed; one of an earlier version has fewer of them."""
        kept = {"reuse_answers": False, **kept}
        known = {name: kept[name] for name in kept if name in {each.name for each in fields(cls)} - _SESSION}
        found: dict[str, Any] = {
            name: None if value is None else _RESTORED.get(name, _as_it_is)(value) for name, value in known.items()
        }
        return cls(resume=True, **found)


_SESSION = {"scope", "resume", "retry_failed", "skip_damaged", "ready", "allow_call"}
"""Settings of one call, which a run does not keep."""


def _as_it_is(value: Any) -> Any:
    return value


_STORED: Mapping[str, Callable[[Any], Any]] = {
    "budget": asdict,
    "prices": lambda prices: {spec: asdict(price) for spec, price in prices.items()},
    "cache": str,
    "shard": str,
    "origin": dict,
}
_RESTORED: Mapping[str, Callable[[Any], Any]] = {
    "budget": lambda limits: Limits(**limits),
    "prices": lambda prices: {spec: Price(**price) for spec, price in prices.items()},
    "cache": Path,
    "shard": Shard.parse,
    "log_to": tuple,
}
"""Setting → how it is stored, and read again; the others are stored as they are."""


@dataclass(slots=True)
class LoadedArm:
    """An arm with its method, options and models."""

    arm: Arm
    method: Method
    options: Options
    models: Mapping[str, Model]
    identities: Mapping[str, bytes]


def scorer_id(benchmark: Benchmark) -> str:
    """Return the name under which a benchmark's grades are stored."""
    return f"{benchmark.name}@{benchmark.version}"


def check_plan(plan: Plan, benchmark: Benchmark) -> list[tuple[Arm, Method, Options]]:
    """Return the arms with their methods. Anything that does not fit raises an error before the first call."""
    checked: list[tuple[Arm, Method, Options]] = []
    for arm in plan.arms():
        method = METHODS.get(arm.method.name)
        check_fit(method, benchmark.kind, benchmark.name)
        options = suited(method, method.with_options(arm.method.options), benchmark.kind, arm.judge.spec)
        if method.check is not None:
            method.check(benchmark.kind, options)
        checked.append((arm, method, options))
    plan.fitted()
    _check_limits(plan, [method for _, method, _ in checked])
    for role in {role for assignment in plan.models for role in assignment} - {"base"}:
        if role == JUDGE and asks_judge(plan):
            continue
        wanted = JUDGE if is_judge(role) else role
        if not any(wanted in method.roles for _, method, _ in checked):
            raise PlanError(f"No method of this plan uses a model for the role {role!r}.")
    return checked


def suited(method: Method, options: Options, kind: SampleKind, judge: str) -> Options:
    """The options, completed by those that the judge's card suggests, unless the plan sets one of these."""
    test = method.calibration
    if not isinstance(options, Calibrated) or test is None or kind not in test.kinds:
        return options
    suggested = method_card(options.card, judge, test).options.get(method.name, {})
    if suggested.keys() & options.model_fields_set:
        return options
    return method.with_options({**options.model_dump(exclude_unset=True), **suggested})


def not_fitted(plan: Plan, benchmark: Benchmark) -> list[str]:
    """What was not fitted to the models of a plan, with the command that does it; sentences without a full stop."""
    found = [each.caveat for each in plan.fitted() if each.caveat]
    for arm, method, options in check_plan(plan, benchmark):
        if method.calibration is not None and benchmark.kind in method.calibration.kinds:
            found += card_caveats(method.name, options, arm.judge.spec, method.calibration, benchmark.kind)
    return list(dict.fromkeys(found))


def _check_limits(plan: Plan, methods: Sequence[Method]) -> None:
    """Refuse a limit of tokens for a role that there is not, or beside one of a method's own."""
    limits = plan.limits()
    roles = {ALL_ROLES, *(role for method in methods for role in method.roles)}
    for role in limits.keys() - roles:
        raise PlanError(f"max_tokens names the role {role!r}, which no method of this plan has.")
    for method in plan.methods if limits else ():
        for name in (name for name in method.options if name.endswith("_tokens")):
            raise PlanError(f"max_tokens is set for the plan, and {name} for the method {method.name}; remove one.")


def session_settings(plan: Plan) -> dict[str, Any]:
    """Return the fields of a session that the plan determines, the same in a run and in its forecast."""
    limits = plan.limits()
    return {
        "answering": Answering(plan.orders, plan.reading, plan.judge_samples, plan.judge_pool),
        "params": Params(temperature=plan.temperature, max_tokens=limits.get(ALL_ROLES), stop=tuple(plan.stop)),
        "max_tokens": limits,
    }


def asks_judge(plan: Plan) -> bool:
    """Whether a method of the plan asks a judge, or a scorer a model that it does not name."""
    scorers = BENCHMARKS.get(plan.benchmark).scorers if plan.scorers is None else plan.scorers
    by_method = any(JUDGE in METHODS.get(method.name).roles for method in plan.methods)
    return by_method or any(map(needs_model, {*scorers, *plan.scorer_specs()}))


def model_key(model: ModelPlan) -> str:
    """Return the key of a model; models with the same configuration are loaded once, whatever their prompts."""
    return model.model_dump_json(exclude={"preamble"})


def sends_batches(model: ModelPlan, settings: Settings) -> bool:
    """Whether the requests of a model go into batches; the others are sent one by one."""
    if not settings.in_batches or "," in (model.base_url or ""):
        return False
    provider = provider_class(model.provider or split_spec(model.spec)[0])
    if not hasattr(provider, "batch_api"):
        return False
    return settings.batch_queue or getattr(provider, "batch_api", None) is not None


def paid_prices(models: Iterable[ModelPlan], settings: Settings) -> dict[str, Price]:
    """Return what calls cost: the price of each model, or its share in the batches of a provider."""
    found = dict(settings.prices)
    for model in models:
        if (price := settings.prices.get(model.spec) or model.price) is not None:
            share = DISCOUNT if sends_batches(model, settings) and not settings.batch_queue else 1.0
            found[model.spec] = Price(price.input * share, price.output * share)
    return found


def check_batches(plan: Plan, settings: Settings) -> None:
    """Refuse batches of which no model of the plan can make use."""
    if not settings.in_batches:
        return
    if settings.workers:
        raise UsageError("--workers and --batch-api exclude each other; remove one.")
    if not any(sends_batches(model, settings) for model in plan.every_model()):
        raise UsageError(
            "--batch-api: none of the models has an endpoint that takes batches; name an openai/ or anthropic/ model "
            "with one address, or remove it."
        )


def load_models(
    plan: Plan, settings: Settings, cache: ResponseCache | None, budget: Budget, folder: Path | None = None
) -> dict[str, Model]:
    wanted = {model_key(model): model for assignment in plan.models for model in assignment.values()}
    return {key: loaded_model(each, settings, cache, budget, folder) for key, each in wanted.items()}


def loaded_model(
    plan: ModelPlan, settings: Settings, cache: ResponseCache | None, budget: Budget, folder: Path | None = None
) -> Model:
    """Load one model, wrapped in the budget and the cache; its batches, if wanted, are kept in the run's `folder`."""
    if not settings.allow_call:
        check_no_call(plan.model_dump(include={"spec", "provider"}), "The stored plan")
    options = plan.options(settings.concurrency)
    loaded = load_model(settings.ready.get(plan.spec, plan.spec), options)
    if folder is not None and sends_batches(plan, settings):
        from evenhand.models.batch import in_batches

        place, kept = folder / "batches", cache is not None
        in_batches(loaded, place, queue=settings.batch_queue, cached=kept, retries=options.retries)
    model: Model = MeteredModel(loaded, paid_prices([plan], settings).get(plan.spec), budget)
    return CachedModel(model, cache) if cache is not None else model


def opened_cache(settings: Settings) -> ResponseCache | None:
    return ResponseCache(settings.cache, reuse=settings.reuse_answers) if settings.cache else None


@asynccontextmanager
async def opened_model(plan: ModelPlan, settings: Settings, budget: Budget) -> AsyncGenerator[Model]:
    """Load one model, wrapped in the budget and the cache, for work outside a run; close both at the end.

    An endpoint that has never answered is given up, as in a run.
    """
    cache = opened_cache(settings)
    try:
        async with loaded_model(plan, settings, cache, budget) as model:
            yield HopefulModel(model)
    finally:
        if cache is not None:
            cache.close()


def load_arm(arm: Arm, method: Method, options: Options, models: Mapping[str, Model]) -> LoadedArm:
    chosen = {
        role: models[model_key(model)]
        if model.preamble is None
        else PromptedModel(models[model_key(model)], model.preamble)
        for role, model in arm.models.items()
    }
    for role in method.roles:
        model = chosen.get(role, chosen["base"])
        if missing := method.needs - model.features:
            raise PlanError(
                f"The method {method.name} needs {', '.join(missing)} of its model, which {model.spec} does not "
                "give; use an hf/ model."
            )
    identities = {role: model_identity(model.fingerprint()) for role, model in chosen.items()}
    return LoadedArm(arm, method, options, chosen, identities)


WAVE = 10_000
"""Samples under way at once where requests go into batches: what they wait for is one batch."""


def side_by_side(arms: Sequence[LoadedArm], concurrency: int) -> int:
    """Return how many samples are processed concurrently."""
    slots = [model.slots for arm in arms for model in arm.models.values()]
    own = [each for each in slots if each is not None]
    concurrency *= max(model.endpoints for arm in arms for model in arm.models.values())
    if len(own) == len(slots):
        # One sample per slot, so that its next call finds the cached prefix of its last one.
        return min(concurrency, max(own))
    return more_than(concurrency)


def more_than(calls: int) -> int:
    """More than the calls, so that calls go on while results are stored, and no long sample runs alone at the end."""
    return calls + max(4, calls // 2)
