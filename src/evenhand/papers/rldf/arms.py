"""Arms of the RLDF tables: their estimates and paired differences.

An arm is a method with the untrained model (`default`, `cot`, `fairthinking`) or a trained model with `default`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import hypot, isfinite, sqrt
from pathlib import Path
from statistics import stdev
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from evenhand.benchmarks.base import Metric, mean_of, ratio
from evenhand.core.errors import UsageError, check_names
from evenhand.core.options import PRESET, Several, Text, option
from evenhand.core.presets import Presets
from evenhand.data.debates import BIASES
from evenhand.methods.debate.agents import DebateOptions
from evenhand.papers.base import BOTH, PaperOptions, PresetField
from evenhand.papers.reading import BUILTIN, LENGTH, UNSAID, fault_of, tally_up
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import Assignment
from evenhand.runs.stored import open_sources, told_metrics
from evenhand.stats import student_t_quantile
from evenhand.studies.effects import effect_of
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, PairTally, Tally, estimate
from evenhand.training.options import Listed, listed, read_stage_settings

# --- the options of RLDF: what is measured, and what is trained before ---

PARAMETERS = ("roles", "rounds", "topics", "pairs")
"""What an ablation may vary."""
AblatedValues = Mapping[str, Sequence[int]]
"""Parameter → values."""
SCORER = "opinion"


def read_trained(texts: Iterable[str]) -> dict[str, str]:
    """Returns arm → spec, of ARM=SPEC."""
    found: dict[str, str] = {}
    for text in texts:
        arm, _, spec = text.partition("=")
        if arm in found or not spec:
            raise UsageError(f"--trained takes ARM=SPEC, each arm once, e.g. sft=hf/FOLDER, not {text!r}.")
        found[arm] = spec
    return found


def _seeds(value: Any) -> tuple[int, ...]:
    if not all(part.isdecimal() for part in listed(value)):
        raise UsageError(f"--train-seeds takes whole numbers with commas, e.g. 1,2,3, not {value!r}.")
    return tuple(map(int, listed(value)))


def read_values(texts: Iterable[str]) -> AblatedValues:
    """Returns parameter → values, of PARAMETER=VALUE,VALUE,…."""
    found: dict[str, Sequence[int]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        numbers = values.split(",")
        if not all(re.fullmatch(r"\d+", each) for each in numbers):
            raise _bad_values(text)
        found[name] = [int(each) for each in numbers]
    return checked_values(found)


def checked_values(values: AblatedValues) -> AblatedValues:
    """Returns the values of each parameter, sorted and without duplicates; rejects invalid ones."""
    for name, numbers in values.items():
        if name not in PARAMETERS or len(set(numbers)) < 2 or min(numbers) < 1:
            raise _bad_values(f"{name}={','.join(map(str, numbers))}")
    return {name: tuple(sorted(set(numbers))) for name, numbers in values.items()}


def _bad_values(text: str) -> UsageError:
    return UsageError(
        f"--ablate takes {', '.join(PARAMETERS)} with two or more values, e.g. rounds=1,3,5, not {text!r}."
    )


DECLARED = Presets.beside(__file__)
"""Preset → STAGE.OPTION → value."""


def stages_of(preset: str) -> dict[str, dict[str, Any]]:
    """Returns stage → option → value of a preset; the debates have a preset of the same name."""
    found: dict[str, dict[str, Any]] = {"debate": {PRESET: preset}}
    for name, value in DECLARED[preset].items():
        stage, _, option = name.partition(".")
        if value is not None:
            found.setdefault(stage, {})[option] = value
    return found


class TrainingFields(PresetField):
    """What is trained for the tables and figures."""

    declared: ClassVar = (DebateOptions.presets, DECLARED)

    train: bool = option(False, "First make debates, pairs and models, as far as they are missing.", common=True)
    teachers: Several = option(
        (),
        "A model that debates in the teacher-student mode; further ones fill Table 5.",
        flag="--teacher",
        metavar="SPEC",
        common=True,
    )
    generate: bool = option(False, "Have the teacher, or the model, write topics up to --set debate.topics=N.")
    train_seeds: Annotated[Sequence[int], BeforeValidator(_seeds)] = option(
        (), "A training for each seed, e.g. 1,2,3; tables then show mean ± SD.", metavar="SEEDS"
    )
    per_type: bool = option(False, "Train on each type of bias alone, as the paper (default: pooled).")
    ablate: Mapping[str, tuple[int, ...]] = option(
        {},
        "A training for each of e.g. rounds=1,3,5; also roles, pairs, topics.",
        metavar="NAME=VALUES",
        read=read_values,
        common=True,
    )
    stages: Mapping[str, Mapping[str, Any]] = option(
        {},
        "An option of debate, pairs, train, sft, reward or ppo.",
        flag="--set",
        metavar="STAGE.OPTION=VALUE",
        read=read_stage_settings,
    )
    preset: str = option(
        BOTH,
        "What is trained, as --train or with --ablate: as printed (paper), as the authors' code does it (released), or "
        "ours (evenhand, both and all).",
        metavar="PRESET",
    )

    @property
    def is_training(self) -> bool:
        """Whether anything is asked for that is about what is trained."""
        return any(getattr(self, name) for name in TrainingFields.model_fields if name != "preset")


class RLDFOptions(TrainingFields, PaperOptions):
    """The options of RLDF."""

    judge: str | None = option(
        None, "The judge of answers: neither the model nor its teacher.", metavar="SPEC", common=True
    )
    trained: Mapping[str, str] = option(
        {},
        "A trained model: sft, rlaif, rldf, rldf_sr, rldf_ts, verifiable or rldf:TEACHER.",
        metavar="ARM=SPEC",
        read=read_trained,
        common=True,
    )
    pairs: Text | None = option(
        None, "The pairs that it was trained on; asks what they hold out.", metavar="FOLDER", common=True
    )
    bias: Listed = option((), "Types of bias, with commas (default: all).", metavar="NAMES", common=True)

    @property
    def scorers_of_page(self) -> Sequence[str]:
        """The judge that is named, as the scorer that it is of stored runs."""
        return [f"{SCORER}:{self.judge}"] if self.judge else ()


NAME = "rldf"
BASE = "base"
"""The folder of the untrained model's runs."""
DEFAULT = "default"
METHODS = (DEFAULT, "cot", "fairthinking")
SELF, TEACHER = "rldf_sr", "rldf_ts"
VERIFIABLE = "verifiable"
TRAINED = ("sft", "rlaif", NAME, SELF, TEACHER, VERIFIABLE)
TITLES = {DEFAULT: "Default", "cot": "CoT", "sft": "SFT", "fairthinking": "FairThinking", "rlaif": "RLAIF"}
"""The paper's rows except its own method, in its order."""
OURS = {VERIFIABLE: "Verifiable (not in the paper)"}
"""Rows that the paper does not have; shown where they were run."""
LENGTH_RATIO = "length_ratio"
MODES = {SELF: "S-R", TEACHER: "T-S"}
_BY_TEACHER = f"{NAME}@"
"""Prefix of arms that name their teacher."""
_TRAINING = re.compile(rf"(.+?)(?:-({'|'.join(BIASES)}))?(?:-seed(\d+))?")


