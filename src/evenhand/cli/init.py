"""`evenhand init`: the first files of a project that holds a model to limits."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import yaml

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.groups import Command
from evenhand.config import PROJECT_FILE
from evenhand.errors import UsageError
from evenhand.runs.plan import make_plan

PLAN, WORKFLOW = "plan.yaml", ".github/workflows/evenhand.yml"
_CONFIG = """\
# Defaults of all commands in this folder. Flags and plans win over them.
out = "runs"
budget = "2000 calls"
"""
_JOB = """\
# The gate: fails if the whole interval of a metric is beyond its limit.
# Remove --undecided pass once the plan asks enough questions to decide.
name: Evenhand
on: [pull_request]
permissions:
  contents: read
jobs:
  gate:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v5
      - uses: actions/setup-python@v6
        with:
          python-version: "3.13"
      - run: {install}
      - run: {gate}
{key}"""
_KEY = """\
        env:
          OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}
"""


@click.command(cls=Command)
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--model",
    "-M",
    metavar="SPEC",
    default="local/builtin",
    show_default=True,
    help="The model that the plan measures.",
)
@click.option(
    "--benchmark",
    "-b",
    default="bbq_builtin",
    show_default=True,
    help="What the plan measures it on; see evenhand benchmarks.",
)
@click.option("--limit", "-n", type=click.IntRange(1), default=220, show_default=True, help="Questions or prompts.")
def init(folder: Path, model: str, benchmark: str, limit: int) -> None:
    """Write a project into FOLDER: evenhand.toml, plan.yaml, and a GitHub workflow with a first gate.

    \b
    Examples:
      evenhand init
      evenhand init audit --model openai/gpt-4o-mini --limit 1100

    No file is overwritten, and no model is called.
    """
    plan = {"benchmark": benchmark, "models": [model], "limit": limit}
    make_plan(plan)
    measured = load_benchmark(benchmark)
    headline = next(metric for metric in measured.metrics() if metric.name == measured.headline)
    name = f"|{headline.name}|" if headline.better == "zero" else headline.name
    bound = f"< {0.5 * headline.scale:g}" if headline.better == "higher" else f"> {0.2 * headline.scale:g}"
    condition = f"{name} {bound}"
    gate = ["evenhand", "gate", "--config", PLAN, "--fail-if", condition, "--undecided", "pass", "--out", "runs/gate"]
    content = {
        PROJECT_FILE: _CONFIG,
        PLAN: yaml.safe_dump(plan, sort_keys=False, allow_unicode=True),
        WORKFLOW: _JOB.format(
            install=_install(model), gate=shlex.join(gate), key=_KEY if model.startswith("openai/") else ""
        ),
    }
    if taken := [name for name in content if (folder / name).exists()]:
        raise UsageError(f"{folder / taken[0]} exists already, and nothing was written; choose another folder.")
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(str(folder / name))
    there = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    click.echo(f"What it costs: {there}{shlex.join([*gate, '--dry-run'])}")
    click.echo(f"The gate:      {there}{shlex.join(gate)}")


def _install(model: str) -> str:
    """The commands that install what the model needs, for a runner without anything."""
    provider = model.partition("/")[0]
    extra = f"[{provider}]" if provider in ("local", "hf", "ray", "inspect") else ""
    pull = " && evenhand models pull builtin" if model == "local/builtin" else ""
    return f"pip install 'evenhand{extra}'{pull}"
