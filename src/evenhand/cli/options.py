"""The options that describe a plan and how to run it, shared by run, audit, compare and paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from evenhand.asking.judge import JUDGE
from evenhand.config import read_config
from evenhand.errors import UnknownNameError, UsageError
from evenhand.models.base import split_spec
from evenhand.models.budget import Limits, Price
from evenhand.models.endpoints import check_no_call, option_names
from evenhand.models.ray.connect import set_address
from evenhand.paths import cache_folder
from evenhand.runs.parts import Settings, asks_judge
from evenhand.runs.plan import (
    ALL_ROLES,
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
from evenhand.specs import key_values, roles_and_specs

F = TypeVar("F", bound=Callable[..., Any])


skip_damaged_option = click.option(
    "--skip-damaged", is_flag=True, help="Leave out and name stored rows that cannot be read (default: stop at them)."
)


def _token_limits(
    _context: click.Context, _option: click.Parameter, texts: Sequence[str]
) -> int | dict[str, int] | None:
    """The limits of the flags as a plan has them: one number, or one for each role."""
    limits: dict[str, int] = {}
    for text in texts:
        role, _, number = text.rpartition("=")
        if not number.isascii() or not number.isdigit() or int(number) < 1 or not re.fullmatch(r"[a-z_0-9]*", role):
            raise UsageError(f"--max-tokens takes N or ROLE=N, e.g. 2000 or judge=400, not {text!r}.")
        if (role or ALL_ROLES) in limits:
            raise UsageError(f"--max-tokens is given twice for {f'the role {role}' if role else 'all roles'}.")
        limits[role or ALL_ROLES] = int(number)
    return limits[ALL_ROLES] if limits.keys() == {ALL_ROLES} else limits or None


allow_call_option = click.option(
    "--allow-call", is_flag=True, help="Allow call/ models, which run Python code, in a --config or a stored run."
)
log_to_option = click.option(
    "--log-to",
    multiple=True,
    metavar="TRACKER",
    help="Also log the results to mlflow[:URI] or wandb[:PROJECT].",
)
_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "config": click.option("--config", type=click.Path(path_type=Path), help="A YAML or TOML plan; flags win over it."),
    "allow_call": allow_call_option,
    "benchmark": click.option(
        "--benchmark", "-b", help="What to measure on (default bbq_builtin); see evenhand benchmarks."
    ),
    "settings": click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of the benchmark."
    ),
    "data": click.option("--data", metavar="FOLDER", help="The folder with the benchmark's public data."),
    "language": click.option(
        "--language", metavar="CODE", help="The language of the benchmark, e.g. es: short for --set language=CODE."
    ),
    "prompts": click.option(
        "--prompts",
        metavar="FILE",
        help="Prompts of your own (.csv, .jsonl, .xlsx, .txt, .parquet, or a saved data set), asked for different "
        "groups of people: short for --benchmark prompts --set data=FILE.",
    ),
    "attributes": click.option(
        "--attribute",
        "attributes",
        multiple=True,
        metavar="NAMES",
        help="With --prompts: what is varied, e.g. gender,race,age (default gender,race).",
    ),
    "repeats": click.option(
        "--repeats",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="With --prompts: ask this often for each group, at temperature 1 unless --temperature is given.",
    ),
    "models": click.option(
        "--model",
        "-M",
        "models",
        multiple=True,
        metavar="[ROLE=]SPEC",
        help="A model, or one for a role; repeat to compare. With options of its own: 'SPEC?base_url=…&key=VARIABLE'.",
    ),
    "judge_model": click.option(
        "--judge", "judge_model", metavar="SPEC", help="The model of the judge's role: short for --model judge=SPEC."
    ),
    "methods": click.option(
        "--method",
        "-m",
        "methods",
        multiple=True,
        metavar="NAME[:KEY=VALUE,…]",
        help="A method; repeat to compare.",
    ),
    "scorers": click.option(
        "--scorer",
        "-s",
        "scorers",
        multiple=True,
        metavar="SPEC",
        help="A scorer of the texts, instead of the benchmark's own; for stored runs see evenhand rescore.",
    ),
    "base_url": click.option(
        "--base-url", help="The endpoint of openai/ models without one (default OPENAI_BASE_URL, then OpenAI)."
    ),
    "timeout": click.option("--timeout", type=float, help="Seconds to wait for an answer (default 120)."),
    "retries": click.option("--retries", type=int, help="Retries of a call that failed (default 6)."),
    "extra": click.option(
        "--model-option",
        "extra",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the model, e.g. slots=4 for local/.",
    ),
    "effort": click.option(
        "--reasoning-effort",
        "effort",
        metavar="LEVEL",
        help="How long reasoning models think, as their endpoint calls it: minimal, low, medium, high, ….",
    ),
    "seeds": click.option(
        "--seed", "seeds", type=int, multiple=True, help="Random seed (default 0); repeat for several."
    ),
    "limit": click.option(
        "--limit", "-n", type=int, help="This many questions or prompts, spread evenly over their kinds."
    ),
    "orders": click.option(
        "--orders", type=int, help="Ask each question in this many rotations of its options (default 1)."
    ),
    "reading": click.option(
        "--reading",
        type=click.Choice(["auto", "logprobs", "constrained", "text"]),
        help="How the chosen letter is read from a reply.",
    ),
    "temperature": click.option("--temperature", type=float, help="Of calls for which the method sets no temperature."),
    "max_tokens": click.option(
        "--max-tokens",
        multiple=True,
        callback=_token_limits,
        metavar="[ROLE=]N",
        help="The most tokens of a reply, thoughts included, instead of the methods' own limits; repeat for roles. "
        "Replies of which only the first token is read stay at one.",
    ),
    "judge_samples": click.option(
        "--judge-samples",
        type=click.IntRange(1, 100),
        metavar="N",
        help="Where a judge gives no logprobs, take the mean of N sampled ratings (default 1: the number it writes).",
    ),
    "judge_pool": click.option(
        "--judge-pool",
        type=click.Choice(["mean", "vote"]),
        help="Of several judges (repeat --model judge=SPEC), take the mean rating (default) or the median.",
    ),
    "templates": click.option(
        "--templates", metavar="DIR", help="Prompt files of your own; evenhand methods NAME --prompts DIR writes some."
    ),
    "out": click.option("--out", "-o", type=click.Path(path_type=Path), help="The run directory (default runs/NAME)."),
    "concurrency": click.option(
        "--concurrency", "-c", type=click.IntRange(1), help="Concurrent calls to each endpoint (default 64)."
    ),
    "on": click.option(
        "--on",
        metavar="ray[://HOST:PORT]",
        help="Where ray/ models and --workers run: a Ray at RAY_ADDRESS or on this machine, or the one that is named.",
    ),
    "workers": click.option(
        "--workers",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="With --on ray: share the samples among N processes.",
    ),
    "replicas": click.option(
        "--replicas", type=click.IntRange(1, 4096), metavar="N", help="How many copies of each ray/ model (default 1)."
    ),
    "gpus_per_replica": click.option(
        "--gpus-per-replica",
        type=click.FloatRange(0),
        metavar="N",
        help="GPUs of a copy of a ray/ model (default 1 for ray/hf/ where there are any).",
    ),
    "budget": click.option(
        "--budget", multiple=True, metavar="LIMIT", help="Stop after '$5', '500 calls' or '2M tokens'."
    ),
    "prices": click.option(
        "--price", "prices", multiple=True, metavar="SPEC=IN/OUT", help="Money per million tokens in and out."
    ),
    "cache": click.option(
        "--cache", type=click.Path(path_type=Path), help="Response cache file (default in the cache folder)."
    ),
    "no_cache": click.option("--no-cache", is_flag=True, help="Neither read nor write the response cache."),
    "resume": click.option("--resume", is_flag=True, help="Resume the run in --out."),
    "retry_failed": click.option("--retry-failed", is_flag=True, help="With --resume: run failed samples again."),
    "max_failed": click.option(
        "--max-failed",
        metavar="LIMIT",
        help="Exit with 4 if more samples of an arm have no grade, e.g. 5% or 12; refusals are results.",
    ),
    "log_to": log_to_option,
    "otel": click.option(
        "--otel",
        is_flag=True,
        help="Send spans and results to OpenTelemetry; also on where OTEL_EXPORTER_OTLP_ENDPOINT is set.",
    ),
    "dry_run": click.option("--dry-run", is_flag=True, help="Print the expected calls, tokens and cost, and stop."),
}
"""By the name under which a command gets the value."""
correction_option = click.option(
    "--correction",
    type=click.Choice(["holm", "bh"]),
    default="holm",
    show_default=True,
    help="Of p-values for multiple tests: Holm, or Benjamini-Hochberg.",
)
"""Of the commands that compare arms."""
_CALLS = ("concurrency", "on", "budget", "prices", "cache", "no_cache")


def plan_options(command: F) -> F:
    """Decorator: the options above."""
    return plan_options_without()(command)


def plan_options_without(*names: str) -> Callable[[F], F]:
    """Decorator: the options above but those that the command fixes, or explains in its own way."""
    with_them = {"config": ("allow_call",), "benchmark": ("language", "prompts", "attributes", "repeats")}
    left_out = {*names, *(other for name in names for other in with_them.get(name, ()))}
    return with_options([option for name, option in _OPTIONS.items() if name not in left_out])


def call_options(command: F) -> F:
    """Decorator: how models are called and at what cost, for commands that call some, but not by a plan."""
    return with_options([_OPTIONS[name] for name in _CALLS])(command)


def with_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Decorator: these options, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as the user asked for it, checked: the plan, how to call models, and the run directory."""

    plan: Plan
    settings: Settings
    out: Path
    dry_run: bool
    report: Path | None = None
    """The report's file, if it is named."""


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
    return RunRequest(plan, settings, folder, given["dry_run"], report)


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
        raise UsageError(f"There is no run in {folder} to resume; remove --resume to begin one.")


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
        concurrency=given["concurrency"] or config.concurrency or 64,
        budget=Limits.parse([*budget, *given["budget"]] or config.budget),
        prices=_prices([*prices, *given["prices"]]),
        cache=None if given["no_cache"] else given["cache"] or cache_folder() / "responses.sqlite",
        resume=given.get("resume", False),
        retry_failed=given.get("retry_failed", False),
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