@dataclass(frozen=True, slots=True)
class Training:
    """One training of an arm; an arm with several is shown as their mean, with the standard deviation over seeds."""

    arm: str
    bias: str | None = None
    """The type of bias that it is about; None for all."""
    seed: int | None = None
    """None if there is one training only."""

    @property
    def name(self) -> str:
        """The name of the folders of its runs: ARM, ARM-BIAS, ARM-seedN or ARM-BIAS-seedN."""
        return self.arm + (f"-{self.bias}" if self.bias else "") + ("" if self.seed is None else f"-seed{self.seed}")

    @classmethod
    def named(cls, name: str) -> Training:
        found = _TRAINING.fullmatch(name)
        if found is None:
            return cls(name)
        arm, bias, seed = found.groups()
        return cls(arm, bias, None if seed is None else int(seed))

    def matches(self, other: Training) -> bool:
        """Whether a paired difference compares the two: trainings of two arms are paired by type and seed."""
        both = ((self.bias, other.bias), (self.seed, other.seed))
        return all(None in each or each[0] == each[1] for each in both)


def arm_name(text: str) -> str:
    """Returns the folder name for the user's `sft`, `rldf_ts`, `rldf:TEACHER`, each also with `-seedN`."""
    training = Training.named(text)
    kind, colon, teacher = training.arm.partition(":")
    if colon and kind == NAME and re.fullmatch(r"[\w.+-]+", teacher):
        return Training(_BY_TEACHER + teacher, training.bias, training.seed).name
    if colon or kind not in TRAINED:
        raise UsageError(
            f"--trained takes {', '.join(TRAINED)} or rldf:TEACHER, each also with -seedN, e.g. sft=hf/FOLDER, not "
            f"{text!r}."
        )
    return training.name


