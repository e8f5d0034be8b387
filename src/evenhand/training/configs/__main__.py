"""`python -m evenhand.training.configs NAME` prints where a configuration for `accelerate launch` lies."""

import sys

import click

from evenhand.errors import UsageError
from evenhand.training.configs import NAMES, path_of

if __name__ == "__main__":
    try:
        click.echo(path_of(sys.argv[1] if len(sys.argv) == 2 else ""))
    except UsageError as error:
        sys.exit(f"{error} One of {', '.join(NAMES)} is needed.")
