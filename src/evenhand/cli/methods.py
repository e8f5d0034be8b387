"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

import click

from evenhand.methods.base import METHODS


@click.command()
def methods() -> None:
    """List the methods, the samples they serve and their options."""
    width = max(map(len, METHODS.names()))
    for name in METHODS.names():
        method = METHODS.get(name)
        needs = f"; needs {', '.join(sorted(method.needs))} (hf/ models)" if method.needs else ""
        click.echo(f"{name:<{width}} {method.summary}")
        click.echo(f"{'':<{width}} serves {', '.join(sorted(method.kinds))}; models: {', '.join(method.roles)}{needs}")
        if method.defaults:
            options = ", ".join(f"{key}={value}" for key, value in method.defaults.items())
            click.echo(f"{'':<{width}} options: {options}  (--method {name}:KEY=VALUE)")
