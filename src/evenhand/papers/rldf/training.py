"""What `evenhand paper rldf --train` makes: debates, pairs of them, and models; each in a folder that is kept.

The topics that are asked in the end are set apart first: the last ones in the order in which the seed draws them. So
all models, however they were trained, are asked the same, and none has seen it.
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
"""Topics of each type of bias that are kept for the end."""
ROLES, ROUNDS = 3, 5
_OF_BENCHMARK = ("roles", "data")
_OF_METHOD = ("rounds", "answers", "temperature", "max_tokens", "referee_tokens", "scoring")
_PLACES = {"model", "data", "out", "reward"}


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Option → default, without where things are; None where it has none."""
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
"""What can be set, with its default where that tells the type: of debates, pairs, all of training, single stages."""

Announce = Callable[[str], Callable[[int, int], None]]


@dataclass(frozen=True, slots=True)
class Making:
    """How debates, pairs and models are made."""

    options: PaperOptions
    teacher: str | None = None
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options by stage, named as in `STAGES`."""

    def __post_init__(self) -> None:
        if not self.model.startswith(("hf/", "local/")):
            raise UsageError(
                f"Only hf/ and local/ models can be trained, not {self.model}; name what you have trained."
            )
        check_biases(self.options.bias)
        _check_stages(self.stages)

    @property
    def model(self) -> str:
        """The spec of the model that is trained."""
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
        """The same about one type of bias alone."""
        return replace(self, options=replace(self.options, bias=(bias,)))

    def of(self, stage: str) -> Mapping[str, Any]:
        return self.stages.get(stage, {})

    @property
    def topics(self) -> int:
        """Topics of each type that are debated: as many as are there and not held out, unless fewer are wanted."""
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
        """The file of the topics that are kept for the end, in the form that `opinions` reads.

        It has all types, whichever are debated: another command may go on with others.
        """
        biases = self.biases if self.of("debate").get("data") else BIASES
        kept = [
            {"id": sample.metadata["topic"], "bias": bias, "question": sample.prompt}
            for bias, samples in self._drawn(biases).items()
            for sample in samples[-self.held_out :]
        ]
        return orjson.dumps({"format": PAIRS_FORMAT, "held_out": kept}, option=orjson.OPT_INDENT_2) + b"\n"

    def _drawn(self, biases: Sequence[str]) -> dict[str, list[Sample]]:
        """The topics of each type in the order of the seed, of which debates take the first."""
        data = self.of("debate").get("data")
        return {bias: list(Debates(bias=bias, data=data).samples(Selection(seed=self.seed))) for bias in biases}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training: the debates that it learns from, and where pairs and models go, under the paper's folder."""

    debates: PaperRun
    pairs: str
    models: str
    part: int | None = None
    """Only this many of the pairs are trained on."""

    @property
    def data(self) -> str:
        """The folder that is trained on."""
        return self.pairs if self.part is None else f"{self.pairs}-{self.part}"


def lessons(making: Making) -> dict[str, Lesson]:
    """The two modes and RLAIF, by arm; without a teacher there is one mode."""
    found = {SELF: _lesson("sr", debates_run(making, "debates/sr"))}
    if making.teacher:
        run = debates_run(making, "debates/ts", specs={"teacher": making.teacher})
        found[TEACHER] = _lesson("ts", run)
    # The AI that prefers is the teacher, as in the paper; the answers are the model's own.
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
    """Whether a value is of the default's kind: a text, true or false, or a number."""
    if default is None:
        return True
    kinds = (str, bool, (int, float))
    return next(isinstance(value, kind) for kind in kinds if isinstance(default, kind))


def _lesson(name: str, debates: PaperRun) -> Lesson:
    return Lesson(debates, f"pairs/{name}", f"models/{name}")


def trained_arms(found: Mapping[str, Lesson], out: Path) -> dict[str, str]:
    """Arm → spec of what the lessons make; SFT is the first stage of the paper's own."""
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
    """A run of debates, or of the method that replaces them; `specs` are its models by role, `changed` its options."""
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
    """The topics that are kept for the end; those of another command must be the same."""
    file, content = out / HELD_OUT_FILE, making.held_out_topics()
    if file.is_file() and file.read_bytes() != content:
        raise PlanError(f"{file} holds other topics than these options keep for the end; choose another --out.")
    out.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def make_pairs(making: Making, each: Lesson, out: Path, check: LeakCheck) -> Mapping[str, Any]:
    """The pairs of a lesson, kept where they are made; what its pairs.json says."""
    wanted: dict[str, Any] = {"seed": making.seed, **making.of("pairs")}
    folder, options = out / each.pairs, PairOptions(**wanted)
    if not (folder / PAIRS_FILE).is_file():
        write_pairs([out / each.debates.folder], folder, options, check)
    about = about_pairs(folder)
    if about["options"] != {name: getattr(options, name) for name in STAGES["pairs"]}:
        raise PlanError(f"{folder} holds pairs that were made with other options; choose another --out.")
    if each.part is not None and not (out / each.data / PAIRS_FILE).is_file():
        write_part(folder, out / each.data, each.part, making.seed)
    return about_pairs(out / each.data)


def train(making: Making, each: Lesson, out: Path, announce: Announce) -> list[str]:
    """The three models of a lesson; what is finished is kept, what was interrupted goes on. What to look at in them."""
    from evenhand.training.card import cautions
    from evenhand.training.recipe import Recipe, train_recipe

    own = {stage: making.of(stage) for stage in ("sft", "reward", "ppo")}
    recipe = Recipe(making.model, out / each.data, out / each.models, making.of("train"), own)
    records = train_recipe(recipe, resume=True, announce=announce)
    return [caution for record in records.values() for caution in cautions(record)]
