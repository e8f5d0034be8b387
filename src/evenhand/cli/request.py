"""What the options of a plan and of its calls ask for: the plan, the settings and the folder, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from evenhand.cli.output import OutputFields
from evenhand.core.config import read_config
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.files import cache_folder
from evenhand.core.options import Request, Several, option
from evenhand.core.specs import key_values, roles_and_specs
from evenhand.judging.judge import JUDGE
from evenhand.models.base import split_spec
from evenhand.models.budget import Limits, Price
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
from evenhand.runs.request import PlannedRun, PlanRequest
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import most_ungraded


class AllowCallOption(Request):
    """Whether files of others may name code that is run."""

    section: ClassVar[str] = "Plan"

    allow_call: bool = option(False, "Allow call/ models, which run Python code, in a --config or a stored run.")


class ConfigOption(AllowCallOption):
    """A plan file."""

    section: ClassVar[str] = "Plan"

    config: Path | None = option(None, "A YAML or TOML plan; flags win over it.", metavar="FILE", common=True)


class ModelsOption(Request):
    """The models."""

    section: ClassVar[str] = "Model"

    models: Several = option(
        (),
        "A model, or one for a role; repeat to compare. With options of its own: 'SPEC?base_url=…&key=VARIABLE'.",
        flag="--model",
        short="-m",
        metavar="[ROLE=]SPEC",
        common=True,
    )


class DryRunOption(Request):
    """A forecast."""

    section: ClassVar[str] = "Cost"
    session: ClassVar[Sequence[str]] = ("dry_run",)

    dry_run: bool = option(False, "Print the expected calls, tokens and cost, and stop.", common=True)


class MaxFailedOption(Request):
    """When a run counts as failed."""

    section: ClassVar[str] = "Output"

    max_failed: str | None = option(
        None,
        "Exit with 4 if more samples of an arm have no grade, e.g. 5% or 12; refusals are results.",
        metavar="LIMIT",
    )


class LogToOption(Request):
    """Trackers of experiments."""

    section: ClassVar[str] = "Output"

    log_to: Several = option((), "Also log the results to mlflow[:URI] or wandb[:PROJECT].", metavar="TRACKER")


class SkipDamagedOption(Request):
    """What becomes of stored rows that cannot be read."""

    section: ClassVar[str] = "Output"
    session: ClassVar[Sequence[str]] = ("skip_damaged",)

    skip_damaged: bool = option(False, "Leave out and name stored rows that cannot be read (default: stop at them).")


class PlanCommand(ConfigOption, ModelsOption, DryRunOption, MaxFailedOption, LogToOption, PlanRequest, OutputFields):
    """A command that runs a plan; `run_asked` makes it of options, a plan file and the config files."""

    def run_asked(
        self, default_methods: Sequence[str] = ("default",), decided: Mapping[str, Any] | None = None
    ) -> PlannedRun:
        """Return the run that is asked for; see `PlanRequest.planned`."""
        made = self.planned(
            self.models,
            default_methods=default_methods,
            decided=decided,
            file=self.config,
            allow_call=self.allow_call,
            config=read_config(),
            tell=tell,
        )
        if self.resume and not self.dry_run:
            check_resume(made.out)
        return made


def tell(sentence: str) -> None:
    """Print a sentence about what a config file decides."""
    click.echo(sentence, err=True)


@dataclass(frozen=True, slots=True)
class RunRequest(PlannedRun):
    """A run of a command without a declared request."""

    dry_run: bool = False


def read_request(
    given: Mapping[str, Any], *, default_methods: Sequence[str], decided: Mapping[str, Any] | None = None
) -> RunRequest:
    """Flags over file over defaults; over all of them, the fields of the plan that the command has `decided`."""
    decided = decided or {}
    fields = read_plan_file(given["config"]) if given["config"] else {}
    if not given.get("allow_call"):
        check_no_call([fields.get(name) for name in ("models", "judges", "methods", "scorers")], given["config"])
    out = fields.pop("out", None)
    prices, budget = _texts(fields.pop("prices", ())), _texts(fields.pop("budget", ()))
    for name in (
        "benchmark",
        "limit",
        "orders",
        "reading",
        "temperature",
        "max_tokens",
        "judge_samples",
        "judge_pool",
        "templates",
    ):
        if given.get(name) is not None:
            fields[name] = given[name]
    if given["scorers"]:
        fields["scorers"] = list(given["scorers"])
    if given["seeds"]:
        fields["seeds"] = list(given["seeds"])
    options = {
        **fields.get("benchmark_options", {}),
        **key_values(given["settings"], "--set"),
        **decided.get("benchmark_options", {}),
    }
    for name in ("data", "language"):
        if given.get(name):
            options[name] = given[name]
    _add_prompts(fields, options, given)
    fields |= {**decided, "benchmark_options": options}
    if given["methods"]:
        fields["methods"] = list(given["methods"])
    fields.setdefault("methods", list(default_methods))
    plan = _with_models(fields, given)
    plan = plan.model_copy(update={"models": with_judge(plan.models, [plan])})
    settings = read_settings(given, prices, budget)
    check_prices(given, plan.every_model())
    folder, report = read_out(given["out"])
    folder = folder or Path(out or default_out(default_folder(plan.benchmark, plan)))
    if settings.resume and not given["dry_run"]:
        check_resume(folder)
    return RunRequest(plan, settings, folder, report, given["dry_run"])


def _add_prompts(fields: dict[str, Any], options: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Add what --prompts, --attribute and --repeats say to the fields of the plan and the benchmark's options."""
    if given.get("prompts"):
        if given.get("benchmark") not in (None, "prompts"):
            raise UsageError("--prompts is short for --benchmark prompts; remove --benchmark.")
        fields["benchmark"] = "prompts"
        options.pop("prompts", None)
        options["data"] = given["prompts"]
    if fields.get("benchmark") != "prompts":
        if given.get("attributes") or given.get("repeats"):
            raise UsageError("--attribute and --repeats are for --prompts FILE.")
        return
    if given.get("attributes"):
        options["attributes"] = [name.strip() for text in given["attributes"] for name in text.split(",")]
    if given.get("repeats"):
        options["repeats"] = given["repeats"]
    # Greedy repeats would all be the same answer.
    if options.get("repeats", 1) != 1 and fields.get("temperature") is None:
        fields["temperature"] = 1.0


