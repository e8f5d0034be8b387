"""What is asked for by the options of a run, and the plan, settings and folder that it means, checked.

A command that runs plans extends `PlanRequest` and calls `planned`; so do the public functions, without config files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.config import Config
from evenhand.core.errors import UnknownNameError, UsageError, check_names
from evenhand.core.fields import (
    CacheFields,
    CallFields,
    DeploymentFields,
    PlanFields,
    ProfileField,
    ProfileFields,
    RayFields,
    ReachFields,
    read_prices,
)
from evenhand.core.files import cache_folder
from evenhand.core.options import Request, Several, option
from evenhand.core.preamble import Preamble, read_preambles
from evenhand.core.specs import roles_and_specs
from evenhand.judging.judge import JUDGE
from evenhand.models.base import split_spec
from evenhand.models.budget import Limits
from evenhand.models.endpoints import check_no_call, option_names
from evenhand.models.ray.connect import set_address
from evenhand.runs.parts import Settings, asks_judge
from evenhand.runs.plan import (
    Assignment,
    ModelPlan,
    Plan,
    assignments,
    default_folder,
    make_plan,
    model_plan,
    read_plan_file,
)
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import most_ungraded
from evenhand.session import answers

NO_CONFIG = Config()


def _say_nothing(_sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run as it was asked for, checked: the plan, how to call models, and the run directory."""

    plan: Plan
    settings: Settings
    out: Path
    report: Path | None = None
    """The report's file, if it is named."""


class TemplatesField(Request):
    """The prompts."""

    section: ClassVar[str] = "Method"

    templates: str | Path | None = option(
        None, "Prompt files of your own; evenhand list methods NAME --prompts DIR writes some.", metavar="DIR"
    )


class MethodFields(TemplatesField):
    """What answers."""

    section: ClassVar[str] = "Method"

    methods: Several = option(
        (), "A method; repeat to compare.", flag="--method", metavar="NAME[:KEY=VALUE,…]", common=True
    )


class DataFields(Request):
    """Options of a benchmark that have a name of their own."""

    section: ClassVar[str] = "Plan"

    data: str | Path | None = option(None, "The folder with the benchmark's public data.", metavar="FOLDER")
    language: str | None = option(
        None, "The language of the benchmark, e.g. es: short for --set language=CODE.", metavar="CODE"
    )
    prompts: str | Path | None = option(
        None,
        "Your own prompts (.csv, .jsonl, .xlsx, .txt, .parquet, or a saved data set), asked about different "
        "groups of people: short for --benchmark prompts --set data=FILE.",
        metavar="FILE",
        common=True,
    )
    attributes: Several = option(
        (),
        "With --prompts: the attributes to vary, e.g. gender,race,age (default gender,race).",
        flag="--attribute",
        metavar="NAMES",
        common=True,
    )
    repeats: int | None = option(
        None,
        "With --prompts: how often each prompt is asked per group, at temperature 1 unless --temperature is given.",
        metavar="N",
        ge=1,
        le=1000,
    )


class JudgeFields(Request):
    """The judge."""

    section: ClassVar[str] = "Model"

    judge: str | None = option(
        None, "The model that judges; short for --model judge=SPEC.", metavar="SPEC", common=True
    )


class RunFields(Request):
    """Where a run is stored, and whether it goes on."""

    section: ClassVar[str] = "Output"
    session: ClassVar[Sequence[str]] = ("out", "resume", "retry_failed")

    out: Path | None = option(None, "The run directory (default runs/NAME).", short="-o", common=True)
    resume: bool = option(False, "Resume the run in --out.")
    retry_failed: bool = option(False, "With --resume: run failed samples again.")
    batch_api: bool = option(
        False,
        "Send requests in batches of the provider's batch API, at half the price; answers may take hours, and the run "
        "can be stopped and resumed meanwhile.",
    )
    batch_queue: bool = option(
        False, "The same through files in the run's folder, which anything that reads OpenAI's batch format answers."
    )
    otel: bool = option(
        False, "Send spans and results to OpenTelemetry; also on where OTEL_EXPORTER_OTLP_ENDPOINT is set."
    )


