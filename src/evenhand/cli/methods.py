"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

import click

from evenhand.methods.base import METHODS


@click.command()
def methods() -> None:
    """List the methods, the samples they serve and their options."""
    for name in METHODS.names():
        method = METHODS.get(name)
        click.echo(f"{name:<14} {method.summary}")
        click.echo(f"{'':<14} serves {', '.join(sorted(method.kinds))}; models: {', '.join(method.roles)}")
        if method.defaults:
            options = ", ".join(f"{key}={value}" for key, value in method.defaults.items())
            click.echo(f"{'':<14} options: {options}  (--method {name}:KEY=VALUE)")
