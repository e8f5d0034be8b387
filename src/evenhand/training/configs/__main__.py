"""`python -m evenhand.training.configs NAME` prints the path of a configuration for `accelerate launch`."""

import sys

import click

from evenhand.core.errors import UsageError
from evenhand.training.configs import NAMES, path_of

if __name__ == "__main__":
    try:
        click.echo(path_of(sys.argv[1] if len(sys.argv) == 2 else ""))
    except UsageError as error:
        sys.exit(f"{error} Choose one of {', '.join(NAMES)}.")