def read_out(out: Path | None) -> tuple[Path | None, Path | None]:
    """The folder and the report that --out names: a path that ends in .html is the report."""
    if out is None:
        return None, None
    if str(out) == "-":
        raise UsageError("--out names a folder; a run cannot be written to standard output. For numbers, see --json.")
    if out.suffix.lower() in (".html", ".htm"):
        return None, out
    if out.is_file():
        raise UsageError(f"{out} is a file; --out names a folder, or a report that ends in .html.")
    return out, None


def check_file(out: Path | None, what: str) -> None:
    """Refuse an --out that cannot be a file."""
    if out is not None and (str(out) == "-" or out.is_dir()):
        named = "standard output" if str(out) == "-" else f"the folder {out}"
        raise UsageError(f"--out names {what}, a file, not {named}.")


def check_resume(folder: Path) -> None:
    """Refuse to resume where there is no run."""
    if next(folder.rglob(FILE_NAME), None) is None:
        raise UsageError(
            f"There is no run in {folder} to resume; begin one with evenhand audit, compare or run, without --resume."
        )


def cache_file(given: Mapping[str, Any]) -> Path | None:
    """Returns the file of the response cache; None if there is to be none."""
    return None if given["no_cache"] else given["cache"] or cache_folder() / "responses.sqlite"


def read_settings(given: Mapping[str, Any], prices: Sequence[str] = (), budget: Sequence[str] = ()) -> Settings:
    """How to call models: what flags say, added to the prices and limits of a plan file, or else of a config file."""
    config = read_config()
    if given.get("max_failed"):
        most_ungraded(given["max_failed"], 1)
    if given.get("on"):
        set_address(given["on"])
    elif given.get("workers"):
        raise UsageError("--workers shares the samples among processes on Ray; add --on ray.")
    return Settings(
        concurrency=given["concurrency"] or config.defaults.get("concurrency", 64),
        budget=Limits.parse([*budget, *given["budget"]] or config.defaults.get("budget", ())),
        prices=_prices([*prices, *given["prices"]]),
        cache=cache_file(given),
        resume=given.get("resume", False),
        retry_failed=given.get("retry_failed", False),
        skip_damaged=given.get("skip_damaged", False),
        max_failed=given.get("max_failed"),
        on=given.get("on"),
        workers=given.get("workers"),
        log_to=tuple(given.get("log_to", ())),
        otel=given.get("otel", False),
    )


def default_out(folder: Path) -> Path:
    """The folder of a run without --out: in the one that a config file names, if it does."""
    out = read_config().out
    return folder if out is None else Path(out) / folder.name


def check_prices(given: Mapping[str, Any], models: Iterable[ModelPlan]) -> None:
    """Refuse a --price of a model that is not used."""
    known = {model.spec for model in models}
    for spec in _prices(given["prices"]):
        if spec not in known:
            raise UsageError(f"--price: {UnknownNameError('model of this run', spec, known)}")


