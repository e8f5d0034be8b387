"""The steps of `evenhand papers rldf --train`: topics, debates, pairs and models, each in a folder that is kept.

The evaluation topics are held out first: the last ones in the order of the seed. So all models are evaluated on the
same topics, and none has seen them in training.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.debates import Debates
from evenhand.benchmarks.opinions import PAIRS_FILE, PAIRS_FORMAT
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted, PlanError, UsageError, check_names
from evenhand.core.files import scratch
from evenhand.core.options import PRESET, Request
from evenhand.core.progress import Announce, Listener
from evenhand.core.types import Sample, Usage
from evenhand.data.debates import BIASES, load_topics
from evenhand.methods.base import METHODS
from evenhand.models.budget import Price
from evenhand.papers.base import PAPERS, Grid, PaperCell, PaperClaim, PaperColumn, PaperRow, PaperTable, untold
from evenhand.papers.making import PaperResult, check_roles, write_page
from evenhand.papers.reading import UNSAID
from evenhand.papers.rldf.arms import (
    BASE,
    DECLARED,
    DEFAULT,
    NAME,
    PARAMETERS,
    SELF,
    TEACHER,
    AblatedValues,
    Arms,
    RLDFOptions,
    Training,
    checked_values,
    opinions_run,
    read_arms,
    runs_of,
    stages_of,
    teacher_arm,
)
from evenhand.papers.rldf.tables import METRICS, ahead
from evenhand.runs.execute import SeriesRun, check_runs, run_all
from evenhand.runs.parts import Settings
from evenhand.runs.plan import MethodPlan, ModelPlan
from evenhand.training import models
from evenhand.training.debates import TopicsFile
from evenhand.training.options import FROM_BASE, PPOOptions, RewardOptions, SFTOptions, StageOptions
from evenhand.training.pairs import PairOptions
from evenhand.training.pairs.cleaning import LeakCheck, load_check
from evenhand.training.pairs.folder import write_pairs

if TYPE_CHECKING:
    from evenhand.training.recipe import Recipe

# --- the topics, debates, pairs and models that the tables and figures are about, made as far as they are missing ---

PAPER_SEEDS = (1, 2, 3)
"""The paper's three repeats."""
_FEW = 320
"""Pairs of ten steps of the last stage."""


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
    """Return what must be trained for the paper's tables (`train`, or a preset alone), for `ablate`, or both.

    The presets `paper` and `released` have the settings that `presets.yaml` declares, as far as the other options do
    not say otherwise: a model writes the topics, each type of bias has trainings of its own, and there are three seeds.
    Otherwise they are ours.
    """
    train, stages = options.train or not options.is_training, options.stages
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
        if counts["pairs_train"] < _FEW:
            listener.note("! So few pairs teach little: --generate has more topics written and debated.")
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


# --- ablations: one training for each value of a parameter, all evaluated on the same topics; Figures 8 to 12 ---

FOLDER = "ablate"


@dataclass(frozen=True, slots=True)
class AblationPoint:
    """One setting of the parameters."""

    roles: int
    rounds: int
    topics: int
    pairs: int | None = None
    """Number of training pairs; None for all."""

    @property
    def debates(self) -> str:
        return f"roles{self.roles}-rounds{self.rounds}-topics{self.topics}"

    @property
    def name(self) -> str:
        return self.debates + ("" if self.pairs is None else f"-pairs{self.pairs}")

    @classmethod
    def named(cls, name: str) -> AblationPoint | None:
        """Parses the name of a point; None for the untrained model."""
        found = re.fullmatch(r"roles(\d+)-rounds(\d+)-topics(\d+)(?:-pairs(\d+))?", name)
        return cls(*(None if each is None else int(each) for each in found.groups())) if found else None  # pyright: ignore[reportArgumentType]


def points(making: Making, values: AblatedValues) -> list[AblationPoint]:
    """Returns the points that vary one parameter at a time, without duplicates."""
    wanted = making.of("debate")
    centre = AblationPoint(wanted.get("roles", ROLES), wanted.get("rounds", ROUNDS), making.topics)
    for each in values.get("topics", ()):
        if not 1 < each <= making.topics:
            raise UsageError(f"There are topics for 2 to {making.topics:,} debates of each type, not for {each:,}.")
    return list(dict.fromkeys(replace(centre, **{name: value}) for name, each in values.items() for value in each))