class CallRequest(CallFields, RayFields):
    """A request that calls models."""

    def configured(self, config: Config) -> dict[str, Any]:
        """Return the defaults in config files of options that were not given; a command's own options have none."""
        kind = type(self)
        profile = config.profile(self.profile if isinstance(self, ProfileField) else None)
        return {
            name: value
            for name, value in {**config.defaults, **profile}.items()
            if name in kind.offered()
            and kind.owner(name) in ProfileFields.__mro__
            and name not in self.model_fields_set
        }

    def settings_for(
        self, config: Config = NO_CONFIG, *, prices: Sequence[str] = (), budget: Sequence[str] = ()
    ) -> Settings:
        """Return how to call models; `prices` and `budget` are those of a plan file, to which options add."""
        whole = self.changed(**self.configured(config))
        if whole.on:
            set_address(whole.on)
        elif whole.workers:
            raise UsageError("--workers shares the samples among processes on Ray; add --on ray.")
        made = {each.name for each in fields(Settings)} & type(self).model_fields.keys()
        same = {
            name: getattr(whole, name) for name in made - {"budget", "prices", "cache", "reuse_answers", "allow_call"}
        }
        if same.get("max_failed"):
            most_ungraded(same["max_failed"], 1)
        limits = [*budget, *self.budget] or whole.budget
        cache, reuse = cache_use(whole)
        return Settings(
            **same,
            budget=Limits.parse(limits),
            prices={**read_prices(prices), **self.prices},
            cache=cache,
            reuse_answers=reuse,
        )

    def over(self, base: Settings) -> Settings:
        """Return settings with what was given in their place; for Python callers."""
        made, known = self.settings_for(), {each.name for each in fields(Settings)}
        given = self.model_fields_set & known
        if self.reuse_answers and base.cache is None:
            given |= {"cache"}
        return replace(base, **{name: getattr(made, name) for name in given})

    def check_prices(self, models: Iterable[ModelPlan]) -> None:
        """Refuse a --price of a model that is not used."""
        known = {model.spec for model in models}
        for spec in self.prices:
            if spec not in known:
                raise UsageError(f"--price: {UnknownNameError('model of this run', spec, known)}")


class ModelsRequest(ReachFields, CallRequest):
    """A request that names models and says how to reach them."""

    def models_named(self, named: Sequence[Any]) -> list[Assignment]:
        """Return models as a plan has them: [ROLE=]SPEC texts, or what Python callers pass."""
        return self.with_models({}, named).models

    def one_model(self, spec: str) -> ModelPlan:
        """Return the only model of the request; a --price of another one is refused."""
        [assignment] = self.models_named([spec])
        self.check_prices([assignment["base"]])
        return assignment["base"]

    def with_models(self, plan: dict[str, Any], named: Sequence[Any], judge: str | None = None) -> Plan:
        """Return the plan with these models: bases replace those of a file, roles are added.

        Options that say how to reach models are for those that do not say it themselves.
        """
        given = dict(plan)
        texts = [each for each in named if isinstance(each, str)]
        if len(texts) < len(named):  # of Python callers, with roles in maps
            given["models"] = list(named)
            texts = []
        pairs = roles_and_specs(texts)
        if judge:
            if any(role == JUDGE for role, _ in pairs):
                raise UsageError("The judge is named twice, by --judge and by --model judge=SPEC; remove one.")
            pairs = [*pairs, (JUDGE, judge)]
        if bases := [spec for role, spec in pairs if role == "base"]:
            given["models"] = bases
        roles = _by_role(pairs)
        if roles and "models" in given:
            given["models"] = [
                {**each, **roles} if isinstance(each, dict) else each for each in assignments(given["models"])
            ]
        reach: dict[str, Any] = {"base_url": self.base_url, "timeout": self.timeout, "retries": self.retries}
        reach = {name: value for name, value in reach.items() if value is not None}
        extra = dict(self.model_options)
        if self.reasoning_effort:
            extra["reasoning_effort"] = self.reasoning_effort
        if extra:
            reach["extra"] = extra
        made = make_plan(given, reach)
        _check_model_options(extra, made)
        return self._placed(made)

    def _placed(self, plan: Plan) -> Plan:
        """Return the plan with the options for ray/ models; refused if it has none of these."""
        flags = {name: value for name in ("replicas", "gpus_per_replica") if (value := getattr(self, name)) is not None}
        on_ray = any(model.provider == "ray" for model in plan.every_model())
        if flags and not on_ray:
            raise UsageError(
                f"--{next(iter(flags)).replace('_', '-')} is for models on Ray; name one, e.g. ray/hf/PATH."
            )
        if self.on and not self.workers and not on_ray:
            raise UsageError(
                "--on ray has nothing to run there: name a ray/ model, e.g. ray/hf/PATH, or add --workers N."
            )

        def placed(model: ModelPlan) -> ModelPlan:
            return model.model_copy(update={"extra": {**flags, **model.extra}}) if model.provider == "ray" else model

        models = [{role: placed(model) for role, model in each.items()} for each in plan.models]
        return plan.model_copy(
            update={"models": models, "judges": {spec: placed(model) for spec, model in plan.judges.items()}}
        )