def teacher_arm(teacher: str) -> str:
    """Returns the arm of a further teacher, named after the last part of its spec."""
    return _BY_TEACHER + re.sub(r"[^\w.+-]", "-", teacher.rstrip("/").rpartition("/")[2])


def teacher_of(arm: str) -> str | None:
    return arm.removeprefix(_BY_TEACHER) if arm.startswith(_BY_TEACHER) else None


def own_arm(arms: Container[str]) -> str:
    """Returns the arm of the paper's method: with a teacher if there is one, as in its tables."""
    return next((arm for arm in (NAME, TEACHER, SELF) if arm in arms), NAME)


@dataclass(frozen=True, slots=True)
class Contrast:
    """A paired difference of two arms, after − before, with its p-value."""

    estimate: Estimate
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Arms:
    """All arms of one benchmark, by name."""

    model: str = ""
    """The spec of the untrained model."""
    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    alone: Mapping[str, Tally] = field(default_factory=dict[str, Tally])
    """All trainings of an arm together, so that intervals are by cluster whatever their number."""
    pairs: Mapping[tuple[str, str], PairTally] = field(default_factory=dict[tuple[str, str], PairTally])
    by_seed: Mapping[str, Mapping[int, Tally]] = field(default_factory=dict[str, Mapping[int, Tally]])
    """Arm → training seed → its tally; only arms with two seeds or more."""
    stopped: frozenset[str] = frozenset()
    """Arms of which a training failed or was stopped; they decide nothing."""

    def __contains__(self, arm: str) -> bool:
        return arm in self.alone

    @property
    def own(self) -> str:
        return own_arm(self.alone)

    @property
    def titles(self) -> dict[str, str]:
        """The rows of a table: the paper's, its own method last, and ours that were run."""
        return {**TITLES, self.own: "RLDF", **{arm: title for arm, title in OURS.items() if arm in self}}

    @property
    def teachers(self) -> dict[str, str]:
        """Arm → teacher."""
        return {arm: teacher for arm in self.alone if (teacher := teacher_of(arm)) is not None}

    def estimate(self, arm: str, metric: str, group: str = ALL) -> Estimate | None:
        """Returns the estimate; None if no sample counts."""
        if arm not in self or (metric, group) not in self.alone[arm].sums:
            return None
        found = estimate(self.metrics[metric], group, self.alone[arm])
        return widened(found, list(self._values(arm, metric, group).values()))

    def spread(self, arm: str, metric: str, group: str = ALL) -> float | None:
        """Returns the standard deviation over training seeds; None with fewer than two."""
        values = self._values(arm, metric, group).values()
        return stdev(values) if len(values) > 1 else None

    def _values(self, arm: str, metric: str, group: str) -> dict[int, float]:
        """Returns training seed → value, where there are several."""
        chosen, key = self.metrics.get(metric), (metric, group)
        if chosen is None:
            return {}
        tables = {seed: each.table(key) for seed, each in self.by_seed.get(arm, {}).items() if key in each.sums}
        found = {seed: float(chosen.statistic(each.sum(axis=0))) * chosen.scale for seed, each in tables.items()}
        return {seed: value for seed, value in found.items() if isfinite(value)}

    def _by_training(self, before: str, after: str, metric: str, group: str) -> list[float]:
        """Returns the difference for each training seed; an arm without trainings of its own moves none of them."""
        first, last = (self._values(arm, metric, group) for arm in (before, after))
        if first and last:
            return [last[seed] - first[seed] for seed in last if seed in first]
        return [*last.values()] or [-value for value in first.values()]

    def length_ratio(self, arm: str, group: str = ALL) -> Estimate | None:
        """Returns the words of an arm's answers in per cent of Default's, over questions that both answer."""
        key = (LENGTH, group)
        if arm == DEFAULT and arm in self and key in self.alone[arm].sums:
            return Estimate(LENGTH_RATIO, group, 100.0, None, None, self.alone[arm].n[key])
        pair = self.pairs.get((DEFAULT, arm))
        if pair is None or key not in pair.before.sums:
            return None
        words = [float(tally.table(key)[:, 0].sum()) for tally in (pair.before, pair.after)]
        return Estimate(LENGTH_RATIO, group, 100.0 * words[1] / words[0], None, None, pair.before.n[key])

    def fault(self, arm: str) -> str:
        """Says why a low bias score of an arm means nothing: it says far less or more than Default, or nothing."""
        if arm in self.stopped:
            return STOPPED
        ratio = self.length_ratio(arm)
        return fault_of((self._unsaid(DEFAULT), self._unsaid(arm)), (100, ratio and ratio.value), "Default")

    def _unsaid(self, arm: str) -> float | None:
        key = (UNSAID.name, ALL)
        if arm not in self or key not in self.alone[arm].sums:
            return None
        silent, asked = self.alone[arm].table(key).sum(axis=0)
        return 100 * float(silent / asked)

    def difference(self, before: str, after: str, metric: str, group: str = ALL) -> Contrast | None:
        """Returns the paired difference; None if no sample counts in both arms."""
        pair = self.pairs.get((before, after))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        found = effect_of(self.metrics[metric], group, before, after, pair)
        made = Estimate(metric, group, found.difference, found.low, found.high, found.n)
        return Contrast(widened(made, self._by_training(before, after, metric, group)), found.p_value)