def read_models(given: Mapping[str, Any]) -> list[Assignment]:
    """The models of the flags, as a plan has them."""
    return _with_models({}, given).models


def _with_models(fields: dict[str, Any], given: Mapping[str, Any]) -> Plan:
    """The plan with the models of the flags: bases replace the file's, roles are added.

    Flags that say how to reach models are for those that do not say it themselves.
    """
    judge = given.get("judge_model")
    pairs = roles_and_specs(given["models"])
    if judge:
        if any(role == JUDGE for role, _ in pairs):
            raise UsageError("The judge is named twice, by --judge and by --model judge=SPEC; remove one.")
        pairs = [*pairs, (JUDGE, judge)]
    if bases := [spec for role, spec in pairs if role == "base"]:
        fields["models"] = bases
    roles = _by_role(pairs)
    if roles and "models" in fields:
        fields["models"] = [
            {**each, **roles} if isinstance(each, dict) else each for each in assignments(fields["models"])
        ]
    reach = {key: given[key] for key in ("base_url", "timeout", "retries") if given[key] is not None}
    extra = key_values(given["extra"], "--model-option")
    if effort := given.get("effort"):
        extra["reasoning_effort"] = effort
    if extra:
        reach["extra"] = extra
    plan = make_plan(fields, reach)
    _check_model_options(extra, plan)
    return _placed(plan, given)


def _placed(plan: Plan, given: Mapping[str, Any]) -> Plan:
    """The plan with the flags for ray/ models; refused if it has none of these."""
    flags = {name: given[name] for name in ("replicas", "gpus_per_replica") if given.get(name) is not None}
    on_ray = any(model.provider == "ray" for model in plan.every_model())
    if flags and not on_ray:
        raise UsageError(f"--{next(iter(flags)).replace('_', '-')} is for models on Ray; name one, e.g. ray/hf/PATH.")
    if given.get("on") and not given.get("workers") and not on_ray:
        raise UsageError("--on ray has nothing to run there: name a ray/ model, e.g. ray/hf/PATH, or add --workers N.")

    def placed(model: ModelPlan) -> ModelPlan:
        return model.model_copy(update={"extra": {**flags, **model.extra}}) if model.provider == "ray" else model

    models = [{role: placed(model) for role, model in each.items()} for each in plan.models]
    return plan.model_copy(
        update={"models": models, "judges": {spec: placed(model) for spec, model in plan.judges.items()}}
    )


def _by_role(pairs: Sequence[tuple[str, str]]) -> dict[str, str | list[str]]:
    """Role → spec; of the judge there may be several."""
    found: dict[str, list[str]] = {}
    for role, spec in pairs:
        found.setdefault(role, []).append(spec)
    for role, specs in found.items():
        if role not in ("base", JUDGE) and len(specs) > 1:
            raise UsageError(f"The role {role} is given twice; only judges may be several.")
    return {role: specs if len(specs) > 1 else specs[0] for role, specs in found.items() if role != "base"}


def _check_model_options(extra: Mapping[str, Any], plan: Plan) -> None:
    """Refuse a --model-option that no model of the plan takes."""
    taken = [option_names(model.provider or split_spec(model.spec)[0]) for model in plan.every_model()]
    if None not in taken:
        known = {name for names in taken for name in names or ()}
        for name in extra.keys() - known:
            raise UnknownNameError("model option", name, known)


def with_judge(models: Sequence[Assignment], plans: Sequence[Plan]) -> list[Assignment]:
    """The models, with the judge of the config file if a plan asks one and none is named; it is shown."""
    config = read_config()
    if config.judge is None or any(JUDGE in each for each in models) or not any(map(asks_judge, plans)):
        return list(models)
    check_no_call(config.judge, config.sources["judge"])
    judge = model_plan(config.judge)
    where = f" at {judge.base_url}" if judge.base_url else ""
    click.echo(f"The judge is {judge.spec}{where}, as {config.sources['judge']} says.", err=True)
    return [{**each, JUDGE: judge} for each in models]


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]  # pyright: ignore[reportUnknownVariableType]
    return [str(each) for each in (value if isinstance(value, (list, tuple)) else [value])]  # pyright: ignore


def _prices(texts: Sequence[str]) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for text in texts:
        spec, _, price = text.rpartition("=")
        try:
            prices[spec] = Price.parse(price)
        except ValueError as error:
            raise UsageError(
                f"--price takes SPEC=INPUT/OUTPUT, e.g. openai/gpt-4o-mini=0.15/0.60, not {text!r}."
            ) from error
    return prices
