"""`--log-to`: the results of runs in MLflow or Weights & Biases. What fails there leaves the run as it is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from evenhand.show.markup import clean
from evenhand.studies.results import StudyResult


def check_trackers(specs: Sequence[str]) -> None:
    """Refuse a tracker that does not exist or cannot be used, before anything is called."""
    if specs:
        from evenhand.integrations.tracking import load_tracker

        for spec in specs:
            load_tracker(spec)


def log_to_trackers(specs: Sequence[str], result: StudyResult, runs: Sequence[Path], report: Path | None) -> None:
    """Log the results; a tracker that fails is reported with the command that tries again."""
    if not specs:
        return
    from evenhand.integrations.tracking import failure, log_results

    for spec in specs:
        try:
            for place in log_results(spec, result, runs, report):
                click.echo(f"Logged to {spec}: {clean(place)}")
        except Exception as error:  # of any class: the packages and the servers are not ours
            again = shlex.join(["evenhand", "report", *map(str, runs), "--log-to", spec])
            click.echo(
                f"! {spec} did not take the results: {clean(failure(error))}. They are stored; {again}", err=True
            )