def ablation(making: Making, values: AblatedValues) -> dict[str, dict[AblationPoint, Lesson]]:
    """Returns type of bias → point → its training; as in the paper, each training is on one type."""
    wanted = points(making, values)
    return {bias: {point: _lesson(making.about(bias), bias, point) for point in wanted} for bias in making.biases}


def _lesson(making: Making, bias: str, point: AblationPoint) -> Lesson:
    within = f"{FOLDER}/{bias}"
    teacher = {"teacher": making.teacher} if making.teacher else {}
    roles, rounds, topics, part = astuple(point)
    run = debates_run(
        making, f"{within}/debates/{point.debates}", specs=teacher, roles=roles, rounds=rounds, topics=topics
    )
    return Lesson(run, f"{within}/pairs/{point.debates}", f"{within}/models/{point.name}", part)


def ablation_runs(
    options: RLDFOptions, found: Mapping[str, Mapping[AblationPoint, Lesson]], out: Path
) -> list[SeriesRun]:
    """Returns the opinion runs of the untrained model and of every trained one, by type of bias."""
    runs: list[SeriesRun] = []
    for bias, lessons in found.items():
        about = options.changed(bias=(bias,))
        within = f"{FOLDER}/{bias}/opinions"
        runs.append(opinions_run(about, f"{within}/{BASE}", (DEFAULT,)))
        for point, each in lessons.items():
            models = {"base": options.reached_alike(f"hf/{out / each.models / 'ppo'}")}
            runs.append(opinions_run(about, f"{within}/{point.name}", (DEFAULT,), models))
    return runs


# --- Figures 8 to 12: bias scores by roles, rounds, pairs and topics, a figure for each type of bias ---

FIRST = 8
"""The number of the first figure, that of the first type of bias."""
BEST = {"roles": 3, "rounds": 5, "topics": 2000, "pairs": 5000}
"""The best values according to the paper, for all types and models."""
_TITLES = {"roles": "Roles", "rounds": "Rounds", "topics": "Topics", "pairs": "Pairs"}
_SCORE = METRICS["BS"]

Series = Mapping[str, Sequence[AblationPoint]]
"""Parameter → the points that vary only in it, sorted by its value."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The points of one type of bias."""

    bias: str
    arms: Arms
    series: Series
    runs: Mapping[str, Path]


def read_ablation(bias: str, runs: Mapping[str, Path], scorers: Sequence[str] = ()) -> Ablation:
    """Reads the runs of a type of bias, by the names of their points; `base` is the untrained model."""
    found = series([point for name in runs if (point := AblationPoint.named(name))])
    arms = read_arms(runs, "bias", [UNSAID], scorers, _neighbours(found))
    return Ablation(bias, arms, found, runs)


def series(points: Sequence[AblationPoint]) -> Series:
    """Groups the points by the parameter that varies; all others have their most common value."""
    usual = {
        name: Counter(getattr(point, name) for point in points).most_common(1)[0][0] for name in PARAMETERS if points
    }
    found: dict[str, list[AblationPoint]] = {}
    for name in PARAMETERS:
        centre = {other: value for other, value in usual.items() if other != name}
        varied = [point for point in points if replace(point, **centre) == point]
        if len(varied) > 1:
            found[name] = sorted(varied, key=lambda point: _order(point, name))
    return found


def _order(point: AblationPoint, name: str) -> float:
    """Returns a sort key; all pairs (None) come last."""
    value: int | None = getattr(point, name)
    return float("inf") if value is None else value


def _neighbours(found: Series) -> list[tuple[str, str]]:
    """Returns pairs of every value and the paper's best value."""
    pairs: list[tuple[str, str]] = []
    for name, points in found.items():
        best = [point for point in points if getattr(point, name) == BEST[name]]
        pairs += [(point.name, each.name) for each in best for point in points if point != each]
    return pairs


def figure(ablation: Ablation) -> PaperTable:
    """Returns charts and numbers by parameter."""
    bias, arms = ablation.bias, ablation.arms
    number = FIRST + BIASES.index(bias) if bias in BIASES else None
    return PaperTable(
        f"figure{number}" if number else f"ablation_{bias}",
        f"{f'Figure {number}' if number else 'Ablation'}: {bias}, by what was trained with",
        "BS on the same topics for all points, from 0 to 100, lower is better; intervals by topic. Each point is one "
        "training. The paper has pictures without numbers.",
        [_grid(name, arms, points, ablation.runs) for name, points in ablation.series.items()],
    )