class PlanRequest(DataFields, PlanFields, JudgeFields, MethodFields, ProfileField, ModelsRequest, RunFields):
    """A run that is asked for by options; `planned` makes it."""

    def plan_fields(self, config: Config | None = None) -> dict[str, Any]:
        """Return the fields of the plan that are asked for by name, by options or a config file."""
        configured = {} if config is None else self.configured(config)
        defaults = {name: value for name, value in configured.items() if name in PlanFields.model_fields}
        own = self.given(PlanFields)
        if self.templates is not None:
            own["templates"] = self.templates
        return {**defaults, **own}

    def preambles(self, config: Config = NO_CONFIG, in_file: Mapping[str, Any] | None = None) -> list[Preamble]:
        """Return the system prompts with their history: of options, over those of a plan file, over a profile's."""
        given = {**self.configured(config), **(in_file or {}), **self.given(DeploymentFields)}
        system = given.get("system") or ()
        return read_preambles((system,) if isinstance(system, str) else tuple(map(str, system)), given.get("history"))

    def planned(
        self,
        models: Sequence[Any],
        *,
        default_methods: Sequence[str] = (),
        decided: Mapping[str, Any] | None = None,
        file: Path | None = None,
        allow_call: bool = False,
        config: Config = NO_CONFIG,
        tell: Callable[[str], None] = _say_nothing,
    ) -> PlannedRun:
        """Options over file over config over defaults; over all, the fields of the plan that the command has `decided`.

        Args:
            models: [ROLE=]SPEC texts, or what Python callers pass; empty: those of the file.
            default_methods: Where neither options nor the file name one.
            file: A plan file.
            allow_call: Whether the file may name models that run Python code.
            tell: Takes a sentence about what a config file decides.
        """
        decided = decided or {}
        plan = read_plan_file(file) if file else {}
        if not allow_call:
            check_no_call([plan.get(name) for name in ("models", "judges", "methods", "scorers")], file)
        out = plan.pop("out", None)
        prompts = {name: plan.pop(name) for name in DeploymentFields.model_fields if name in plan}
        prices, budget = _texts(plan.pop("prices", ())), _texts(plan.pop("budget", ()))
        in_file = {name: value for name, value in plan.items() if name != "benchmark_options"}
        defaults = {name: value for name, value in self.configured(config).items() if name in PlanFields.model_fields}
        options = {
            **plan.get("benchmark_options", {}),
            **self.benchmark_options,
            **decided.get("benchmark_options", {}),
            **{name: value for name in ("data", "language") if (value := getattr(self, name))},
        }
        given = {**defaults, **in_file, **self.plan_fields()}
        self._add_prompts(given, options)
        given |= {**decided, "benchmark_options": options}
        if self.methods:
            given["methods"] = list(self.methods)
        given.setdefault("methods", list(default_methods))
        made = self.with_models(given, models, self.judge)
        made = made.model_copy(update={"models": with_judge(made.models, [made], config, tell)})
        models = deployed(made.models, self.preambles(config, prompts), BENCHMARKS.get(made.benchmark).kind)
        made = made.model_copy(update={"models": models})
        settings = self.settings_for(config, prices=prices, budget=budget)
        self.check_prices(made.every_model())
        folder, report = read_out(self.out)
        folder = folder or Path(out or default_out(default_folder(made.benchmark, made), config))
        return PlannedRun(made, settings, folder, report)

    def _add_prompts(self, plan: dict[str, Any], options: dict[str, Any]) -> None:
        """Add what --prompts, --attribute and --repeats say to the fields of the plan and the benchmark's options."""
        if self.prompts:
            if "benchmark" in self.model_fields_set and self.benchmark != "prompts":
                raise UsageError("--prompts is short for --benchmark prompts; remove --benchmark.")
            plan["benchmark"] = "prompts"
            options.pop("prompts", None)
            options["data"] = self.prompts
        if plan.get("benchmark") != "prompts":
            if self.attributes or self.repeats:
                raise UsageError("--attribute and --repeats are for --prompts FILE.")
            return
        if self.attributes:
            options["attributes"] = [name.strip() for text in self.attributes for name in text.split(",")]
        if self.repeats:
            options["repeats"] = self.repeats
        # Greedy repeats would all be the same answer.
        if options.get("repeats", 1) != 1 and plan.get("temperature") is None:
            plan["temperature"] = 1.0


