"""The command `evenhand`: finds the command, runs it, and turns every expected failure into one sentence."""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import click

from evenhand.cli.groups import Group
from evenhand.core.errors import EvenhandError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Measure": {
        "audit": ("evenhand.cli.run:audit", "Measure one model on a benchmark and write a report."),
        "compare": ("evenhand.cli.run:compare", "Compare methods or models, or stored runs; write a report."),
        "gate": ("evenhand.cli.gate:gate", "Check metrics against limits: pass or fail, for CI."),
        "suite": ("evenhand.cli.suite:suite", "Measure one model in many areas and print one page."),
        "score": ("evenhand.cli.score:score", "Score the texts in a file for toxicity or quality."),
        "resume": ("evenhand.cli.resume:resume", "Continue a run, a suite or a paper that was stopped."),
    },
    "Look": {
        "report": ("evenhand.cli.report:report", "Write the report of stored runs again."),
        "runs": ("evenhand.cli.runs:runs", "List stored runs: benchmark, models, headline, state and cost."),
        "ui": ("evenhand.cli.ui:ui", "Browse, compare and start runs on web pages."),
    },
    "Reduce": {
        "serve": ("evenhand.cli.serve:serve", "Serve a model through a method, OpenAI-compatible."),
        "train": ("evenhand.cli.train:train", "Train a model not to guess about people, or from debates and pairs."),
    },
    "Prepare": {
        "init": ("evenhand.cli.init:init", "Write a project: config, plan, workflow and a first gate."),
        "data": ("evenhand.cli.data:data", "List, download, filter and search data."),
        "models": ("evenhand.cli.doctor:models", "List the models that can be used; download or calibrate them."),
        "doctor": ("evenhand.cli.doctor:doctor", "Check with a few small calls what a model can do."),
    },
    "More": {
        "list": ("evenhand.cli.lists:lists", "List methods, benchmarks and scorers with their options."),
        "run": ("evenhand.cli.run:run", "Run a plan without a report; show, rescore, export, merge and copy runs."),
        "judges": ("evenhand.cli.judges:judges", "Check judges against people, and for biases of their own."),
        "annotate": ("evenhand.cli.annotate:annotate", "Have people rate the answers of runs, blind."),
        "evidence": ("evenhand.cli.evidence:evidence", "Make an evidence pack for auditors from stored runs."),
        "metrics": ("evenhand.cli.metrics:metrics", "Score benchmark answers that were produced elsewhere."),
        "papers": ("evenhand.cli.paper:paper", "Reproduce a paper's tables and figures with your model."),
    },
}
"""Heading → name → (module:attribute, one line). The lines are kept here so that --help imports no command."""
COMMANDS = {name: where for commands in SECTIONS.values() for name, where in commands.items()}


class _Main(Group):
    """The commands in sections, and the nearest name where there is none."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f"; did you mean {near[0]}?" if near else "."
            ctx.fail(f"There is no command {args[0]!r}{meant}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands from their lines, without importing them."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return found if found or not incomplete.startswith("-") else click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])


def _print_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from evenhand.core.version import own_version

        click.echo(f"evenhand, version {own_version()}")
        ctx.exit()


@click.group(
    cls=_Main, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def main() -> None:
    """Measure and reduce social bias and toxicity of language models.

    \b
    First steps, all offline:
      evenhand models pull builtin                    fetch the small built-in model
      evenhand audit local/builtin --limit 220        measure it on the built-in questions
      evenhand compare --model local/builtin --method default --method cot --limit 220

    A model is named provider/name: local/builtin, local/PATH.gguf, openai/NAME (any OpenAI-compatible
    endpoint, with --base-url or as 'openai/NAME?base_url=URL&key=VARIABLE'), hf/PATH, ray/hf/PATH,
    inspect/PROVIDER/NAME, fake/TEXT. Define your own providers in evenhand.toml.
    """


def entry() -> NoReturn:
    """Run the command line; errors that the user can fix are one sentence and exit code 2."""
    warnings.showwarning = _print_warning
    warnings.simplefilter("ignore", FutureWarning)  # what libraries will change
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # their bars are one endless line in a log
    try:
        code: Any = main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        _fail(str(error.__cause__ or error) or "Interrupted.", 130)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        message = error.format_message()
        _fail(message + ("" if message.endswith((".", "?", ")")) else ".") + hint)
    except EvenhandError as error:
        error.names_arguments = False
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except Exception as error:
        from evenhand.core.registry import fault_in_files
        from evenhand.runs.file import damage_of_opened

        if fault := fault_in_files(error):
            _fail(f"{fault}. Whatever a run has finished is kept.")
        if damage := damage_of_opened():
            _fail(damage)
        if reported := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors' own class for what the system says
            _fail(f"A file cannot be written or read: {os.strerror(int(reported[1]))}. What was finished is kept.")
        _fail(
            f"This is a fault of Evenhand, please report it: {type(error).__name__}: {error} "
            "(EVENHAND_DEBUG=1 shows where). Whatever a run has finished is kept.",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _print_warning(message: Warning | str, *_: Any) -> None:
    from evenhand.core.untrusted import clean  # not at every start

    click.echo(f"evenhand: {clean(str(message))}", err=True)


def _fail(message: str, code: int = 2) -> NoReturn:
    if os.environ.get("EVENHAND_DEBUG"):
        raise  # noqa: PLE0704 - called while an exception is handled
    _print_warning(message)
    sys.exit(code)