def figure_claims(ablation: Ablation) -> list[PaperClaim]:
    """Returns the checks of the paper's best values."""
    return [_claim(ablation.bias, ablation.arms, name, points) for name, points in ablation.series.items()]


def _grid(name: str, arms: Arms, points: Sequence[AblationPoint], runs: Mapping[str, Path]) -> Grid:
    columns = [PaperColumn(_value(point, name), _value(point, name), _trained_on(point, runs)) for point in points]
    trained = [PaperCell(arms.estimate(point.name, _SCORE)) for point in points]
    plain = [PaperCell(arms.estimate(DEFAULT, _SCORE)) for _ in points]
    found = [arms.difference(DEFAULT, point.name, _SCORE) for point in points]
    changed = [PaperCell(each.estimate if each else None) for each in found]
    rows = [
        PaperRow(arms.model, "RLDF", trained),
        PaperRow(arms.model, "Default", plain),
        PaperRow(arms.model, "RLDF less Default", changed),
        PaperRow(
            arms.model, "Words of RLDF, % of Default", [PaperCell(arms.length_ratio(point.name)) for point in points]
        ),
    ]
    return Grid(_TITLES[name], columns, rows, "Model", drawn=2)


def _value(point: AblationPoint, name: str) -> str:
    value = getattr(point, name)
    return "all" if value is None else f"{value:,}"


def _trained_on(point: AblationPoint, runs: Mapping[str, Path]) -> str:
    """Returns the number of training pairs, which grows with rounds, roles and topics."""
    within = runs[point.name].parents[1] / "pairs"
    folder = within / (point.debates if point.pairs is None else point.name.replace("-pairs", "-"))
    if not (folder / PAIRS_FILE).is_file():
        return ""
    return f"{about_pairs(folder)['counts']['pairs_train']:,} pairs"


def _claim(bias: str, arms: Arms, name: str, points: Sequence[AblationPoint]) -> PaperClaim:
    best = next((point for point in points if getattr(point, name) == BEST[name]), None)
    others = [point for point in points if point != best]
    found = [
        (f"{BEST[name]:,} less {_value(point, name)}", arms.difference(point.name, best.name, _SCORE))
        for point in others
        if best
    ]
    fault = arms.fault(best.name) if best else None
    finding = untold(f"its answers cannot be compared: {fault}") if fault else ahead(found, "lower")
    number = FIRST + BIASES.index(bias) if bias in BIASES else None
    place = f"Figure {number}" if number else "Ablation"
    return PaperClaim(f"{bias.capitalize()}: {BEST[name]:,} {name} give the least bias", place, arms.model, *finding)


_PAIRS, _ANSWERS = "pairs.train.jsonl", "sft.train.jsonl"


def about_pairs(folder: Path) -> dict[str, Any]:
    """Reads the description of a folder of pairs."""
    return orjson.loads((folder / PAIRS_FILE).read_bytes())


