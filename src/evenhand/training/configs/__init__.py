"""Configurations for `accelerate launch`; `python -m evenhand.training.configs NAME` tells where one lies."""

from __future__ import annotations

from pathlib import Path

from evenhand.errors import UnknownNameError

NAMES = ("several_gpus", "fsdp", "fsdp_zero2")


def path_of(name: str) -> Path:
    """The file of a configuration, to be given to `accelerate launch --config_file`."""
    if name not in NAMES:
        raise UnknownNameError("configuration", name, NAMES)
    return Path(__file__).parent / f"{name}.yaml"
