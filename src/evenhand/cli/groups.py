"""The commands and groups of `evenhand`: options in sections, two lengths of help, bare groups."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

SECTIONS = ("Options", "Plan", "Model", "Method", "Cost", "Cluster", "Comparison", "Output")
"""The order in which help shows the options; a command's own come first, under "Options"."""
_ALL = "evenhand.help_all"
_MANY = 12
"""Up to this many options are always shown."""


class _Sections(click.Command):
    """A command that shows its options in sections: --help those that most people need, --help-all every one."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, show_help = super().get_params(ctx)
        return [*own, _help_all(), show_help]

    @property
    def _is_long(self) -> bool:
        """Whether --help leaves some options out."""
        shown = [param for param in self.params if _is_shown(param)]
        return len(shown) > _MANY and not all(map(_is_common, shown))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = ctx.meta.get(_ALL, False) or not self._is_long
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        *own, show_help = self.get_params(ctx)
        for param in filter(_is_shown, own):
            record = param.get_help_record(ctx)
            if record is not None and (whole or _is_common(param)):
                rows[getattr(param, "section", "Options")].append(record)
        shown = {section: records for section, records in rows.items() if records} or {"Options": []}
        last = shown[next(reversed(shown))]
        if not whole:
            count = sum(map(_is_shown, self.params))
            last.append(("--help-all", f"Show all {count} options and exit."))
        if (record := show_help.get_help_record(ctx)) is not None:
            last.append(record)
        for section, records in shown.items():
            with formatter.section(section):
                formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _is_shown(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.hidden


def _is_common(param: click.Parameter) -> bool:
    return getattr(param, "common", True)


def _help_all() -> click.Option:
    def show(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[_ALL] = True
            click.echo(ctx.get_help())
            ctx.exit()

    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=show, help="Everything."
    )


class Command(_Sections):
    """A command."""


class Group(_Sections, click.Group):
    """Commands under one name; without any of them, the group's help is shown, or its `default` is run.

    Args:
        lazy: Name → (module:attribute, one line) of commands that are imported only when they are used.
        default: The command that is meant where the first word names none, e.g. `list` of `evenhand runs FOLDER`.
        alone: Whether `default` is also run without any word.
    """

    command_class = Command
    group_class = type

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        default: str | None = None,
        alone: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}
        self.default = default
        self.alone = alone

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *(name for name in super().list_commands(ctx) if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.lazy:
            module, _, attribute = self.lazy[cmd_name][0].partition(":")
            return getattr(importlib.import_module(module), attribute)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                rows.append((name, self.lazy[name][1]))
            elif (command := self.get_command(ctx, name)) is not None:
                rows.append((name, command.get_short_help_str(80)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and ctx.resilient_parsing:  # a shell asks for the commands
            return super().parse_args(ctx, args)
        if not args and self.alone and self.default is not None:
            args = [self.default]
        if not args and not self.invoke_without_command:
            click.echo(ctx.get_help())
            ctx.exit()
        if self.default is not None and args and not self._is_own(ctx, args[0]):
            meant = self.get_command(ctx, self.default)
            if args[0][:1] != "-" and meant and not any(isinstance(each, click.Argument) for each in meant.params):
                where = f"; give a file with --config {args[0]}" if "." in args[0] else ""
                ctx.fail(f"There is no command {args[0]!r}{where}.")
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _is_own(self, ctx: click.Context, word: str) -> bool:
        own = {*self.list_commands(ctx), *(name for param in self.get_params(ctx) for name in param.opts)}
        return word in own