def write_part(whole: Path, target: Path, count: int, seed: int) -> None:
    """Writes `count` pairs and the same share of low-bias answers; smaller parts are subsets of larger ones."""
    pairs, answers = ((whole / name).read_bytes().splitlines(keepends=True) for name in (_PAIRS, _ANSWERS))
    if count > len(pairs):
        raise UsageError(f"{whole} has {len(pairs):,} training pairs, not {count:,}. Debate more topics.")
    files = {path.name: path.read_bytes() for path in sorted(whole.glob("*.jsonl"))}
    files[_PAIRS] = b"".join(_drawn(pairs, count, seed))
    files[_ANSWERS] = b"".join(_drawn(answers, max(1, round(len(answers) * count / len(pairs))), seed))
    about = about_pairs(whole)
    about["counts"] |= {"pairs_train": count, "sft_train": files[_ANSWERS].count(b"\n")}
    about["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (target / name).write_bytes(content)
    # Written last, so that it marks a complete folder.
    (target / PAIRS_FILE).write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n")


def _drawn(lines: Sequence[bytes], count: int, seed: int) -> list[bytes]:
    """Draws lines by hash, so that the first ones do not depend on the number drawn."""
    order = sorted(lines, key=lambda line: hashlib.blake2b(str(seed).encode() + line, digest_size=8).digest())
    chosen = set(order[:count])
    return [line for line in lines if line in chosen]


HELD_OUT_FILE = "held_out.json"
TOPICS_FOLDER = "topics"
"""The folder of topics that a model wrote, with a file for each type of bias."""
LIMIT = "limit"
"""The option of the stage `pairs` that is ours: the maximum number of training pairs."""
HELD_OUT, MOST_HELD_OUT = 12, 100
"""Number of held-out topics per type of bias; of written topics a fifth as many as are debated, between these."""
ROLES, ROUNDS = 3, 5
_OF_BENCHMARK = ("roles", "data")
_OF_METHOD = (
    *("rounds", "words", "answers", "temperature", "max_tokens", "referee_tokens", "scoring"),
    *("calls", "hears", "beliefs", "examples", "reasons", "reading"),
)
_PLACES = {"model", "data", "out", "reward"}


def _defaults(kind: type[Request]) -> dict[str, Any]:
    """Returns option → default, without paths; None if there is no default."""
    return {
        name: None if each.is_required() else each.get_default()
        for name, each in kind.model_fields.items()
        if name not in _PLACES
    }


STAGES: Mapping[str, Mapping[str, Any]] = {
    "debate": dict.fromkeys(("topics", "held_out", PRESET, *_OF_BENCHMARK, *_OF_METHOD)),
    # A threshold is a number, or a word (median, topic); a ratio is a number.
    "pairs": {**_defaults(PairOptions), "threshold": None, "length_ratio": 1.0, LIMIT: 5000},
    "train": _defaults(StageOptions),
    "sft": _defaults(SFTOptions),
    "reward": {**_defaults(RewardOptions), FROM_BASE: False},
    "ppo": _defaults(PPOOptions),
}
"""Stage → options that can be set, with defaults that show the type."""


@dataclass(frozen=True, slots=True)
class Making:
    """Settings for making debates, pairs and models."""

    options: RLDFOptions
    teachers: Sequence[str] = ()
    """The first is that of the arm T-S; each further one has an arm of its own."""
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options by stage, named as in `STAGES`."""
    seeds: Sequence[int] = ()
    """A training for each of these seeds; empty for one training with the default seed."""
    per_type: bool = False
    """Whether each training, and so each reward model, is about one type of bias, as in the paper."""
    written: Path | None = None
    """The folder of topics that a model writes first; None if the existing topics are enough."""

    def __post_init__(self) -> None:
        if not self.model.startswith(("hf/", "local/")):
            raise UsageError(
                f"Only hf/ and local/ models can be trained, not {self.model}. Name trained models with --trained."
            )
        check_names("type of bias", BIASES, *self.options.bias)
        _check_stages(self.stages)
        arms = [TEACHER, *map(teacher_arm, self.teachers[1:])]
        if len(set(arms)) < len(arms):
            raise UsageError("Two teachers have the same name, so their arms cannot be told apart; rename one.")
        if self.written is not None and not isinstance(self.of("debate").get("topics"), int):
            raise UsageError("--generate writes up to a number of topics; say how many with --set debate.topics=N.")

    @property
    def model(self) -> str:
        """The spec of the model to train."""
        return self.options.model.spec

    @property
    def teacher(self) -> str | None:
        return self.teachers[0] if self.teachers else None

    @property
    def referee(self) -> ModelPlan | None:
        return self.options.assigned[0].get("referee")

    @property
    def biases(self) -> tuple[str, ...]:
        return tuple(self.options.bias) or BIASES

    @property
    def seed(self) -> int:
        return self.options.seed

    def about(self, bias: str) -> Making:
        """Returns the same settings for one type of bias."""
        return replace(self, options=self.options.changed(bias=(bias,)))

    def of(self, stage: str) -> Mapping[str, Any]:
        return self.stages.get(stage, {})

    @property
    def topics(self) -> int:
        """Number of debated topics per type: all that are not held out, unless the user wants fewer."""
        if self.written is not None:
            return self.of("debate")["topics"]
        most = min(len(each) for each in self._drawn(self.biases).values()) - self.held_out
        wanted = self.of("debate").get("topics", most)
        if not isinstance(wanted, int) or not 1 < wanted <= most:
            raise UsageError(
                f"There are topics for 2 to {most:,} debates of each type beside the {self.held_out:,} that are held "
                f"out, not for {wanted!r}; --generate has a model write more."
            )
        return wanted

    @property
    def held_out(self) -> int:
        usual = HELD_OUT if self.written is None else min(MOST_HELD_OUT, max(HELD_OUT, self.topics // 5))
        wanted = self.of("debate").get("held_out", usual)
        if not isinstance(wanted, int) or wanted < 1:
            raise UsageError(f"debate.held_out is a whole number above 0, not {wanted!r}.")
        return wanted

    def held_out_topics(self) -> bytes:
        """Returns the file of held-out topics, in the form that `opinions` reads.

        It has all types of bias, since a later command may add others.
        """
        biases = self.biases if self.data else BIASES
        kept = [
            {"id": sample.metadata["topic"], "bias": bias, "question": sample.prompt}
            for bias, samples in self._drawn(biases).items()
            for sample in samples[-self.held_out :]
        ]
        return orjson.dumps({"format": PAIRS_FORMAT, "held_out": kept}, option=orjson.OPT_INDENT_2) + b"\n"

    def _drawn(self, biases: Sequence[str]) -> dict[str, list[Sample]]:
        """Returns the topics of each type in the order of the seed; debates use the first ones."""
        return {bias: list(Debates(bias=bias, data=self.data).samples(Selection(seed=self.seed))) for bias in biases}

    @property
    def data(self) -> str | None:
        """The file or folder of topics; None for the built-in ones."""
        return self.of("debate").get("data") if self.written is None else str(self.written)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training: its debates, and the folders of its pairs and models inside the paper's folder."""

    debates: SeriesRun
    pairs: str
    models: str
    part: int | None = None
    """Number of training pairs; None for all."""
    seed: int | None = None
    """The seed of the training; None for that of its options."""
    at_most: bool = False
    """Whether fewer pairs than `part` will do."""

    @property
    def data(self) -> str:
        """The folder of the training data."""
        return self.pairs if self.part is None else f"{self.pairs}-{self.part}"


def lessons(making: Making) -> dict[Training, Lesson]:
    """Returns the trainings: the two modes (one without a teacher) and RLAIF, each by type and seed if requested."""
    found: dict[Training, Lesson] = {}
    for bias in making.biases if making.per_type else (None,):
        about = making if bias is None else making.about(bias)
        for arm, (name, run) in _schools(about, bias).items():
            for seed in making.seeds or (None,):
                models = f"models/{Training(name, bias, seed).name}"
                pairs, limit = f"pairs/{Training(name, bias).name}", making.of("pairs").get(LIMIT)
                found[Training(arm, bias, seed)] = Lesson(run, pairs, models, limit, seed, at_most=True)
    return found


def _schools(making: Making, bias: str | None) -> dict[str, tuple[str, SeriesRun]]:
    """Returns arm → name of its folders, and the debates that it learns from."""

    def school(name: str, specs: Mapping[str, str], method: str = "debate") -> tuple[str, SeriesRun]:
        return name, debates_run(making, f"debates/{Training(name, bias).name}", method=method, specs=specs)

    found = {SELF: school("sr", {})}
    for place, teacher in enumerate(making.teachers):
        arm = teacher_arm(teacher) if place else TEACHER
        found[arm] = school(f"ts@{arm.partition('@')[2]}" if place else "ts", {"teacher": teacher})
    # The teacher is RLAIF's referee, as in the paper; the answers are the model's own.
    preferring = {"referee": making.teacher} if making.teacher and not making.referee else {}
    return {**found, "rlaif": school("rlaif", preferring, "rlaif")}


def _check_stages(stages: Mapping[str, Mapping[str, Any]]) -> None:
    for stage, chosen in stages.items():
        for name, value in chosen.items():
            if name not in STAGES.get(stage, ()):
                known = f"; {stage} has {', '.join(sorted(STAGES[stage]))}" if stage in STAGES else ""
                raise UsageError(
                    f"--set takes STAGE.OPTION=VALUE, of {', '.join(STAGES)}, not '{stage}.{name}={value}'{known}."
                )
            if not _alike(value, STAGES[stage][name]):
                raise UsageError(f"--set {stage}.{name} takes a value like {STAGES[stage][name]}, not {value!r}.")


def _alike(value: Any, default: Any) -> bool:
    """Returns whether a value has the default's type: text, boolean or number."""
    if default is None:
        return True
    kinds = (str, bool, (int, float))
    return next(isinstance(value, kind) for kind in kinds if isinstance(default, kind))


def trained_arms(found: Mapping[Training, Lesson], out: Path) -> dict[str, str]:
    """Returns training → spec of its model; SFT is the first stage of the paper's method."""
    own = TEACHER if any(training.arm == TEACHER for training in found) else SELF
    tuned = {
        replace(training, arm="sft").name: f"hf/{out / each.models / 'sft'}"
        for training, each in found.items()
        if training.arm == own
    }
    return {**tuned, **{training.name: f"hf/{out / each.models / 'ppo'}" for training, each in found.items()}}


def debates_run(
    making: Making,
    folder: str,
    *,
    method: str = "debate",
    specs: Mapping[str, str] | None = None,
    **changed: Any,
) -> SeriesRun:
    """Returns a run of debates or of another method; `specs` are models by role, `changed` are options."""
    wanted = {"roles": ROLES, **making.of("debate"), **changed}
    wanted.setdefault("topics", making.topics)
    known = METHODS.get(method).options.model_fields
    given = {name: wanted[name] for name in _OF_METHOD if name in wanted and name in known}
    given |= {PRESET: wanted[PRESET]} if PRESET in wanted else {}
    models = {"base": making.options.model}
    models |= {"referee": making.referee} if making.referee else {}
    models |= {role: making.options.reached_alike(spec) for role, spec in (specs or {}).items()}
    plan = making.options.plan(
        Debates.name,
        [MethodPlan(name=method, options=given)],
        options={
            "bias": ",".join(making.biases),
            "topics": wanted["topics"],
            **{name: wanted[name] for name in _OF_BENCHMARK if name in wanted},
            **({"data": making.data} if making.data else {}),
        },
        models=models,
        is_public=False,
    )
    return SeriesRun(folder, plan)


def write_held_out(making: Making, out: Path) -> Path:
    """Writes the held-out topics; topics of an earlier command must be the same."""
    file, content = out / HELD_OUT_FILE, making.held_out_topics()
    if file.is_file():
        if file.read_bytes() != content:
            raise PlanError(f"{file} has other held-out topics than these options. Choose another --out.")
        return file
    out.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def make_pairs(making: Making, each: Lesson, out: Path, check: LeakCheck) -> Mapping[str, Any]:
    """Makes the pairs of a training unless they exist; returns the content of its pairs.json."""
    folder, options = out / each.pairs, pair_options(making)
    if not (folder / PAIRS_FILE).is_file():
        write_pairs([out / each.debates.folder], folder, options, check)
    about = about_pairs(folder)
    if about["options"] != {name: getattr(options, name) for name in STAGES["pairs"] if name != LIMIT}:
        raise PlanError(f"{folder} has pairs made with other options. Choose another --out.")
    if each.part is not None and not (out / each.data / PAIRS_FILE).is_file():
        most = about["counts"]["pairs_train"] if each.at_most else each.part
        write_part(folder, out / each.data, min(each.part, most), making.seed)
    return about_pairs(out / each.data)


def pair_options(making: Making) -> PairOptions:
    wanted: dict[str, Any] = {"seed": making.seed, **making.of("pairs")}
    return PairOptions(**{name: value for name, value in wanted.items() if name != LIMIT})


def recipe_of(making: Making, each: Lesson, out: Path) -> Recipe:
    """Returns the three stages of a training."""
    from evenhand.training.recipe import Recipe

    own = {stage: making.of(stage) for stage in ("sft", "reward", "ppo")}
    shared = {**making.of("train"), **({} if each.seed is None else {"seed": each.seed})}
    return Recipe(making.model, out / each.data, out / each.models, shared, own)


def train(making: Making, each: Lesson, out: Path, announce: Announce) -> list[str]:
    """Trains the three models; keeps finished ones and resumes interrupted ones. Returns cautions."""
    from evenhand.training.card import cautions
    from evenhand.training.recipe import train_recipe

    records = train_recipe(recipe_of(making, each, out), resume=True, announce=announce)
    return [caution for record in records.values() for caution in cautions(record)]
