"""Starts a training: one stage, or the whole recipe from fine-tuning to PPO or DPO; in this process, or on Ray."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.core.errors import UnknownNameError, UsageError, check_names
from evenhand.core.progress import Announce, Listener
from evenhand.training import models
from evenhand.training.cluster import Workers, train_on_ray
from evenhand.training.options import (
    DPOOptions,
    PPOOptions,
    RewardOptions,
    SFTOptions,
    StageOptions,
    VerifiableOptions,
)
from evenhand.training.parallel import is_main
from evenhand.training.stage import read_record

if TYPE_CHECKING:
    from evenhand.training.recipe import Recipe

Stage = Literal["sft", "reward", "ppo", "dpo", "recipe", "verifiable"]
TrainingRecord = dict[str, Any]
"""The record of a stage from training.json: options, results, how it ended."""
OPTIONS: Mapping[str, type[StageOptions]] = {
    "sft": SFTOptions,
    "reward": RewardOptions,
    "ppo": PPOOptions,
    "dpo": DPOOptions,
}
OF_THE_RECIPE = ("model", "out", "reward")
"""Options of stages that follow from the stage before."""


def train_stage(
    stage: str,
    options: Mapping[str, Any],
    *,
    resume: bool = False,
    listener: Listener | None = None,
    workers: Workers | None = None,
) -> TrainingRecord:
    """Train one stage: `options` are the fields of its options class; with `workers`, on Ray."""
    models.need_packages()
    chosen = _checked(stage, options)
    if workers is None:
        return _stage(stage, chosen, resume=resume, announce=_announce(listener))
    train_on_ray(partial(_stage, stage, chosen), chosen.out, workers, resume=resume, announce=_announce(listener))
    return read_record(chosen.out)


def _stage(stage: str, options: StageOptions, *, resume: bool, announce: Announce) -> TrainingRecord:
    from evenhand.training.recipe import TRAINERS

    return TRAINERS[stage](options, resume=resume, observe=announce(stage))


def train_recipe(
    recipe: Recipe, *, resume: bool = False, listener: Listener | None = None, workers: Workers | None = None
) -> dict[str, TrainingRecord]:
    """Run all stages that are not finished yet, in order; return their records."""
    from evenhand.training import recipe as stages

    if workers is None:
        return stages.train_recipe(recipe, resume=resume, announce=_announce(listener))
    work = partial(stages.train_recipe, recipe)
    train_on_ray(work, recipe.out, workers, resume=resume, announce=_announce(listener))
    return {stage: read_record(recipe.out / stage) for stage in recipe.stages}


def make_recipe(
    options: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]] | None = None, algorithm: str = "ppo"
) -> Recipe:
    """A checked recipe: `options` are of all stages, `own` those of single stages."""
    models.need_packages()
    from evenhand.training.recipe import Recipe

    _check_settings(own or {})
    shared = dict(options)
    model, data, out = (shared.pop(name) for name in ("model", "data", "out"))
    recipe = Recipe(model, Path(data), Path(out), shared, own or {}, algorithm)
    recipe.options()  # checks them all before the first stage begins
    return recipe


def make_verifiable(
    options: Mapping[str, Any], own: Mapping[str, Mapping[str, Any] | None] | None = None, *, smoke: bool = False
) -> VerifiableOptions:
    """The checked options of a verifiable training.

    Args:
        options: Of the whole training, and those that its stages share.
        own: Options of the stages `sft` and `rl`; there is no RL without options of `rl`, which may be empty.
        smoke: Makes everything tiny, to see whether it runs and what the loss does.
    """
    models.need_packages()

    stages: dict[str, Any] = {"sft": {}, "rl": None, **(own or {})}
    for stage in stages:
        if stage not in ("sft", "rl"):
            raise UsageError(f"There is no stage {stage}; a verifiable training has sft and rl.")
    _check_settings({"sft": stages["sft"], "ppo": stages["rl"] or {}}, {"ppo": "rl"})
    whole = {name: value for name, value in options.items() if name in VerifiableOptions.model_fields}
    shared = {name: value for name, value in options.items() if name not in whole}
    for name in shared:
        if name not in StageOptions.model_fields:
            raise UnknownNameError("option of verifiable", name, VerifiableOptions.model_fields)
    chosen: dict[str, Any] = {**whole, **stages, "shared": shared}
    return VerifiableOptions(**(_smoke(chosen) if smoke else chosen))


def train_verifiable(
    options: VerifiableOptions,
    *,
    resume: bool = False,
    listener: Listener | None = None,
    workers: Workers | None = None,
) -> TrainingRecord:
    """Train on questions whose answer is known: fine-tuning, RL with an exact reward if it is asked for, evaluation."""
    from evenhand.training import verifiable

    if workers is None:
        return verifiable.train_verifiable(options, resume=resume, announce=_announce(listener))
    work = partial(verifiable.train_verifiable, options)
    train_on_ray(work, options.out, workers, resume=resume, announce=_announce(listener))
    return read_record(options.out)


def write_gguf_lora(adapter: Path, out: Path) -> None:
    """Write an adapter as a GGUF file for llama.cpp."""
    models.need_packages()
    models.write_gguf_lora(adapter, out)


def _check_settings(own: Mapping[str, Mapping[str, object]], shown: Mapping[str, str] | None = None) -> None:
    """Check the names of options of single stages; `shown` are other names of the stages."""
    for stage, settings in own.items():
        known = OPTIONS[stage].model_fields if stage in OPTIONS else {}
        name = (shown or {}).get(stage, stage)
        for option, value in settings.items():
            if option not in known or option in OF_THE_RECIPE:
                raise UsageError(
                    f"--set {name}.{option}={value} should be STAGE.OPTION=VALUE, e.g. sft.epochs=2 or "
                    f"{'rl' if shown else 'ppo'}.lr=1e-5."
                )


def _smoke(options: Mapping[str, Any]) -> TrainingRecord:
    rl = options.get("rl")
    small = {"steps": 2, "batch": 2, "answers": 2}
    return {
        "rows": 100,
        "forms": ("number",),
        "languages": ("en",),
        "general": 0.1,
        "max_new_tokens": 8,
        "general_tokens": 8,
        "probes": 1,
        **options,
        "sft": {"steps": 8, "batch": 2, "lr": 5e-4, **options.get("sft", {})},
        "rl": None if rl is None else {**small, **rl},
    }


def _checked(stage: str, options: Mapping[str, Any]) -> StageOptions:
    check_names("stage of training", get_args(Stage), stage)
    check_names(f"option of {stage}", OPTIONS[stage].model_fields, *options)
    return OPTIONS[stage](**options)


def _announce(listener: Listener | None) -> Announce:
    """Return whether this process reports progress: only the main one does."""
    return (listener if listener and is_main() else Listener()).stage_began