STOPPED = "a training of it failed or was stopped"


def widened(found: Estimate, by_training: Sequence[float]) -> Estimate:
    """Returns the estimate with an interval that also has how much trainings differ: seeds are clusters.

    Its half-widths over questions and over trainings, by t with one degree of freedom less than trainings, add up as
    independent errors do.
    """
    if len(by_training) < 2 or found.value is None or found.low is None or found.high is None:
        return found
    reach = student_t_quantile(0.975, len(by_training) - 1) * stdev(by_training) / sqrt(len(by_training))
    low, high = (hypot(each - found.value, reach) for each in (found.low, found.high))
    return replace(found, low=found.value - low, high=found.value + high)


ACCURACY = Metric("accuracy", "Accuracy", mean_of("correct"), ratio, "higher", scale=100.0)
"""Accuracy over both contexts of BBQ, with a cluster interval; the benchmark separates the contexts."""


def read_arms(
    folders: Mapping[str, Path],
    group_key: str,
    more: Sequence[Metric] = (),
    scorers: Sequence[str] = (),
    compared: Sequence[tuple[str, str]] = (),
) -> Arms:
    """Reads the arms of the runs in `folders` (`base` or a training → its run).

    `more` are additional metrics, `compared` additional pairs of arms to compare.
    """
    if not folders:
        return Arms()
    with open_sources(list(folders.values()), scorers=scorers) as (runs, sources):
        metrics = {metric.name: metric for metric in told_metrics(runs, sources[0].scorers, more)}
        places = {id(run.store): name for run, name in zip(runs, folders, strict=True)}
        trainings = {source.id: _training(places[id(source.store)], source.arm.method.name) for source in sources}
        alone = {each.arm: Tally(list(metrics.values()), group_key) for each in trainings.values()}
        by_seed = {
            arm: {seed: Tally(list(metrics.values()), group_key) for seed in seeds}
            for arm in alone
            if len(seeds := sorted({t.seed for t in trainings.values() if t.arm == arm and t.seed is not None})) > 1
        }
        pairs = {
            pair: PairTally([metric for metric in metrics.values() if metric.gather is None], group_key)
            for pair in _compared(list(alone), compared)
        }
        own = {name: [alone[each.arm]] for name, each in trainings.items()}
        for name, each in trainings.items():
            if each.arm in by_seed and each.seed is not None:
                own[name].append(by_seed[each.arm][each.seed])
        alike = [(a, b) for a, b in product(trainings, repeat=2) if trainings[a].matches(trainings[b])]
        arms_of = {ids: (trainings[ids[0]].arm, trainings[ids[1]].arm) for ids in alike}
        tally_up(
            sources, own, [(tally, [ids for ids in alike if arms_of[ids] == arms]) for arms, tally in pairs.items()]
        )
        model = next((s.arm.models["base"].spec for s in sources if places[id(s.store)] == BASE), "")
        return Arms(model, metrics, alone, pairs, by_seed)


