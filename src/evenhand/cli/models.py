"""`evenhand models`: what can be used here, why the rest cannot, and downloads of weights."""

from __future__ import annotations

import os

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.progress import shown_count
from evenhand.core import aio
from evenhand.core.config import PROJECT_FILE, read_config, user_file
from evenhand.core.format import doc_line
from evenhand.core.options import Request, argument
from evenhand.models import weights
from evenhand.models.base import PROVIDERS
from evenhand.models.endpoints import provider_options
from evenhand.scorers.neural import weights as neural


@click.group(
    cls=Group,
    invoke_without_command=True,
    lazy={"calibrate": ("evenhand.cli.doctor:calibrate", "Fit the weights of the method weigh to a model.")},
)
@click.pass_context
def models(context: click.Context) -> None:
    """List the providers of models, whether they can be used here, those of config files, and the local weights.

    \b
    Examples:
      evenhand models
      evenhand models pull builtin
    """
    if context.invoked_subcommand is not None:
        return
    for name in PROVIDERS.names():
        provider = PROVIDERS.get(name)
        click.echo(f"{name:<10} {provider.unavailable() or 'ready'}")
        click.echo(f"{'':<10} {doc_line(provider)}")
    _list_named()
    key = "set" if os.environ.get("OPENAI_API_KEY") else "not set"
    click.echo(f"\nOPENAI_API_KEY is {key}; OPENAI_BASE_URL is {os.environ.get('OPENAI_BASE_URL') or 'not set'}.")
    click.echo("\nWeights for local/NAME:")
    for name, each in weights.RECOMMENDED.items():
        place = weights.installed(name)
        state = str(place) if place else f"not here: evenhand models pull {name}"
        state += f", with the adapter {each.lora.name}" if each.lora else ""
        click.echo(f"  {name:<14} {each.licence:<12} {state}")
    click.echo("\nWeights for --scorer NAME:")
    click.echo(f"  {'neural':<14} {neural.LICENCE:<12} {neural.installed() or 'not here: evenhand models pull neural'}")


def _list_named() -> None:
    """The providers of the config files, and where they come from."""
    named = read_config().providers
    click.echo("\nNamed providers:" if named else f"\nNo named providers in {user_file()} or {PROJECT_FILE}.")
    for name, provider in sorted(named.items()):
        found = provider_options(provider)
        key = found.get("key")
        parts = [provider.kind, *(found.get("base_url") or "").split(",")]
        parts += [f"key {key} ({'set' if os.environ.get(key) else 'not set'})"] if key else []
        parts += [f"price {found['price'].input:g}/{found['price'].output:g}"] if "price" in found else []
        click.echo(f"  {name:<14} {', '.join(filter(None, parts))}")
        click.echo(f"  {'':<14} from {provider.source.path}")


class PullCommand(Request):
    name: str = argument("Name.")


@command(PullCommand, models)
def pull(request: PullCommand) -> None:
    """Download the weights NAME, of a local model or of the scorer neural, checked against their sum.

    \b
    Examples:
      evenhand models pull builtin
      evenhand models pull neural
    """
    if request.name == "neural":
        with shown_count(unit="bytes") as count:
            folder = aio.run(neural.pull(count))
        click.echo(f"{folder} (licence {neural.LICENCE}); use it as --scorer neural")
        return
    with shown_count(unit="bytes") as count:
        path = aio.run(weights.pull(request.name, count))
    licence = weights.RECOMMENDED[request.name].licence
    click.echo(f"{path} (licence {licence}); use it as local/{request.name}")
