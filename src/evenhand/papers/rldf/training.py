"""The steps of `evenhand paper rldf --train`: debates, pairs and models, each in a folder that is kept.

The evaluation topics are held out first: the last ones in the order of the seed. So all models are evaluated on the
same topics, and none has seen them in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import orjson

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.debates import Debates
from evenhand.data.debates import BIASES
from evenhand.data.opinion_topics import PAIRS_FILE, PAIRS_FORMAT
from evenhand.errors import PlanError, UsageError
from evenhand.methods.base import METHODS
from evenhand.papers.base import PaperOptions, PaperRun
from evenhand.papers.rldf.arms import SELF, TEACHER, check_biases
from evenhand.papers.rldf.part import about_pairs, write_part
from evenhand.runs.plan import MethodPlan, ModelPlan
from evenhand.training.options import Options, PPOOptions, RewardOptions, SFTOptions
from evenhand.training.pairs import PairOptions
from evenhand.training.pairs.folder import write_pairs
from evenhand.training.pairs.leaks import LeakCheck
from evenhand.types import Sample

HELD_OUT_FILE = "held_out.json"
HELD_OUT = 12
"""Number of held-out topics per type of bias."""
ROLES, ROUNDS = 3, 5
_OF_BENCHMARK = ("roles", "data")
_OF_METHOD = ("rounds", "answers", "temperature", "max_tokens", "referee_tokens", "scoring")
_PLACES = {"model", "data", "out", "reward"}


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Returns option → default, without paths; None if there is no default."""
    return {each.name: _default(each.default) for each in fields(kind) if each.name not in _PLACES}


def _default(value: Any) -> Any:
    return None if value is MISSING else value


STAGES: Mapping[str, Mapping[str, Any]] = {
    "debate": dict.fromkeys(("topics", "held_out", *_OF_BENCHMARK, *_OF_METHOD)),
    # A threshold is a number, or the word median; a ratio is a number.
    "pairs": {**_defaults(PairOptions), "threshold": None, "length_ratio": 1.0},
    "train": _defaults(Options),
    "sft": _defaults(SFTOptions),
    "reward": _defaults(RewardOptions),
    "ppo": _defaults(PPOOptions),
}
"""Stage → options that can be set, with defaults that show the type."""

Announce = Callable[[str], Callable[[int, int], None]]


@dataclass(frozen=True, slots=True)
class Making:
    """Settings for making debates, pairs and models."""

    options: PaperOptions
    teacher: str | None = None
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options by stage, named as in `STAGES`."""

    def __post_init__(self) -> None:
        if not self.model.startswith(("hf/", "local/")):
            raise UsageError(
                f"Only hf/ and local/ models can be trained, not {self.model}. Name trained models with --trained."
            )
        check_biases(self.options.bias)
        _check_stages(self.stages)

    @property
    def model(self) -> str:
        """The spec of the model to train."""
        return self.options.model.spec

    @property
    def referee(self) -> ModelPlan | None:
        return self.options.models[0].get("referee")

    @property
    def biases(self) -> tuple[str, ...]:
        return self.options.bias or BIASES

    @property
    def seed(self) -> int:
        return self.options.seed

    def about(self, bias: str) -> Making:
        """Returns the same settings for one type of bias."""
        return replace(self, options=replace(self.options, bias=(bias,)))

    def of(self, stage: str) -> Mapping[str, Any]:
        return self.stages.get(stage, {})

    @property
    def topics(self) -> int:
        """Number of debated topics per type: all that are not held out, unless the user wants fewer."""
        most = min(len(each) for each in self._drawn(self.biases).values()) - self.held_out
        wanted = self.of("debate").get("topics", most)
        if not isinstance(wanted, int) or not 1 < wanted <= most:
            raise UsageError(
                f"There are topics for 2 to {most:,} debates of each type beside the {self.held_out:,} that are held "
                f"out, not for {wanted!r}."
            )
        return wanted

    @property
    def held_out(self) -> int:
        wanted = self.of("debate").get("held_out", HELD_OUT)
        if not isinstance(wanted, int) or wanted < 1:
            raise UsageError(f"debate.held_out is a whole number above 0, not {wanted!r}.")
        return wanted

    def held_out_topics(self) -> bytes:
        """Returns the file of held-out topics, in the form that `opinions` reads.

        It has all types of bias, since a later command may add others.
        """
        biases = self.biases if self.of("debate").get("data") else BIASES
        kept = [
            {"id": sample.metadata["topic"], "bias": bias, "question": sample.prompt}
            for bias, samples in self._drawn(biases).items()
            for sample in samples[-self.held_out :]
        ]
        return orjson.dumps({"format": PAIRS_FORMAT, "held_out": kept}, option=orjson.OPT_INDENT_2) + b"\n"

    def _drawn(self, biases: Sequence[str]) -> dict[str, list[Sample]]:
        """Returns the topics of each type in the order of the seed; debates use the first ones."""
        data = self.of("debate").get("data")
        return {bias: list(Debates(bias=bias, data=data).samples(Selection(seed=self.seed))) for bias in biases}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training: its debates, and the folders of its pairs and models inside the paper's folder."""

    debates: PaperRun
    pairs: str
    models: str
    part: int | None = None
    """Number of training pairs; None for all."""

    @property
    def data(self) -> str:
        """The folder of the training data."""
        return self.pairs if self.part is None else f"{self.pairs}-{self.part}"


