"""The command `evenhand`: finds the command, runs it, and turns every expected failure into one sentence."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import warnings
from typing import Any, NoReturn

import click

from evenhand.cli.groups import Group, hint
from evenhand.core.errors import EvenhandError

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Measure": {
        "audit": ("evenhand.cli.run:audit", "Measure one model on a benchmark and write a report."),
        "compare": ("evenhand.cli.run:compare", "Compare methods or models, or stored runs; write a report."),
        "run": ("evenhand.cli.run:run", "Run a plan and store it, without a report."),
        "resume": ("evenhand.cli.resume:resume", "Go on with a run or a paper that was stopped."),
        "merge": ("evenhand.cli.merge:merge", "Merge the shards of a plan into one run."),
        "gate": ("evenhand.cli.gate:gate", "Pass or fail by limits on metrics, for CI."),
        "init": ("evenhand.cli.init:init", "Write a project: config, plan, workflow and a first gate."),
        "suite": ("evenhand.cli.suite:suite", "Measure one model in many areas and print one page."),
        "malibu": ("evenhand.cli.malibu:malibu", "Audit judges and panels for bias by the author's identity."),
        "framing": ("evenhand.cli.framing:framing", "Measure how many biases a model admits in its own texts."),
        "attention": ("evenhand.cli.attention:attention", "Show where a model attends when told who wrote a text."),
        "paper": ("evenhand.cli.paper:paper", "Reproduce a paper's tables and figures with your model."),
        "score": ("evenhand.cli.score:score", "Score the texts of a file: toxicity and its kinds, or quality."),
        "metrics": ("evenhand.cli.metrics:metrics", "Score benchmark answers that were produced elsewhere."),
    },
    "Inspect": {
        "ui": ("evenhand.cli.ui:ui", "Browse, compare and start runs on web pages."),
        "runs": ("evenhand.cli.runs:runs", "List stored runs: benchmark, models, headline, state and cost."),
        "show": ("evenhand.cli.show:show", "Print a run's plan and state, or one sample's story."),
        "report": ("evenhand.cli.report:report", "Write the report of stored runs again."),
        "export": ("evenhand.cli.export:export", "Write a run's results as CSV, Parquet or JSON Lines."),
        "evidence": ("evenhand.cli.evidence:evidence", "Make an evidence pack for auditors from stored runs."),
        "rescore": ("evenhand.cli.rescore:rescore", "Score the stored answers of a run with another scorer."),
        "push": ("evenhand.cli.remote:push", "Copy a run to object storage."),
        "pull": ("evenhand.cli.remote:pull", "Copy a run from object storage."),
        "annotate": ("evenhand.cli.annotate:annotate", "Have people rate the answers of runs, blind."),
        "judges": ("evenhand.cli.judges:judges", "Check judges against people, and for biases of their own."),
        "doctor": ("evenhand.cli.doctor:doctor", "Check with a few small calls what a model can do."),
        "calibrate": ("evenhand.cli.calibrate:calibrate", "Fit the weights of the method weigh to a model."),
    },
    "Train": {
        "debate": ("evenhand.cli.debate:debate", "Have roles debate topics while a referee scores their bias."),
        "pairs": ("evenhand.cli.pairs:pairs", "Make preference pairs for training from stored debates."),
        "train": ("evenhand.cli.train:train", "Train a less biased model from pairs: SFT, reward model, PPO."),
    },
    "Serve": {
        "serve": (
            "evenhand.cli.serve:serve",
            "Serve a model through a method, OpenAI-compatible.",
        ),
    },
    "Data": {
        "data": ("evenhand.cli.data:data", "List and download public data sets."),
        "models": ("evenhand.cli.models:models", "List the models that can be used; download weights."),
        "methods": ("evenhand.cli.methods:methods", "List the methods and their options."),
        "benchmarks": ("evenhand.cli.benchmarks:benchmarks", "List the benchmarks and their options."),
        "scorers": ("evenhand.cli.scorers:scorers", "List the scorers, and which can be used here."),
        "search": ("evenhand.cli.search:search", "Search for evidence as a method would."),
    },
}
"""Heading → name → (module:attribute, one line). The lines are kept here so that --help imports no command."""
COMMANDS = {name: where for commands in SECTIONS.values() for name, (where, _) in commands.items()}
_OLD_NAMES = {"serve-key": "serve keys", "serve-audit": "serve audit export"}


class _LazyGroup(Group):
    """Imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if (new := _OLD_NAMES.get(args[0])) is not None:
            hint(args[0], new)
            args = [*new.split(), *args[1:]]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see evenhand --help."
            ctx.fail(f"There is no command {cmd_name!r}{hint}")
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="evenhand")
def main() -> None:
    """Measure and reduce social bias and toxicity of language models.

    \b
    First steps, all offline:
      evenhand models pull builtin                    fetch the small built-in model
      evenhand audit local/builtin --limit 220        measure it on the built-in questions
      evenhand compare --model local/builtin --method default --method cot --limit 220

    A model is named provider/name: local/builtin, local/PATH.gguf, openai/NAME (any OpenAI-compatible
    endpoint, with --base-url or as 'openai/NAME?base_url=URL&key=VARIABLE'), hf/PATH, ray/hf/PATH,
    inspect/PROVIDER/NAME, fake/TEXT. Providers of your own are named in evenhand.toml.
    """


def entry() -> NoReturn:
    """Run the command line; exit code 2 and one sentence for whatever the user can mend."""
    warnings.showwarning = _print_warning
    try:
        code: Any = main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        _fail(str(error.__cause__ or error) or "Interrupted.", 130)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        _fail(error.format_message() + hint)
    except EvenhandError as error:
        error.names_arguments = False
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except Exception as error:
        _fail(
            f"This is a fault of Evenhand, please report it: {type(error).__name__}: {error} "
            "(EVENHAND_DEBUG=1 shows where). Whatever a run has finished is kept.",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _print_warning(message: Warning | str, *_: Any) -> None:
    click.echo(f"evenhand: {message}", err=True)


def _fail(message: str, code: int = 2) -> NoReturn:
    if os.environ.get("EVENHAND_DEBUG"):
        raise  # noqa: PLE0704 - called while an exception is handled
    click.echo(f"evenhand: {message}", err=True)
    sys.exit(code)
