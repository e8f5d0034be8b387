"""The commands and groups of `evenhand`: options in sections, old names of options, help for a bare group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Plan": (
        *("config", "allow-call", "benchmark", "set", "data", "language", "builtin"),
        *("prompts", "attribute", "repeats"),
        *("limit", "seed", "orders", "reading"),
    ),
    "Model": (
        *("model", "judge", "base-url", "timeout", "retries", "model-option"),
        *("temperature", "max-tokens", "judge-samples", "judge-pool", "reasoning-effort"),
    ),
    "Method": ("method", "templates", "scorer", "accept", "look"),
    "Cost": ("concurrency", "budget", "price", "cache", "no-cache", "dry-run"),
    "Cluster": ("on", "workers", "replicas", "gpus-per-replica", "shard"),
    "Comparison": ("baseline", "correction", "iterations"),
    "Output": (
        "out",
        "run",
        "resume",
        "retry-failed",
        "skip-damaged",
        "max-failed",
        "log-to",
        "otel",
        "format",
        "verbose",
        "log",
        "quiet",
        "json",
    ),
}
"""Where help shows the options that several commands share; a command's own come first, under "Options"."""
_PLACES = {f"--{name}": (section, place) for section, names in SECTIONS.items() for place, name in enumerate(names)}


class _Sections(click.Command):
    """A command that shows its options in sections.

    `renamed` maps old names of options to their new ones; the old ones work, with a hint on standard error.
    """

    def __init__(self, *args: Any, renamed: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.renamed = renamed or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._present_name(each) for each in args] if self.renamed else args)

    def _present_name(self, argument: str) -> str:
        old, equals, value = argument.partition("=")
        if old not in self.renamed:
            return argument
        hint(old, self.renamed[old])
        return self.renamed[old] + equals + value

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in ("Options", *SECTIONS)}
        *own, show_help = self.get_params(ctx)
        places = [
            (*_PLACES.get(param.opts[0], ("Options", 0)), param) for param in own if isinstance(param, click.Option)
        ]
        for section, _, param in sorted(places, key=lambda each: each[1]):
            if (record := param.get_help_record(ctx)) is not None:
                rows[section].append(record)
        shown = {section: records for section, records in rows.items() if records} or {"Options": []}
        if (record := show_help.get_help_record(ctx)) is not None:
            shown[next(reversed(shown))].append(record)
        for section, records in shown.items():
            with formatter.section(section):
                formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class Command(_Sections):
    """A command."""


class Group(_Sections, click.Group):
    """Commands under one name; without any of them, the group's help is shown."""

    command_class = Command
    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


def hint(old: str, new: str) -> None:
    """Say that something has another name now."""
    click.echo(f"{old} is now `{new}`.", err=True)
