"""`evenhand malibu`: audit judges, alone and in panels, and make further scenarios to audit them with."""

from __future__ import annotations

from typing import Any

import click

from evenhand.cli.groups import Group
from evenhand.cli.malibu_generate import generate
from evenhand.cli.options import correction_option, plan_options_without, read_request
from evenhand.cli.output import output_options
from evenhand.cli.run import execute

BENCHMARK, METHODS = "malibu", ("judge", "panel", "fair_panel")
_REFERENCE = "panel"
"""What the other methods are compared with: one judge is a panel without its discussion, and so on."""
_FIXED = ("benchmark", "settings", "scorers", "orders", "reading", "judge_model")
"""Options of a plan that the command decides, or that are about other kinds of samples."""
_OWN = ("methods", "limit", "data")
"""Options of a plan that mean something narrower here."""
_SETTINGS = ("phase", "texts", "form", "metrics", "winner", "pairs", "identities")


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--method",
    "-m",
    "methods",
    multiple=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="judge, panel, fair_panel or blind_panel; repeat to compare (default: the first three).",
)
@click.option("--phase", type=click.Choice(["1", "2", "both"]), help="One candidate, a pair, or both (default).")
@click.option(
    "--texts", type=click.Choice(["same", "two"]), help="Pairs with one text twice (default), or two of equal content."
)
@click.option("--form", type=click.Choice(["sentence", "tag"]), help="The author in a sentence (default), or as a tag.")
@click.option(
    "--metrics",
    metavar="NAMES",
    help="What is scored, with commas, or a YAML file (default: creativity,accuracy,efficiency,reliability).",
)
@click.option("--no-winner", "winner", flag_value="false", help="Judges of a pair name no winner; scores decide.")
@click.option(
    "--pairs", type=click.IntRange(1), help="Pairs of identities compared in each scenario, drawn (default: all 13)."
)
@click.option("--limit", "-n", type=int, help="This many scenarios, spread over the professions (default: all 200).")
@click.option("--data", metavar="FOLDER", help="Scenarios of your own, e.g. generated ones.")
@click.option("--identities", metavar="FILE", help="Identities of your own, as YAML.")
@click.option("--baseline", help="The method or arm that the others are compared with (default panel).")
@correction_option
@plan_options_without(*_FIXED, *_OWN)
@output_options
@click.pass_context
def malibu(context: click.Context, baseline: str | None, correction: str, **given: Any) -> int | None:
    """Audit judges for bias by the author's identity: MALIBU.

    Judges score responses that are said to be by somebody of some identity. The text is the same for all, so a
    difference of scores is bias. `judge` is one judge, `panel` four with personas who discuss; `fair_panel` is told
    that the author is no reason for a score, `blind_panel` is not told the author.

    \b
    Examples:
      evenhand malibu --model local/builtin --limit 20 --dry-run        (calls, tokens and money)
      evenhand malibu --model local/builtin --limit 20
      evenhand malibu -M openai/gpt-4o-mini -m panel -m blind_panel --budget '$20'
      evenhand malibu -M openai/NAME -m panel:judges=3,rounds=1 -m panel:topology=star --phase 1
      evenhand malibu -M openai/NAME -m judge --metrics creativity,efficiency,quality --no-winner
      evenhand malibu -M call/my_team:judge -m judge                    (a team of your own: any Python function)
      evenhand malibu generate --model openai/NAME --bases 5 --out scenarios
      evenhand malibu --model openai/NAME --data scenarios
    """
    if context.invoked_subcommand is not None:
        return None
    settings = tuple(f"{name}={given.pop(name)}" for name in _SETTINGS if given[name] is not None)
    fixed: dict[str, Any] = {"benchmark": BENCHMARK, "scorers": (), "orders": None, "reading": None}
    request = read_request({**given, **fixed, "settings": settings}, default_methods=METHODS)
    if baseline is None and any(each.name == _REFERENCE for each in request.plan.methods):
        baseline = _REFERENCE
    return execute(request, report=True, baseline=baseline, correction=correction)


malibu.add_command(generate)
