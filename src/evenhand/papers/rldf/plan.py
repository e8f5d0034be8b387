"""The topics, debates, pairs and models that RLDF's tables and figures are about, made as far as they are missing."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted, PlanError, UsageError
from evenhand.core.files import scratch
from evenhand.core.progress import Listener
from evenhand.core.types import Usage
from evenhand.data.debates import load_topics
from evenhand.models.budget import Price
from evenhand.papers.base import PAPERS
from evenhand.papers.making import PaperResult, check_roles, write_page
from evenhand.papers.rldf.arms import (
    DECLARED,
    NAME,
    AblatedValues,
    RLDFOptions,
    Training,
    checked_values,
    runs_of,
    stages_of,
)
from evenhand.papers.rldf.steps import (
    TOPICS_FOLDER,
    AblationPoint,
    Lesson,
    Making,
    ablation,
    ablation_runs,
    lessons,
    make_pairs,
    pair_options,
    recipe_of,
    train,
    trained_arms,
    write_held_out,
)
from evenhand.runs.execute import SeriesRun, check_runs, run_all
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan
from evenhand.training import models
from evenhand.training.debates import TopicsFile
from evenhand.training.pairs.cleaning import load_check

PAPER_SEEDS = (1, 2, 3)
"""The paper's three repeats."""


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """The trainings of the paper, the debates that they learn from, and what is measured in the end."""

    making: Making
    folder: Path
    taught: Mapping[Training, Lesson]
    """The paper's two modes and RLAIF, by type of bias and seed where these are asked."""
    ablated: Mapping[str, Mapping[AblationPoint, Lesson]]
    """By type of bias."""
    values: AblatedValues
    """The values of the ablations."""
    preparation: str = "Topics first: {usage}; more where topics come twice."

    @property
    def every(self) -> list[Lesson]:
        return [*self.taught.values(), *(each for found in self.ablated.values() for each in found.values())]

    @property
    def debates(self) -> list[SeriesRun]:
        return list({each.debates.folder: each.debates for each in self.every}.values())

    @property
    def warnings(self) -> list[str]:
        options = self.making.options
        if options.judge and options.judge in self.making.teachers:
            return ["The judge is a teacher, who is lenient with pupils; name another with --judge."]
        return []

    def measured(self, topics: Path) -> list[SeriesRun]:
        """Return the final runs, on the held-out topics."""
        trained = {**trained_arms(self.taught, self.folder), **self.making.options.trained}
        options = self.making.options.changed(pairs=str(topics), trained=trained)
        runs = runs_of(options) if self.taught else ()
        return [*runs, *ablation_runs(options, self.ablated, self.folder)]

    @property
    def writer(self) -> ModelPlan:
        """The model that writes topics: the first teacher, if there is one."""
        making = self.making
        return making.options.reached_alike(making.teacher) if making.teacher else making.options.model

    def topics_files(self, folder: Path | None = None) -> list[TopicsFile]:
        """Return the files of topics that a model writes first; empty if the existing topics are enough."""
        making = self.making
        if making.written is None:
            return []
        count, data = making.topics + making.held_out, making.of("debate").get("data")
        return [
            TopicsFile((folder or making.written) / f"{bias}.yaml", load_topics(bias, data), count, making.seed)
            for bias in making.biases
        ]

    @contextmanager
    def forecast(self, prices: Mapping[str, Price]) -> Generator[tuple[list[SeriesRun], Usage]]:
        """Return all runs and the minimum usage of the topics, with drafts of topics in a temporary folder."""
        with scratch() as folder:
            usage, drafts = Usage(), self
            for file in self.topics_files(folder):
                usage += aio.run(file.pretend(self.writer, prices))
            if self.making.written is not None:
                drafts = _planned(replace(self.making, written=folder), self.folder, bool(self.taught), self.values)
            yield [*drafts.debates, *drafts.measured(write_held_out(drafts.making, folder))], usage

    @property
    def notes(self) -> list[str]:
        """The trainings, which cannot be counted in calls."""
        model = self.making.model
        said = [f"Then {len(self.every)} trainings of {model} (sft, reward and ppo each), on the pairs of the debates:"]
        for each in self.every:
            plan = each.debates.plan
            options = {**plan.methods[0].options, **plan.benchmark_options}
            listed = ", ".join(f"{name}={value}" for name, value in options.items())
            part = "" if each.part is None else f", {'at most ' if each.at_most else ''}{each.part:,} pairs"
            said.append(f"  {self.folder / each.models}: {plan.methods[0].name}, {listed}{part}")
        return said

    def make(self, settings: Settings, listener: Listener) -> PaperResult:
        """Make what is missing, then run what the page is about, and write it.

        Raises BudgetExhausted where the budget is used up before anything can be trained.
        """
        folder = self.folder
        for warning in self.warnings:
            listener.note(warning)
        _check_training(self)
        with self.forecast({}) as (runs, _):
            check_runs(runs, folder, settings)
        settings = replace(settings, budget=settings.budget.less(aio.run(_write_topics(self, settings, listener))))
        measured = self.measured(write_held_out(self.making, folder))
        left = aio.run(run_all(self.debates, folder, settings, listener))
        if left is None:
            raise BudgetExhausted("The budget was used up by the debates; go on with a larger one and --resume.")
        missed = _teach(self, listener)
        wanted = [run for run in measured if not _needs(run, missed)]
        left = aio.run(run_all(wanted, folder, replace(settings, budget=left), listener))
        return replace(write_page(PAPERS.get(NAME), folder, skip_damaged=settings.skip_damaged), stopped=left is None)