def _training(place: str, method: str) -> Training:
    """Returns the training of a run; the untrained model's run has an arm for each method."""
    return Training(method) if place == BASE else Training.named(place)


def _compared(arms: Sequence[str], more: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the pairs to compare: all arms with Default and with the paper's method, the two modes, and `more`."""
    own = own_arm(arms)
    wanted = [*more, *((DEFAULT, arm) for arm in arms)]
    wanted += [(arm, own) for arm in arms]
    wanted.append((SELF, TEACHER))
    return [(a, b) for a, b in dict.fromkeys(wanted) if a != b and a in arms and b in arms]


# --- runs: the untrained model with three methods, and each trained model with one ---

CATEGORIES = {
    "Age": "Age",
    "Disability_status": "Disability",
    "Gender_identity": "Gender",
    "Nationality": "Nationality",
    "Physical_appearance": "Appearance",
    "Race_ethnicity": "Race",
}
"""The categories of BBQ in Table 1, and the paper's names for them."""
CHOICES, OPINIONS = "bbq", "opinions"


def runs_of(options: RLDFOptions) -> list[SeriesRun]:
    """Returns the runs of BBQ and opinions for every arm."""
    check_names("type of bias", BIASES, *options.bias)
    runs = [_choices(options, BASE, METHODS), opinions_run(options, f"{OPINIONS}/{BASE}", METHODS)]
    for arm, spec in options.trained.items():
        models, name = {"base": options.reached_alike(spec)}, arm_name(arm)
        runs.append(_choices(options, name, (DEFAULT,), models))
        bias = Training.named(name).bias
        # A model that was trained on one type of bias is asked about that type.
        about = options if bias is None else options.changed(bias=(bias,))
        runs.append(opinions_run(about, f"{OPINIONS}/{name}", (DEFAULT,), models))
    return runs


def opinions_run(
    options: RLDFOptions, folder: str, methods: Sequence[str], models: Assignment | None = None
) -> SeriesRun:
    """Returns an opinions run on held-out topics; all arms have the same judge, so that ratings are comparable."""
    chosen = {"data": options.pairs} if options.pairs else {}
    chosen |= {"bias": ",".join(options.bias)} if options.bias else {}
    plan = options.plan(
        OPINIONS,
        methods,
        limit=None if options.limit is None else options.limit * len(options.bias or BIASES),
        options=chosen,
        models=models,
        scorers=[f"{SCORER}:{options.judge or options.model.spec}"],
        is_public=False,
    )
    return SeriesRun(folder, plan)


def _choices(options: RLDFOptions, arm: str, methods: Sequence[str], models: Assignment | None = None) -> SeriesRun:
    plan = options.plan(
        CHOICES + (BUILTIN if options.builtin else ""),
        methods,
        limit=None if options.limit is None else options.limit * len(CATEGORIES),
        options={"categories": ",".join(CATEGORIES)},
        models=models,
    )
    return SeriesRun(f"{CHOICES}/{arm}", plan)
