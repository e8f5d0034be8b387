"""`evenhand init`: the first files of a project that holds a model to limits."""

from __future__ import annotations

import json
import math
import os
import shlex
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import yaml

from evenhand.benchmarks.base import Metric, load_benchmark
from evenhand.cli.options import command
from evenhand.core.config import PROJECT_FILE
from evenhand.core.errors import UsageError
from evenhand.core.fields import DeploymentFields
from evenhand.core.options import argument, option
from evenhand.core.preamble import read_preambles
from evenhand.core.specs import model_spec
from evenhand.runs.plan import make_plan
from evenhand.stats import size_for_difference

PLAN, BASELINE = "plan.yaml", "baseline.json"
WORKFLOW, USED = ".github/workflows/evenhand.yml", ".github/actions/evenhand/action.yml"
_CONFIG = """\
# Defaults of all commands in this folder. Flags and plans win over them.
out = "runs"
budget = "2000 calls"
"""
_ABOUT = """\
# The gate: fails if the headline or one of its guardrails is decidedly worse than in baseline.json, and cannot tell
# (exit code 6) if there are too few samples to see a worsening of `detect`. Make baseline.json once, and again when a
# change is wanted; `evenhand init` printed the command.
"""
_POINTS = 100.0
"""The scale of metrics in percent."""
_COUNTING = 0.5
"""The share of the samples that count for one metric; of BBQ, each half has metrics of its own."""


class InitCommand(DeploymentFields):
    folder: Path = argument("The folder of the new project.", default=Path())
    model: str = option("local/builtin", "The model that the plan measures.", short="-m", metavar="SPEC")
    benchmark: str = option("bbq_builtin", "What the plan measures it on; see evenhand list benchmarks.", short="-b")
    base_url: str | None = option(
        None, "The endpoint of an openai/ model, kept in the plan (default OPENAI_BASE_URL, if set)."
    )
    detect: float = option(
        20.0, "The loss that the gate must detect, in percent of a metric's scale.", gt=0, le=100, metavar="PERCENT"
    )
    limit: int | None = option(
        None, "Questions or prompts (default: enough to see --detect with 80 % power).", short="-n", ge=1
    )