def plan_training(options: RLDFOptions, out: Path | None) -> PlannedTraining:
    """Return what must be trained for the paper's tables (`train`), its ablation figures (`ablate`), or both.

    The presets `paper` and `released` have the settings that `presets.yaml` declares, as far as the other options do
    not say otherwise: a model writes the topics, each type of bias has trainings of its own, and there are three seeds.
    Otherwise they are ours.
    """
    train, stages = options.train, options.stages
    if not train and not options.ablate:
        raise UsageError(
            "--teacher, --generate, --train-seeds, --per-type and --set are about what is made; "
            "they go with --train or --ablate."
        )
    if (options.train_seeds or options.per_type) and not train:
        raise UsageError("--train-seeds and --per-type are about the tables; an ablation trains once on each type.")
    if out is None:
        raise UsageError("Training makes debates, pairs and models; say where they go with --out FOLDER.")
    if options.pairs:
        raise UsageError("--pairs is of models that were trained before; with --train or --ablate remove it.")
    generate, seeds, per_type = options.generate, options.train_seeds, options.per_type
    if options.preset in DECLARED:
        generate = generate or "data" not in stages.get("debate", {})
        seeds, per_type = (seeds or PAPER_SEEDS) if train else (), per_type or train
        declared = stages_of(options.preset)
        stages = {stage: {**declared.get(stage, {}), **stages.get(stage, {})} for stage in {**declared, **stages}}
    written = out / TOPICS_FOLDER if generate else None
    making = Making(options, options.teachers, stages, tuple(dict.fromkeys(seeds)), per_type, written)
    planned = _planned(making, out, train, checked_values(options.ablate))
    check_roles([*planned.debates, *planned.measured(out)], options)
    return planned


def _planned(making: Making, out: Path, train: bool, values: AblatedValues) -> PlannedTraining:
    ablated = ablation(making, values) if values else {}
    return PlannedTraining(making, out, lessons(making) if train else {}, ablated, values)


async def _write_topics(planned: PlannedTraining, settings: Settings, listener: Listener) -> Usage:
    """Have a model write the topics that are missing; return the usage. Files of an earlier command are kept."""
    spent = Usage()
    for file in planned.topics_files():
        if file.is_written():
            listener.note(f"{file.path}: the topics were written before.")
            continue
        left = replace(settings, budget=settings.budget.less(spent))
        spent += await file.fill(planned.writer, left, listener)
        if file.written() < file.count:
            raise UsageError(
                f"{file.path} has {file.written():,} topics: the model has no further ones. Go on with "
                f"--set debate.topics={file.written() - planned.making.held_out} and another --out, or name another "
                "teacher, who writes them."
            )
    return spent


def _check_training(planned: PlannedTraining) -> None:
    """Find mistakes that would otherwise appear only after the debates were paid for."""
    models.need_packages()
    pair_options(planned.making)
    for each in planned.every:
        recipe_of(planned.making, each, planned.folder).options()


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


def _needs(run: SeriesRun, folders: Sequence[Path]) -> bool:
    """Whether the run's model lies in one of the folders."""
    model = Path(run.plan.models[0]["base"].spec.removeprefix("hf/"))
    return any(folder in model.parents for folder in folders)
