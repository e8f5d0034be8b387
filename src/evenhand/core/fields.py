"""The options of a plan and of how models are called, each declared here and nowhere else.

`runs/plan.py` has the plan, which is stored; `runs/request.py` makes it of what was asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field

from evenhand.core.errors import PlanError, UsageError
from evenhand.core.options import Request, Several, option
from evenhand.core.specs import key_values
from evenhand.core.types import Price

ALL_ROLES = "all"
"""Stands for the roles that a plan's `max_tokens` does not name."""


def key_value(flag: str) -> Any:
    """Return the reader of an option that takes KEY=VALUE and may be repeated."""
    return partial(key_values, prefix=flag)


def _limits(value: Any) -> Any:
    numbers = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else [value]
    if value is not None and not (numbers and all(type(each) is int and each >= 1 for each in numbers)):
        raise PlanError(f"max_tokens is a number from 1, or one for each role (judge: 400), not {value!r}.")
    return cast(Any, value)


def read_token_limits(texts: Sequence[str]) -> int | dict[str, int] | None:
    """Return the limits of --max-tokens as a plan has them: one number, or one for each role."""
    limits: dict[str, int] = {}
    for text in texts:
        role, _, number = text.rpartition("=")
        if not number.isascii() or not number.isdigit() or int(number) < 1 or not re.fullmatch(r"[a-z_0-9]*", role):
            raise UsageError(f"--max-tokens takes N or ROLE=N, e.g. 2000 or judge=400, not {text!r}.")
        if (role or ALL_ROLES) in limits:
            raise UsageError(f"--max-tokens is given twice for {f'the role {role}' if role else 'all roles'}.")
        limits[role or ALL_ROLES] = int(number)
    return limits[ALL_ROLES] if limits.keys() == {ALL_ROLES} else limits or None


def read_prices(texts: Sequence[str]) -> dict[str, Price]:
    """Return spec → price of texts SPEC=INPUT/OUTPUT."""
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


