"""The debates, pairs and models that RLDF's tables and figures are about, made as far as they are missing."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenhand import aio
from evenhand.errors import BudgetExhausted, PlanError, UsageError
from evenhand.papers.base import PAPERS, PaperOptions, PaperRun
from evenhand.papers.rldf.ablation import Point, Values, ablation, ablation_runs, checked_values
from evenhand.papers.rldf.arms import NAME
from evenhand.papers.rldf.training import Lesson, Making, lessons, make_pairs, train, trained_arms, write_held_out
from evenhand.runs.parts import Settings
from evenhand.training import models
from evenhand.training.pairs import PairOptions
from evenhand.training.pairs.leaks import load_check
from evenhand.workflows.listener import Listener
from evenhand.workflows.paper import PaperResult, check_options, check_roles, check_runs, run_all, write_page


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """The trainings of the paper, the debates that they learn from, and what is measured in the end."""

    making: Making
    folder: Path
    taught: Mapping[str, Lesson]
    """By arm: the paper's two modes and RLAIF."""
    ablated: Mapping[str, Mapping[Point, Lesson]]
    """By type of bias."""

    @property
    def every(self) -> list[Lesson]:
        return [*self.taught.values(), *(each for found in self.ablated.values() for each in found.values())]

    @property
    def debates(self) -> list[PaperRun]:
        return list({each.debates.folder: each.debates for each in self.every}.values())

    @property
    def warnings(self) -> list[str]:
        options = self.making.options
        if self.making.teacher and self.making.teacher == options.judge:
            return ["The judge is the teacher, who is lenient with pupils; name another with --judge."]
        return []

    def measured(self, topics: Path) -> list[PaperRun]:
        """Return the final runs, on the held-out topics."""
        trained = {**trained_arms(self.taught, self.folder), **self.making.options.trained}
        options = replace(self.making.options, pairs=str(topics), trained=trained)
        runs = PAPERS.get(NAME).runs(options) if self.taught else ()
        return [*runs, *ablation_runs(options, self.ablated, self.folder)]

    @contextmanager
    def drafted(self) -> Generator[list[PaperRun]]:
        """Return all runs, with the held-out topics in a temporary folder until everything is checked."""
        with TemporaryDirectory() as folder:
            yield [*self.debates, *self.measured(write_held_out(self.making, Path(folder)))]


def plan_training(
    name: str,
    options: PaperOptions,
    out: Path | None,
    *,
    train: bool = False,
    ablate: Values | None = None,
    teacher: str | None = None,
    stages: Mapping[str, Mapping[str, Any]] | None = None,
) -> PlannedTraining:
    """Return what must be trained for the paper's tables (`train`), its ablation figures (`ablate`), or both."""
    paper = PAPERS.get(name)
    if "training" not in paper.takes:
        raise UsageError(f"Nothing is trained for the paper {name}; remove train, ablate, teacher and stages.")
    if not train and not ablate:
        raise UsageError("--teacher and --set are about what is made; they go with --train or --ablate.")
    if out is None:
        raise UsageError("Training makes debates, pairs and models; say where they go with --out FOLDER.")
    if options.pairs:
        raise UsageError("--pairs is of models that were trained before; with --train or --ablate remove it.")
    check_options(paper, options)
    making = Making(options, teacher, stages or {})
    ablated = ablation(making, checked_values(ablate)) if ablate else {}
    planned = PlannedTraining(making, out, lessons(making) if train else {}, ablated)
    check_roles([*planned.debates, *planned.measured(out)], options)
    return planned


def train_paper(planned: PlannedTraining, settings: Settings, listener: Listener) -> PaperResult:
    """Make what is missing, then run what the page is about, and write it.

    Raises BudgetExhausted where the budget is used up before anything can be trained.
    """
    folder = planned.folder
    for warning in planned.warnings:
        listener.note(warning)
    _check_training(planned)
    with planned.drafted() as runs:
        check_runs(runs, folder, settings)
    measured = planned.measured(write_held_out(planned.making, folder))
    left = aio.run(run_all(planned.debates, folder, settings, listener))
    if left is None:
        raise BudgetExhausted("The budget was used up by the debates; go on with a larger one and --resume.")
    missed = _teach(planned, listener)
    wanted = [run for run in measured if not _needs(run, missed)]
    left = aio.run(run_all(wanted, folder, replace(settings, budget=left), listener))
    return replace(write_page(PAPERS.get(NAME), folder), stopped=left is None)


def _check_training(planned: PlannedTraining) -> None:
    """Find mistakes that would otherwise appear only after the debates were paid for."""
    models.need_packages()
    from evenhand.training.recipe import Recipe

    making = planned.making
    PairOptions(**making.of("pairs"))
    own = {stage: making.of(stage) for stage in ("sft", "reward", "ppo")}
    for each in planned.every:
        Recipe(making.model, Path(each.data), Path(each.models), making.of("train"), own).options()


def _teach(planned: PlannedTraining, listener: Listener) -> list[Path]:
    """Pairs and models of all trainings; the model folders of those whose debates gave nothing to learn from."""
    making, out = planned.making, planned.folder
    check = load_check(making.options.data)
    if check.unchecked:
        listener.note(check.unchecked)
    missed: list[Path] = []
    for each in planned.every:
        try:
            counts = make_pairs(making, each, out, check)["counts"]
        except PlanError:
            raise
        except UsageError as error:
            # The other trainings are useful without this one.
            missed.append(out / each.models)
            listener.note(f"{out / each.data} is left out, and what would be trained on it: {error}")
            continue
        listener.note(
            f"{out / each.data}: {counts['pairs_train']:,} pairs and {counts['sft_train']:,} low-bias answers."
        )
    if len(missed) == len(planned.every):
        raise UsageError("None of the debates gives anything to learn from, for the reasons above; they are kept.")
    for each in planned.every:
        folder = out / each.models
        if folder not in missed:
            cautions = train(making, each, out, lambda stage, of=folder: listener.stage_began(f"{of}/{stage}"))
            listener.note(f"{folder}: trained.")
            for caution in cautions:
                listener.note(f"! {caution}")
    return missed


def _needs(run: PaperRun, folders: Sequence[Path]) -> bool:
    """Whether the run's model lies in one of the folders."""
    model = Path(run.plan.models[0]["base"].spec.removeprefix("hf/"))
    return any(folder in model.parents for folder in folders)
