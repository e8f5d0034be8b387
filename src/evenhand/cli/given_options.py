"""The options of commands that have no declared request yet (see `cli/options.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from evenhand.core.errors import UsageError
from evenhand.runs.plan import (
    ALL_ROLES,
)

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
        "--benchmark", "-b", help="What to measure on (default bbq_builtin); see evenhand list benchmarks."
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
        "-m",
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
        help="A scorer of the texts, instead of the benchmark's own; for stored runs see evenhand run rescore.",
    ),
    "base_url": click.option(
        "--base-url", help="The endpoint of openai/ models without one (default OPENAI_BASE_URL, then OpenAI)."
    ),
    "timeout": click.option("--timeout", type=float, help="Seconds to wait for an answer (default 120)."),
    "retries": click.option("--retries", type=click.IntRange(0), help="Retries of a call that failed (default 6)."),
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
        "--limit", "-n", type=click.IntRange(1), help="This many questions or prompts, spread evenly over their kinds."
    ),
    "orders": click.option(
        "--orders", type=click.IntRange(1), help="Ask each question in this many rotations of its options (default 1)."
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
        "--templates",
        metavar="DIR",
        help="Prompt files of your own; evenhand list methods NAME --prompts DIR writes some.",
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


def cache_options(command: F) -> F:
    """Decorator: where replies of models are kept, for commands that call some and have nothing else to say of it."""
    return with_options([_OPTIONS[name] for name in ("cache", "no_cache")])(command)


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
