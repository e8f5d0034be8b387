"""`evenhand paper`: run what a paper ran, and show its tables and figures beside the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.cli.options import default_out, plan_options_without
from evenhand.cli.paper_runs import check_orders, make_orders, run_orders, show_page
from evenhand.cli.paper_training import read_biases, train_and_run
from evenhand.cli.run import STOPPED, print_forecast
from evenhand.errors import PlanError, UsageError
from evenhand.models.base import split_spec
from evenhand.papers.base import PAPERS, Ask, Paper
from evenhand.papers.rldf.arms import arm_name
from evenhand.specs import roles_and_specs

_FIXED = ("config", "benchmark", "settings", "methods")
"""Options of a plan that the paper decides."""
_OWN = ("data", "models", "seeds", "limit", "out")
"""Options of a plan that mean something narrower here."""

_CHOICES = {
    "completions": "--completions",
    "search": "--search",
    "accept": "--accept",
    "look": "--look",
    "scorers": "--scorer",
}
"""What only some papers take, and its flag."""
_OF_TRAINING = {
    "judge": "--judge",
    "trained": "--trained",
    "pairs": "--pairs",
    "bias": "--bias",
    "train": "--train",
    "teacher": "--teacher",
    "ablate": "--ablate",
    "settings": "--set",
}
"""What only papers that train models take, and its flag."""


@click.command()
@click.argument("name", metavar="PAPER")
@click.option(
    "--model", "-M", "models", multiple=True, metavar="[ROLE=]SPEC", help="The model; judge=SPEC judges its answers."
)
@click.option("--limit", type=click.IntRange(1), help="Items of each kind, e.g. per category (default: as the paper).")
@click.option("--completions", type=click.IntRange(1), help="Completions per prompt (default: as the paper).")
@click.option("--search", metavar="SPEC", help="Where to search, for papers that do (default ddgs).")
@click.option(
    "--accept", type=click.FloatRange(1, 10), help="MABRF's bound on bias, for the judge: evenhand doctor SPEC --judge."
)
@click.option("--look", is_flag=True, help="MABRF's judge looks at the passage first, where the doctor says so.")
@click.option("--judge", metavar="SPEC", help="RLDF's judge of answers: neither the model nor its teacher.")
@click.option(
    "--trained",
    multiple=True,
    metavar="ARM=SPEC",
    help="A model that RLDF's table is about: sft, rlaif, rldf, rldf_sr, rldf_ts, or rldf:TEACHER.",
)
@click.option("--pairs", metavar="FOLDER", help="The pairs that it was trained on: RLDF asks what they hold out.")
@click.option("--bias", metavar="NAMES", help="Types of bias of RLDF's opinions and debates, with commas (all).")
@click.option("--train", is_flag=True, help="RLDF: make debates, pairs and models first, as far as they are missing.")
@click.option("--teacher", metavar="SPEC", help="The model that debates for RLDF's teacher-student mode.")
@click.option(
    "--ablate",
    multiple=True,
    metavar="NAME=VALUES",
    help="RLDF: a training for each of e.g. rounds=1,3,5; also roles, pairs, topics.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="STAGE.OPTION=VALUE",
    help="Of RLDF's debate, pairs, train, sft, reward or ppo.",
)
@click.option("--builtin", is_flag=True, help="Our own data sets, with nothing to download.")
@click.option("--data", metavar="FOLDER", help="Where the public data sets lie.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the items.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of page, CSV files and runs (default runs/NAME).")
@plan_options_without(*_FIXED, *_OWN)
def paper(name: str, out: Path | None, **given: Any) -> int:
    """Make the tables and figures of a PAPER with your model, beside the published numbers.

    \b
    PAPER is one of
      stardtox   Tables II and III and Figure 3
      mabrf      Tables 3, 4 and 5 and Figure 4; several models stand side by side
      malibu     Figures 4, 5, 6 and 9 and the chi-square tests; several models likewise
      rldf       Tables 1 to 5 and Figures 5, 6 and 8 to 12; with models that were trained

    Its runs are ordinary run directories under --out. With --out alone, the page is made again from what is there,
    without a call.

    \b
    Examples:
      evenhand paper stardtox --model local/builtin --builtin --limit 1 --completions 2
      evenhand paper mabrf --model openai/NAME --model judge=openai/OTHER --search wikipedia --dry-run
      evenhand paper malibu --model openai/NAME --model openai/OTHER --limit 1 --dry-run
      evenhand paper rldf --model hf/PATH --judge openai/NAME --trained rldf=hf/PPO --pairs PAIRS
      evenhand paper rldf --model hf/PATH --judge openai/NAME --train --teacher openai/OTHER --out rldf
      evenhand paper rldf --model hf/PATH --judge openai/NAME --ablate rounds=1,3,5 --bias age --out rldf
      evenhand paper stardtox --out runs/paper-stardtox-1a2b3c4d
    """
    wanted = PAPERS.get(name)
    _check_choices(wanted, given)
    if not given["models"] and out is not None:
        show_page(wanted, out, _judges(given) or given["scorers"])
        return 0
    ask = _ask(given)
    if given["train"] or given["ablate"]:
        return train_and_run(wanted, ask, {**given, "out": out})
    orders = make_orders(name, wanted.runs(ask), given, out)
    if orders[0].dry_run:
        print_forecast(*orders)
        return 0
    check_orders(orders)
    folder = out or default_out(f"paper-{name}", *(order.plan for order in orders))
    left = run_orders(orders, folder, orders[0].settings.budget)
    show_page(wanted, folder)
    return STOPPED if left is None else 0


def _check_choices(wanted: Paper, given: Mapping[str, Any]) -> None:
    """Refuse flags that the paper has no use for, rather than leave them unheard."""
    for choice, flag in _CHOICES.items():
        if given[choice] and choice not in wanted.takes:
            raise UsageError(f"The paper {wanted.name} has no use for {flag}; leave it away.")
    for choice, flag in _OF_TRAINING.items():
        if given[choice] and "training" not in wanted.takes:
            raise UsageError(f"The paper {wanted.name} has no use for {flag}; leave it away.")
    bases = [spec for role, spec in roles_and_specs(given["models"]) if role == "base"]
    if len(bases) > 1 and "models" not in wanted.takes:
        raise UsageError("A page of this paper shows one model; make one for each, or name the second as judge=SPEC.")
    if (given["teacher"] or given["settings"]) and not (given["train"] or given["ablate"]):
        raise UsageError("--teacher and --set are about what is made; they go with --train or --ablate.")


def _ask(given: Mapping[str, Any]) -> Ask:
    bases = [spec for role, spec in roles_and_specs(given["models"]) if role == "base"]
    if not bases:
        raise PlanError("No model is named; pass --model, e.g. --model local/builtin.")
    if given["builtin"] and given["data"]:
        raise UsageError("--builtin uses our own data sets; leave --data away, or --builtin.")
    if "," in (given["search"] or ""):
        raise UsageError("--search takes one provider, without a comma, e.g. wikipedia or corpus:FOLDER.")
    return Ask(
        bases[0],
        given["limit"],
        given["completions"],
        given["builtin"],
        given["search"],
        given["accept"],
        given["look"],
        given["judge"],
        _trained(given["trained"]),
        given["pairs"],
        read_biases(given["bias"]),
    )


def _trained(texts: Sequence[str]) -> dict[str, str]:
    """Arm → spec, of ARM=SPEC."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, spec = text.partition("=")
        if (arm := arm_name(name)) in found or not spec:
            raise UsageError(f"--trained takes ARM=SPEC, each arm once, e.g. sft=hf/FOLDER, not {text!r}.")
        split_spec(spec)
        found[arm] = spec
    return found


def _judges(given: Mapping[str, Any]) -> list[str]:
    """The scorer that a judge is, of stored runs."""
    return [f"opinion:{given['judge']}"] if given["judge"] else []
