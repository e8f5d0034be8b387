"""The options of RLDF: what is measured, and what is trained before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from evenhand.core.errors import UsageError
from evenhand.core.options import PRESET, Several, Text, option
from evenhand.core.presets import Presets
from evenhand.methods.debate.agents import DebateOptions
from evenhand.papers.base import BOTH, PaperOptions, PresetField
from evenhand.training.options import Listed, listed, read_stage_settings

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
        "With --train or --ablate: as printed (paper), as the authors' code does it (released), or ours (evenhand, "
        "both and all).",
        metavar="PRESET",
    )

    @property
    def is_training(self) -> bool:
        """Whether anything is asked for that is about what is trained."""
        return any(getattr(self, name) for name in TrainingFields.model_fields if name != "preset")


class RLDFOptions(TrainingFields, PaperOptions):
    """The options of RLDF."""

    former: ClassVar[Mapping[str, str]] = {"settings": "stages"}

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