def cache_use(request: CacheFields) -> tuple[Path | None, bool]:
    """Return the file of the response cache, None if there is to be none, and whether all answers in it are reused."""
    if request.no_cache:
        if request.reuse_answers:
            raise UsageError("--reuse-answers reads the response cache, and --no-cache does not; remove one.")
        return None, False
    return request.cache or cache_folder() / "responses.sqlite", request.reuse_answers or request.cache is not None


def read_out(out: Path | None) -> tuple[Path | None, Path | None]:
    """Return the folder and the report that --out names: a path that ends in .html is the report."""
    if out is None:
        return None, None
    if str(out) == "-":
        raise UsageError("--out names a folder; a run cannot be written to standard output. For numbers, see --json.")
    if out.suffix.lower() in (".html", ".htm"):
        return None, out
    if out.is_file():
        raise UsageError(f"{out} is a file; --out names a folder, or a report that ends in .html.")
    return out, None


def check_resume(folder: Path) -> None:
    if next(folder.rglob(FILE_NAME), None) is None:
        raise UsageError(
            f"There is no run in {folder} to resume; begin one with evenhand audit, compare or run, without --resume."
        )


def default_out(folder: Path, config: Config) -> Path:
    """Return the folder of a run without --out: in the one that a config file names, if it does."""
    return folder if config.out is None else Path(config.out) / folder.name


def with_judge(
    models: Sequence[Assignment], plans: Sequence[Plan], config: Config, tell: Callable[[str], None] = _say_nothing
) -> list[Assignment]:
    """Return the models; a plan that needs a judge and names none gets the config's, with a notice."""
    if config.judge is None or any(JUDGE in each for each in models) or not any(map(asks_judge, plans)):
        return list(models)
    check_no_call(config.judge, config.sources["judge"])
    judge = model_plan(config.judge)
    where = f" at {judge.base_url}" if judge.base_url else ""
    tell(f"The judge is {judge.spec}{where}, as {config.sources['judge']} says.")
    return [{**each, JUDGE: judge} for each in models]


def deployed(models: Sequence[Assignment], preambles: Sequence[Preamble], kind: str) -> list[Assignment]:
    """Return each set of models under each of the prompts, which those get that answer for the audited system."""
    return [
        {
            role: model.model_copy(update={"preamble": preamble}) if answers(role, kind) else model
            for role, model in each.items()
        }
        for each in models
        for preamble in preambles
    ] or list(models)


def prompted_plan(values: Mapping[str, Any]) -> Plan:
    """Return the plan of these fields, of which `system` and `history` are its prompts; never for a stored plan."""
    own = dict(values)
    system, history = own.pop("system", ()), own.pop("history", None)
    made = make_plan(own)
    preambles = read_preambles((system,) if isinstance(system, str) else tuple(system), history)
    return made.model_copy(update={"models": deployed(made.models, preambles, BENCHMARKS.get(made.benchmark).kind)})


def _by_role(pairs: Sequence[tuple[str, str]]) -> dict[str, str | list[str]]:
    """Return role → spec; of the judge there may be several."""
    found: dict[str, list[str]] = {}
    for role, spec in pairs:
        found.setdefault(role, []).append(spec)
    for role, specs in found.items():
        if role not in ("base", JUDGE) and len(specs) > 1:
            raise UsageError(f"The role {role} is given twice; only judges may be several.")
    return {role: specs if len(specs) > 1 else specs[0] for role, specs in found.items() if role != "base"}


def _check_model_options(extra: Mapping[str, Any], plan: Plan) -> None:
    if not extra:
        return
    taken = [option_names(model.provider or split_spec(model.spec)[0]) for model in plan.every_model()]
    if None not in taken:
        check_names("model option", {name for names in taken for name in names or ()}, *extra)


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]  # pyright: ignore[reportUnknownVariableType]
    return [str(each) for each in (value if isinstance(value, (list, tuple)) else [value])]  # pyright: ignore