def lessons(making: Making) -> dict[str, Lesson]:
    """Returns the trainings by arm: the two modes (one without a teacher) and RLAIF."""
    found = {SELF: _lesson("sr", debates_run(making, "debates/sr"))}
    if making.teacher:
        run = debates_run(making, "debates/ts", specs={"teacher": making.teacher})
        found[TEACHER] = _lesson("ts", run)
    # The teacher is RLAIF's referee, as in the paper; the answers are the model's own.
    preferring = {"referee": making.teacher} if making.teacher and not making.referee else {}
    run = debates_run(making, "debates/rlaif", method="rlaif", specs=preferring)
    return {**found, "rlaif": _lesson("rlaif", run)}


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


def _lesson(name: str, debates: PaperRun) -> Lesson:
    return Lesson(debates, f"pairs/{name}", f"models/{name}")


def trained_arms(found: Mapping[str, Lesson], out: Path) -> dict[str, str]:
    """Returns arm → spec of the trained model; SFT is the first stage of the paper's method."""
    if not found:
        return {}
    own = found.get(TEACHER) or found[SELF]
    return {
        "sft": f"hf/{out / own.models / 'sft'}",
        **{arm: f"hf/{out / each.models / 'ppo'}" for arm, each in found.items()},
    }


def debates_run(
    making: Making,
    folder: str,
    *,
    method: str = "debate",
    specs: Mapping[str, str] | None = None,
    **changed: Any,
) -> PaperRun:
    """Returns a run of debates or of another method; `specs` are models by role, `changed` are options."""
    wanted = {"roles": ROLES, **making.of("debate"), **changed}
    wanted.setdefault("topics", making.topics)
    known = METHODS.get(method).options.model_fields
    given = {name: wanted[name] for name in _OF_METHOD if name in wanted and name in known}
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
        },
        models=models,
        is_public=False,
    )
    return PaperRun(folder, plan)


def write_held_out(making: Making, out: Path) -> Path:
    """Writes the held-out topics; topics of an earlier command must be the same."""
    file, content = out / HELD_OUT_FILE, making.held_out_topics()
    if file.is_file() and file.read_bytes() != content:
        raise PlanError(f"{file} has other held-out topics than these options. Choose another --out.")
    out.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def make_pairs(making: Making, each: Lesson, out: Path, check: LeakCheck) -> Mapping[str, Any]:
    """Makes the pairs of a training unless they exist; returns the content of its pairs.json."""
    wanted: dict[str, Any] = {"seed": making.seed, **making.of("pairs")}
    folder, options = out / each.pairs, PairOptions(**wanted)
    if not (folder / PAIRS_FILE).is_file():
        write_pairs([out / each.debates.folder], folder, options, check)
    about = about_pairs(folder)
    if about["options"] != {name: getattr(options, name) for name in STAGES["pairs"]}:
        raise PlanError(f"{folder} has pairs made with other options. Choose another --out.")
    if each.part is not None and not (out / each.data / PAIRS_FILE).is_file():
        write_part(folder, out / each.data, each.part, making.seed)
    return about_pairs(out / each.data)


def train(making: Making, each: Lesson, out: Path, announce: Announce) -> list[str]:
    """Trains the three models; keeps finished ones and resumes interrupted ones. Returns cautions."""
    from evenhand.training.card import cautions
    from evenhand.training.recipe import Recipe, train_recipe

    own = {stage: making.of(stage) for stage in ("sft", "reward", "ppo")}
    recipe = Recipe(making.model, out / each.data, out / each.models, making.of("train"), own)
    records = train_recipe(recipe, resume=True, announce=announce)
    return [caution for record in records.values() for caution in cautions(record)]
