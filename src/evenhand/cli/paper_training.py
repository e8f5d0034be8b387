"""`evenhand paper rldf --train` and `--ablate`: the debates, pairs and models that its tables and figures are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from evenhand.cli.options import Order
from evenhand.cli.paper_runs import check_orders, make_orders, run_orders, show_page
from evenhand.cli.progress import shown_stages
from evenhand.cli.run import STOPPED, print_forecast
from evenhand.data.debates import BIASES
from evenhand.errors import PlanError, UnknownNameError, UsageError
from evenhand.papers.base import Ask, Paper, PaperRun
from evenhand.papers.rldf.ablation import ablation, ablation_runs, read_values
from evenhand.papers.rldf.training import (
    STAGES,
    Lesson,
    Making,
    lessons,
    make_pairs,
    train,
    trained_arms,
    write_held_out,
)
from evenhand.specs import roles_and_specs, scalar
from evenhand.training import models
from evenhand.training.leaks import load_check
from evenhand.training.pairs import PairOptions


def read_biases(text: str | None) -> tuple[str, ...]:
    """The types of bias, named with commas; none: all."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text else ()
    for name in names:
        if name not in BIASES:
            raise UnknownNameError("type of bias", name, BIASES)
    return names


def train_and_run(wanted: Paper, ask: Ask, given: Mapping[str, Any]) -> int:
    """Make what is missing, then run what the page is about; the exit code."""
    making, values, out = read_making(ask, given), read_values(given["ablate"]), given["out"]
    if making.teacher and making.teacher == ask.judge:
        click.echo("The judge is the teacher, who is lenient with pupils; name another with --judge.", err=True)
    ablated = ablation(making, values) if values else {}
    taught = lessons(making) if given["train"] else {}
    every = [*taught.values(), *(each for found in ablated.values() for each in found.values())]
    debates = list({each.debates.folder: each.debates for each in every}.values())

    def runs(topics: Path) -> list[PaperRun]:
        """What is run in the end, on the topics that were kept for it."""
        about = replace(ask, topics=str(topics), trained={**trained_arms(taught, out), **ask.trained})
        return [*(wanted.runs(about) if taught else ()), *ablation_runs(about, ablated, out)]

    def orders(topics: Path) -> tuple[list[Order], list[Order]]:
        made = make_orders(wanted.name, [*debates, *runs(topics)], given, out)
        return made[: len(debates)], made[len(debates) :]

    with TemporaryDirectory() as folder:
        # Nothing is written before all is checked.
        first, last = orders(write_held_out(making, Path(folder)))
        if given["dry_run"]:
            print_forecast(*first, *last)
            _tell_lessons(making, every, out)
            return 0
        check_training(making, every)
        check_orders([*first, *last])
    first, last = orders(write_held_out(making, out))
    left = run_orders(first, out, first[0].settings.budget)
    if left is not None:
        missed = teach(making, every, out, given["data"])
        left = run_orders([order for order in last if not _needs(order, missed)], out, left)
        show_page(wanted, out)
    return STOPPED if left is None else 0


def read_making(ask: Ask, given: Mapping[str, Any]) -> Making:
    """How to debate and to train, checked."""
    if given["out"] is None:
        raise UsageError("Training makes debates, pairs and models; say where they go with --out FOLDER.")
    if given["pairs"]:
        raise UsageError("--pairs is of models that were trained before; with --train or --ablate leave it away.")
    roles = dict(roles_and_specs(given["models"]))
    stages = read_settings(given["settings"])
    return Making(ask.model, given["teacher"], roles.get("referee"), ask.bias or BIASES, given["seed"], stages)


def read_settings(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Options by stage, from STAGE.OPTION=VALUE."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        stage, _, name = key.partition(".")
        if not equals or name not in STAGES.get(stage, ()):
            known = f"; {stage} has {', '.join(sorted(STAGES[stage]))}" if stage in STAGES else ""
            raise UsageError(f"--set takes STAGE.OPTION=VALUE, of {', '.join(STAGES)}, not {text!r}{known}.")
        read = scalar(value)
        if not _alike(read, STAGES[stage][name]):
            raise UsageError(f"--set {key} takes a value like {STAGES[stage][name]}, not {value!r}.")
        found.setdefault(stage, {})[name] = read
    return found


def _alike(value: Any, default: Any) -> bool:
    """Whether a value may stand in the place of a default: a text, a truth or a number as that is."""
    if default is None:
        return True
    kinds = (str, bool, (int, float))
    return next(isinstance(value, kind) for kind in kinds if isinstance(default, kind))


def teach(making: Making, every: Sequence[Lesson], out: Path, data: str | None) -> list[Path]:
    """Pairs and models of all lessons; the folders of those whose debates gave nothing to learn from."""
    check = load_check(data)
    if check.unchecked:
        click.echo(check.unchecked)
    missed: list[Path] = []
    for each in every:
        try:
            counts = make_pairs(making, each, out, check)["counts"]
        except PlanError:
            raise
        except UsageError as error:
            # The other trainings are worth having without this one.
            missed.append(out / each.models)
            click.echo(f"{out / each.data} is left out, and what would be trained on it: {error}")
            continue
        click.echo(f"{out / each.data}: {counts['pairs_train']:,} pairs and {counts['sft_train']:,} low-bias answers.")
    if len(missed) == len(every):
        raise UsageError("None of the debates gives anything to learn from, for the reasons above; they are kept.")
    for each in (each for each in every if out / each.models not in missed):
        with shown_stages(f"{out / each.models}/") as announce:
            cautions = train(making, each, out, announce)
        click.echo(f"{out / each.models}: trained.")
        for caution in cautions:
            click.echo(f"! {caution}")
    return missed


def _needs(order: Order, folders: Sequence[Path]) -> bool:
    """Whether the order's model lies in one of the folders."""
    model = Path(order.plan.models[0]["base"].spec.removeprefix("hf/"))
    return any(folder in model.parents for folder in folders)


def check_training(making: Making, every: Sequence[Lesson]) -> None:
    """Refuse what would only be found out when the debates have been paid for."""
    models.need_packages()
    from evenhand.training.recipe import Recipe

    PairOptions(**making.of("pairs"))
    own = {stage: making.of(stage) for stage in ("sft", "reward", "ppo")}
    for each in every:
        Recipe(making.model, Path(each.data), Path(each.models), making.of("train"), own).options()


def _tell_lessons(making: Making, every: Sequence[Lesson], out: Path) -> None:
    """What a dry run says of what cannot be counted in calls."""
    click.echo(
        f"Then {len(every)} trainings of {making.model} (sft, reward and ppo each), on the pairs of the debates:"
    )
    for each in every:
        part = "" if each.part is None else f", {each.part:,} pairs"
        click.echo(f"  {out / each.models}: {each.debates.methods[0]}, {', '.join(each.debates.settings)}{part}")