_NUMBER = re.compile(r"[-+−]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def sizes_by_metric(texts: Sequence[str], flag: str) -> dict[str, float]:
    """Return metric → size of texts N or METRIC=N; the metric is empty for all that are not named."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not _NUMBER.fullmatch(number.strip()) or number.strip().startswith(("-", "−")):
            raise UsageError(f"{flag} takes N or METRIC=N, with N from 0, e.g. 2 or bias_ambig=3, not {text!r}.")
        found[name.strip()] = float(number)
    return found


def _published(texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name.strip() or not _NUMBER.fullmatch(number.strip()):
            raise UsageError(f"--published takes METRIC=DIFFERENCE, e.g. accuracy_ambig=+12.5, not {text!r}.")
        found[name.strip()] = float(number.strip().replace("−", "-"))
    return found


CONTROLS: Any = option(
    "on",
    "Before metrics that rest on a judge or scorer, check on texts of known value whether it sees what it rates "
    "(default on). Without it the report says so.",
)


class PlanFields(Request):
    """The fields of a plan that are asked for as they are stored; everything here changes results."""

    section: ClassVar[str] = "Plan"

    benchmark: str = option("bbq_builtin", "What to measure on; see evenhand list benchmarks.", short="-b", common=True)
    benchmark_options: dict[str, Any] = option(
        {}, "An option of the benchmark.", flag="--set", metavar="KEY=VALUE", read=key_value("--set"), common=True
    )
    scorers: list[str] | None = option(
        None,
        "A scorer of the texts, instead of the benchmark's own; for stored runs see evenhand run rescore.",
        flag="--scorer",
        short="-s",
        metavar="SPEC",
    )
    seeds: Annotated[list[int], Field(min_length=1)] = option(
        [0], "Random seed (default 0); repeat for several.", flag="--seed"
    )
    limit: int | None = option(
        None, "Number of questions or prompts, spread evenly over categories.", short="-n", ge=1, common=True
    )
    orders: int = option(1, "Ask each question in this many rotations of its options.", ge=1)
    reading: Literal["auto", "logprobs", "constrained", "text"] = option(
        "auto", "How the chosen letter is read from a reply."
    )
    temperature: float | None = option(None, "Of calls for which the method sets no temperature.", ge=0)
    stop: Several = option((), "A text at which replies of the audited model end; repeat for more.", metavar="TEXT")
    max_tokens: Annotated[int | dict[str, int] | None, BeforeValidator(_limits)] = option(
        None,
        "The most tokens of a reply, thoughts included, instead of the methods' own limits; repeat for roles. "
        "Replies of which only the first token is read stay at one.",
        metavar="[ROLE=]N",
        read=read_token_limits,
    )
    judge_samples: int = option(
        1,
        "Where a judge gives no logprobs, take the mean of N sampled ratings (default 1: the number it writes).",
        metavar="N",
        ge=1,
        le=100,
    )
    controls: Literal["on", "off"] = CONTROLS
    judge_pool: Literal["mean", "vote"] = option(
        "mean", "Of several judges (repeat --model judge=SPEC), take the mean rating (default) or the median."
    )


class ReachFields(Request):
    """How models are reached that do not say it themselves."""

    section: ClassVar[str] = "Model"

    base_url: str | None = option(
        None, "The endpoint for openai/ models that name none (default OPENAI_BASE_URL, then OpenAI).", common=True
    )
    timeout: float | None = option(None, "Seconds to wait for an answer (default 120).", gt=0)
    retries: int | None = option(None, "Retries of a call that failed (default 6).", ge=0)
    model_options: dict[str, Any] = option(
        {},
        "An option of the model, e.g. slots=4 for local/.",
        flag="--model-option",
        metavar="KEY=VALUE",
        read=key_value("--model-option"),
    )
    reasoning_effort: str | None = option(
        None,
        "How long reasoning models think, as their endpoint calls it: minimal, low, medium, high, ….",
        metavar="LEVEL",
    )


class DeploymentFields(Request):
    """How the audited model is deployed."""

    section: ClassVar[str] = "Model"

    system: Several = option(
        (),
        "The model's system prompt, a file or a text, '' for none; audits compare several.",
        metavar="FILE|TEXT",
        common=True,
    )
    history: str | Path | None = option(None, "Turns that precede every question (YAML or JSON Lines).", metavar="FILE")


class ProfileField(DeploymentFields):
    """A named set of options."""

    section: ClassVar[str] = "Model"

    profile: str | None = option(
        None, "The options under [profiles.NAME] in evenhand.toml, e.g. those of production.", metavar="NAME"
    )


class CacheFields(Request):
    """Where replies of models are kept."""

    section: ClassVar[str] = "Cost"

    reuse_answers: bool = option(
        False,
        "Reuse what endpoints answered in earlier runs, although another model may be behind their names by now. A run "
        "always reuses its own answers, and those of local weights and pinned models.",
    )
    cache: Path | None = option(
        None, "A response cache file of your own; all answers in it are reused, as with --reuse-answers."
    )
    no_cache: bool = option(False, "Neither read nor write the response cache.")


class CallFields(CacheFields):
    """How many calls are made at once, and at what cost."""

    section: ClassVar[str] = "Cost"

    concurrency: int = option(64, "Concurrent calls to each endpoint.", short="-c", ge=1)
    budget: Several = option((), "Stop after '$5', '500 calls' or '2M tokens'.", metavar="LIMIT", common=True)
    prices: Mapping[str, Price] = option(
        {}, "Money per million tokens in and out.", flag="--price", metavar="SPEC=IN/OUT", read=read_prices
    )


class RayFields(Request):
    """Where models and workers run, if not in this process."""

    section: ClassVar[str] = "Cluster"

    on: str | None = option(
        None,
        "Where ray/ models and --workers run: a Ray at RAY_ADDRESS or on this machine, or the one that is named.",
        metavar="ray[://HOST:PORT]",
    )
    workers: int | None = option(
        None, "With --on ray: share the samples among N processes.", metavar="N", ge=1, le=4096
    )
    replicas: int | None = option(None, "How many copies of each ray/ model (default 1).", metavar="N", ge=1, le=4096)
    gpus_per_replica: float | None = option(
        None, "GPUs of a copy of a ray/ model (default 1 for ray/hf/ where there are any).", metavar="N", ge=0
    )


class ComparisonFields(Request):
    """How arms are compared."""

    section: ClassVar[str] = "Comparison"

    baseline: str | None = option(None, "The arm that the others are compared with (default: the first `default`).")
    correction: Literal["holm", "bh"] = option(
        "holm", "Correction of p-values for multiple testing: Holm, or Benjamini-Hochberg."
    )
    iterations: bool = option(False, "Also compare the answers after each iteration.")
    margins: dict[str, float] = option(
        {},
        "Changes up to N do not matter, of one metric or of all (default: 3 % of the metric's scale).",
        flag="--margin",
        metavar="[METRIC=]N",
        read=partial(sizes_by_metric, flag="--margin"),
    )
    published: dict[str, float] = option(
        {},
        "A published difference from the baseline: the report says whether it is excluded.",
        metavar="METRIC=DIFFERENCE",
        read=_published,
    )


class ConfigFields(PlanFields, ReachFields, CallFields, RayFields):
    """The options that evenhand.toml may set for all commands that have them."""

    fixed: ClassVar[Sequence[str]] = ("prices",)
    """Prices have a table of their own there, [prices]."""


class ProfileFields(ConfigFields, DeploymentFields):
    """The options that a profile in evenhand.toml may set."""