@command(InitCommand)
def init(request: InitCommand) -> None:
    """Write a project into FOLDER: evenhand.toml, plan.yaml, and a GitHub workflow whose gate compares with a baseline.

    \b
    Examples:
      evenhand init
      evenhand init audit --model openai/gpt-4o-mini
      evenhand init audit --model openai/prod --base-url https://models.example.org/v1 --detect 10

    No file is overwritten, and no model is called.
    """
    measured = load_benchmark(request.benchmark)
    guarded = [
        each
        for each in measured.metrics()
        if each.name in (measured.headline, *measured.guardrails) and each.better is not None
    ]
    share = request.detect / 100
    plan: dict[str, Any] = {
        "benchmark": request.benchmark,
        "models": [_reached(request)],
        "limit": request.limit or max(_samples_needed(each, share) for each in guarded),
    }
    make_plan(plan)
    read_preambles(request.system, request.history)
    here = {
        name: [_from(request.folder, str(each)) for each in given]
        for name, given in (("system", request.system), ("history", [request.history] if request.history else []))
    }
    plan |= {name: given[0] if len(given) == 1 else given for name, given in here.items() if given}
    named = [f"{each.name}={share * each.scale:g}" for each in guarded if each.scale != _POINTS]
    detect = [*([f"{request.detect:g}"] if len(named) < len(guarded) else []), *named]
    measure = ["evenhand", "audit", "--config", PLAN, "--out", "runs/baseline"]
    gate = ["evenhand", "gate", "--config", PLAN, "--against", BASELINE, "--out", "runs/gate"]
    gate += [part for each in detect for part in ("--detect", each)]
    content = {
        PROJECT_FILE: _CONFIG,
        PLAN: yaml.safe_dump(plan, sort_keys=False, allow_unicode=True),
        WORKFLOW: _ABOUT + yaml.safe_dump(_workflow(request, detect), sort_keys=False, allow_unicode=True),
        USED: (files("evenhand.integrations") / "github" / "action.yml").read_text(encoding="utf-8"),
    }
    if taken := [name for name in content if (request.folder / name).exists()]:
        raise UsageError(f"{request.folder / taken[0]} exists already, and nothing was written; choose another folder.")
    for name, text in content.items():
        (request.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (request.folder / name).write_text(text, encoding="utf-8")
        click.echo(str(request.folder / name))
    there = "" if request.folder == Path() else f"cd {shlex.quote(str(request.folder))} && "
    click.echo(f"What it costs: {there}{shlex.join([*measure, '--dry-run'])}")
    click.echo(f"The baseline:  {there}{shlex.join(measure)} --json > {BASELINE}")
    click.echo(f"The gate:      {there}{shlex.join(gate)}")
    if not _is_evenhand(request.folder / "pyproject.toml") and _comes_from_a_folder():
        click.echo(
            f"This Evenhand was installed from a folder, and the workflow installs {_pinned()} from the package index: "
            "check that it is published, or name a wheel or a checkout in `source`.",
            err=True,
        )


def _from(folder: Path, text: str) -> str:
    """Return a file's path as it is named in the project's folder; a text as it is."""
    return os.path.relpath(text, folder) if "\n" not in text and len(text) < 1000 and Path(text).is_file() else text


def _samples_needed(metric: Metric, share: float) -> int:
    """How many samples show a change of this share of the metric's scale, with 80 % power and the largest spread.

    A value of a metric that is best at zero may lie on both sides of it, so that its spread is twice that of a share.
    """
    return math.ceil(size_for_difference(share, 1.0 if metric.better == "zero" else 0.5) / _COUNTING)


def _reached(request: InitCommand) -> str:
    """The model with the endpoint that is used here, so that the gate measures the same one."""
    spec, given = model_spec(request.model)
    if not spec.startswith("openai/") or "base_url" in given:
        if request.base_url is not None:
            raise UsageError("--base-url is for an openai/ model that names no base_url itself; remove one of them.")
        return request.model
    url = request.base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        return request.model
    return request.model + ("&" if given else "?") + f"base_url={url}"


def _comes_from_a_folder() -> bool:
    """Whether pip installed this package from a folder, so that no index need have its version."""
    found = distribution("evenhand").read_text("direct_url.json")
    return found is not None and "dir_info" in json.loads(found)


def _pinned() -> str:
    return f"evenhand=={distribution('evenhand').version}"


def _workflow(request: InitCommand, detect: Sequence[str]) -> dict[str, Any]:
    """The workflow that runs the gate on each pull request."""
    model = request.model
    provider = model.partition("/")[0]
    given = {"config": PLAN, "against": BASELINE, "detect": "\n".join(detect)}
    given["version"] = _pinned().removeprefix("evenhand")
    if _is_evenhand(request.folder / "pyproject.toml"):
        del given["version"]
        given["source"] = "."
    if provider in ("local", "hf", "ray", "inspect"):
        given["extras"] = provider
    if model == "local/builtin":
        given["builtin"] = "true"
    job: dict[str, Any] = {"runs-on": "ubuntu-latest", "timeout-minutes": 60}
    if provider == "openai":
        job["env"] = {"OPENAI_API_KEY": "${{ secrets.OPENAI_API_KEY }}"}
    job["steps"] = [
        {"uses": "actions/checkout@v5"},
        {"uses": f"./{Path(USED).parent.as_posix()}", "with": given},
    ]
    return {"name": "Evenhand", "on": ["pull_request"], "permissions": {"contents": "read"}, "jobs": {"gate": job}}


def _is_evenhand(project: Path) -> bool:
    """Whether a pyproject.toml is that of Evenhand itself."""
    try:
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"] == "evenhand"
    except (OSError, ValueError, LookupError):
        return False
