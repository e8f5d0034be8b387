"""The options that commands share beside those of a plan, and the command that runs a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import click

from evenhand.cli.output import OutputFields
from evenhand.core.config import read_config
from evenhand.core.errors import UsageError
from evenhand.core.options import Request, Several, option
from evenhand.runs.request import PlannedRun, PlanRequest, check_resume


class AllowCallOption(Request):
    """Whether files of others may name code that is run."""

    section: ClassVar[str] = "Plan"

    allow_call: bool = option(False, "Allow call/ models, which run Python code, in a --config or a stored run.")


class ConfigOption(AllowCallOption):
    """A plan file."""

    section: ClassVar[str] = "Plan"

    config: Path | None = option(None, "A YAML or TOML plan; flags override it.", metavar="FILE", common=True)


class ModelsOption(Request):
    """The models."""

    section: ClassVar[str] = "Model"

    models: Several = option(
        (),
        "A model, or one for a role; repeat to compare. With options of its own: 'SPEC?base_url=…&key=VARIABLE'.",
        flag="--model",
        short="-m",
        metavar="[ROLE=]SPEC",
        common=True,
    )


class DryRunOption(Request):
    """A forecast."""

    section: ClassVar[str] = "Cost"
    session: ClassVar[Sequence[str]] = ("dry_run",)

    dry_run: bool = option(False, "Print the expected calls, tokens and cost, and stop.", common=True)


class MaxFailedOption(Request):
    """When a run counts as failed."""

    section: ClassVar[str] = "Output"

    max_failed: str | None = option(
        None,
        "Exit with 4 if more samples of an arm than this, e.g. 5% or 12, have no grade; refusals do not count.",
        metavar="LIMIT",
    )


class LogToOption(Request):
    """Trackers of experiments."""

    section: ClassVar[str] = "Output"

    log_to: Several = option((), "Also log the results to mlflow[:URI] or wandb[:PROJECT].", metavar="TRACKER")


class SkipDamagedOption(Request):
    """What becomes of stored rows that cannot be read."""

    section: ClassVar[str] = "Output"
    session: ClassVar[Sequence[str]] = ("skip_damaged",)

    skip_damaged: bool = option(False, "Skip stored rows that cannot be read, and list them (default: stop).")


class PlanCommand(ConfigOption, ModelsOption, DryRunOption, MaxFailedOption, LogToOption, PlanRequest, OutputFields):
    """A command that runs a plan; `run_asked` makes it of options, a plan file and the config files."""

    def run_asked(
        self, default_methods: Sequence[str] = ("default",), decided: Mapping[str, Any] | None = None
    ) -> PlannedRun:
        """Return the run that is asked for; see `PlanRequest.planned`."""
        made = self.planned(
            self.models,
            default_methods=default_methods,
            decided=decided,
            file=self.config,
            allow_call=self.allow_call,
            config=read_config(),
            tell=tell,
        )
        if self.resume and not self.dry_run:
            check_resume(made.out)
        return made


def tell(sentence: str) -> None:
    """Print a sentence about what a config file decides."""
    click.echo(sentence, err=True)


def html_file(path: Path) -> Path:
    """Return the path of a page, checked before anything is computed."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {path} should end in .html.")
    check_file(path, "the page")
    return path


def check_file(out: Path | None, what: str, flag: str = "--out") -> None:
    """Refuse what cannot be a file that is written."""
    if out is None:
        return
    if str(out) == "-" or out.is_dir():
        named = "standard output" if str(out) == "-" else f"the folder {out}"
        raise UsageError(f"{flag} names {what}, a file, not {named}.")
    above = next(each for each in out.parents if each.exists())
    if not above.is_dir():
        raise UsageError(f"{flag} names {what}, a file in a folder, but {above} is a file.")
    if not os.access(above, os.W_OK):
        raise UsageError(f"{flag} names {what}, but nothing can be written in {above}.")


RUNS = "runs"


def check_runs(folder: Path) -> None:
    """Refuse what is no folder of runs; the default one is there from the first run on."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name the folder of the runs.")
    if str(folder) != RUNS and not folder.exists():
        raise UsageError(f"There is no folder {folder}; name the folder of the runs.")
