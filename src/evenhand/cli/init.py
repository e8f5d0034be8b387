"""`evenhand init`: the first files of a project that holds a model to limits."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.groups import Command
from evenhand.cli.options import declared
from evenhand.core.config import PROJECT_FILE
from evenhand.core.errors import UsageError
from evenhand.core.options import Request, argument, option
from evenhand.integrations.github import ACTION
from evenhand.runs.plan import make_plan

PLAN, WORKFLOW, USED = "plan.yaml", ".github/workflows/evenhand.yml", ".github/actions/evenhand/action.yml"
_CONFIG = """\
# Defaults of all commands in this folder. Flags and plans win over them.
out = "runs"
budget = "2000 calls"
"""
_ABOUT = """\
# The gate: fails if the whole interval of a metric is beyond its limit.
# Remove `undecided: pass` once the plan asks enough questions to decide.
"""


class InitCommand(Request):
    """What `evenhand init` is asked for."""

    folder: Path = argument("Folder.", default=Path())
    model: str = option("local/builtin", "The model that the plan measures.", short="-m", metavar="SPEC")
    benchmark: str = option("bbq_builtin", "What the plan measures it on; see evenhand list benchmarks.", short="-b")
    limit: int = option(220, "Questions or prompts.", short="-n", ge=1)


@click.command(cls=Command)
@declared(InitCommand)
def init(request: InitCommand) -> None:
    """Write a project into FOLDER: evenhand.toml, plan.yaml, and a GitHub workflow with an action for a first gate.

    \b
    Examples:
      evenhand init
      evenhand init audit --model openai/gpt-4o-mini --limit 1100

    No file is overwritten, and no model is called.
    """
    plan = {"benchmark": request.benchmark, "models": [request.model], "limit": request.limit}
    make_plan(plan)
    measured = load_benchmark(request.benchmark)
    headline = next(metric for metric in measured.metrics() if metric.name == measured.headline)
    name = f"|{headline.name}|" if headline.better == "zero" else headline.name
    bound = f"< {0.5 * headline.scale:g}" if headline.better == "higher" else f"> {0.2 * headline.scale:g}"
    condition = f"{name} {bound}"
    gate = ["evenhand", "gate", "--config", PLAN, "--fail-if", condition, "--undecided", "pass", "--out", "runs/gate"]
    content = {
        PROJECT_FILE: _CONFIG,
        PLAN: yaml.safe_dump(plan, sort_keys=False, allow_unicode=True),
        WORKFLOW: _ABOUT + yaml.safe_dump(_workflow(request.model, condition), sort_keys=False, allow_unicode=True),
        USED: ACTION.read_text(encoding="utf-8"),
    }
    if taken := [name for name in content if (request.folder / name).exists()]:
        raise UsageError(f"{request.folder / taken[0]} exists already, and nothing was written; choose another folder.")
    for name, text in content.items():
        (request.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (request.folder / name).write_text(text, encoding="utf-8")
        click.echo(str(request.folder / name))
    there = "" if request.folder == Path() else f"cd {shlex.quote(str(request.folder))} && "
    click.echo(f"What it costs: {there}{shlex.join([*gate, '--dry-run'])}")
    click.echo(f"The gate:      {there}{shlex.join(gate)}")


def _workflow(model: str, condition: str) -> dict[str, Any]:
    """The workflow that runs the gate on each pull request."""
    provider = model.partition("/")[0]
    given = {"config": PLAN, "fail-if": condition, "undecided": "pass"}
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
