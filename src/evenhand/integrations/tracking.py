"""Logs the results of runs to experiment trackers: MLflow (extra `mlflow`) and Weights & Biases (extra `wandb`).

A tracker is named `mlflow`, `mlflow:URI`, `wandb` or `wandb:PROJECT`. Each arm becomes one run there: its metrics with
their intervals and counts, its configuration, and the report and tables as artifacts. No model is called.
"""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import orjson

from evenhand.core.errors import MissingExtraError, UsageError, check_names
from evenhand.core.files import scratch
from evenhand.core.types import Usage
from evenhand.core.version import versions
from evenhand.studies.export import table_rows, write_table
from evenhand.studies.results import ArmResult, StudyResult
from evenhand.studies.tally import ALL

TRACKERS = ("mlflow", "wandb")
"""Also the names of the packages and of the extras."""
_LOGIN = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Entry:
    """One arm as a tracker gets it."""

    name: str
    group: str
    """The folder of the run."""
    config: Mapping[str, str | int | float]
    metrics: Mapping[str, float]


class Tracker(Protocol):
    """Takes entries; what fails raises an exception of its package."""

    title: str

    def log(self, entry: Entry, files: Sequence[Path]) -> str:
        """Log one entry with its files, and return where it is."""
        ...


def load_tracker(spec: str) -> Tracker:
    """Return the tracker that a spec names; mistakes and missing packages are reported before the first call."""
    name, _, place = spec.partition(":")
    check_names("tracker", TRACKERS, name)
    if _LOGIN.search(place):
        raise UsageError("An address with a password would be stored with the run; set it in the environment instead.")
    if importlib.util.find_spec(name) is None:
        raise MissingExtraError(f"logging to {name}", name)
    return (MlflowTracker if name == "mlflow" else WandbTracker)(place or None)


def log_results(spec: str, result: StudyResult, runs: Sequence[Path], report: Path | None = None) -> list[str]:
    tracker = load_tracker(spec)
    with scratch() as folder:
        files = _files(result, runs, folder) + ([report] if report is not None else [])
        arms = [arm for arm in result.arms if arm.iteration is None]
        return [tracker.log(_entry(result, arm, runs), files) for arm in arms]


def failure(error: Exception) -> str:
    """An error of a tracker in one line, without logins."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _LOGIN.sub("//…@", lines[0] if lines else type(error).__name__).removesuffix(".")[:300]


def _entry(result: StudyResult, arm: ArmResult, runs: Sequence[Path]) -> Entry:
    run = runs[int(arm.id.partition(".")[0]) - 1]
    plan: Mapping[str, Any] = list(result.provenance.values())[runs.index(run)]["plan"]
    config: dict[str, str | int | float] = {
        "benchmark": result.benchmark,
        "method": arm.method,
        "seed": arm.seed,
        "run": run.name,
        "evenhand": versions()["evenhand"],
        **{f"model_{role}": spec for role, spec in arm.models.items()},
        **{f"method_{name}": _plain(value) for name, value in arm.key.options.items()},
        **{f"benchmark_{name}": _plain(value) for name, value in plan["benchmark_options"].items()},
        **({} if plan["limit"] is None else {"limit": plan["limit"]}),
    }
    return Entry(f"{run.resolve().name}: {arm.label}", run.resolve().name, config, _metrics(arm))


def _metrics(arm: ArmResult) -> dict[str, float]:
    """NAME, NAME_low, NAME_high and NAME_n of every metric that is defined, then statuses and what was spent."""
    found: dict[str, float] = {}
    for each in (estimate for estimate in arm.estimates if estimate.group == ALL and estimate.value is not None):
        values = {"": each.value, "_low": each.low, "_high": each.high, "_n": each.n}
        found |= {f"{each.metric}{end}": float(value) for end, value in values.items() if value is not None}
    found |= {f"samples_{status}": float(count) for status, count in arm.statuses.items()}
    usage = sum(arm.usage.values(), Usage())
    found |= {"calls": usage.calls, "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return found if usage.cost is None else {**found, "cost": usage.cost}


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, str | int | float) else orjson.dumps(value).decode()


def _files(result: StudyResult, runs: Sequence[Path], folder: Path) -> list[Path]:
    """The tables of the study and the plans, written to a folder."""
    written = [folder / "plans.json"]
    written[0].write_bytes(orjson.dumps(result.provenance, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    for table in ("metrics", "effects"):
        if rows := table_rows(result, runs, table):
            written.append(folder / f"{table}.csv")
            write_table(partial(list[Mapping[str, Any]], rows), "csv", written[-1])
    return written


_NAME = "evenhand"


class MlflowTracker:
    """Logs to a URI, or where MLFLOW_TRACKING_URI says, or to mlflow.db, into the experiment of MLFLOW_EXPERIMENT_NAME.

    It has a client of its own, so that a run that is active in this process is left alone.
    """

    title = "MLflow"

    def __init__(self, uri: str | None) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
        except MlflowException as error:
            raise UsageError(f"MLflow cannot use {uri or 'its usual store'}: {error.message}") from error

    def log(self, entry: Entry, files: Sequence[Path]) -> str:
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        experiment = self._experiment()
        tags = {"evenhand.run": entry.group}
        run: str = self._client.create_run(experiment, run_name=entry.name, tags=tags).info.run_id
        status = "FAILED"
        try:
            self._client.log_batch(
                run,
                metrics=[Metric(name, value, now, 0) for name, value in entry.metrics.items()],
                params=[Param(name, str(value)) for name, value in entry.config.items()],
            )
            for file in files:
                self._client.log_artifact(run, str(file))
            status = "FINISHED"
        finally:
            self._client.set_terminated(run, status)
        return f"experiment {experiment}, run {run}"

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _NAME)
        found = self._client.get_experiment_by_name(name)
        return self._client.create_experiment(name) if found is None else found.experiment_id


_WITHOUT_KEY = ("offline", "dryrun", "disabled")


class WandbTracker:
    """Logs to a project, or to that of WANDB_PROJECT, or to `evenhand`; online or offline as WANDB_MODE says.

    It begins and ends runs of its own; one that is active in this process is left alone.
    """

    title = "Weights & Biases"

    def __init__(self, project: str | None) -> None:
        import wandb

        self._wandb: Any = wandb
        self._project = project or os.environ.get("WANDB_PROJECT") or _NAME
        if os.environ.get("WANDB_MODE", "online") not in _WITHOUT_KEY and not wandb.api.api_key:
            raise UsageError("W&B has no API key: run `wandb login`, or set WANDB_MODE=offline and sync later.")

    def log(self, entry: Entry, files: Sequence[Path]) -> str:
        run: Any = self._wandb.init(
            project=self._project,
            name=entry.name,
            group=entry.group,
            config=dict(entry.config),
            reinit="create_new",
            settings=self._wandb.Settings(silent=True),
        )
        try:
            run.summary.update(dict(entry.metrics))
            artifact = self._wandb.Artifact(re.sub(r"[^\w.-]+", "-", entry.group) + "-report", type="report")
            for file in files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
        except BaseException:
            run.finish(exit_code=1)
            raise
        run.finish()
        return run.url or f"{run.dir} (send it with: wandb sync {Path(run.dir).parent})"
