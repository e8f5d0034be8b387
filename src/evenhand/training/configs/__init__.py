"""Configurations for `accelerate launch`; `python -m evenhand.training.configs NAME` prints the path of one."""

from __future__ import annotations

from pathlib import Path

from evenhand.core.errors import UnknownNameError

NAMES = ("several_gpus", "fsdp", "fsdp_zero2")


def path_of(name: str) -> Path:
    """Return the path of a configuration, for `accelerate launch --config_file`."""
    if name not in NAMES:
        raise UnknownNameError("configuration", name, NAMES)
    return Path(__file__).parent / f"{name}.yaml"
