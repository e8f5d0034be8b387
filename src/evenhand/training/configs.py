"""Configurations for `accelerate launch`; `python -m evenhand.training.configs NAME` prints the path of one."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evenhand.core.errors import UsageError, check_names

NAMES = ("several_gpus", "fsdp", "fsdp_zero2")


def path_of(name: str) -> Path:
    """Return the path of a configuration, for `accelerate launch --config_file`."""
    check_names("configuration", NAMES, name)
    return Path(__file__).parent / "accelerate" / f"{name}.yaml"


if __name__ == "__main__":
    try:
        click.echo(path_of(sys.argv[1] if len(sys.argv) == 2 else ""))
    except UsageError as error:
        sys.exit(f"{error} Choose one of {', '.join(NAMES)}.")
