"""Logs to MLflow, into the experiment that MLFLOW_EXPERIMENT_NAME names, or `evenhand`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.integrations.tracking import Entry

_EXPERIMENT = "evenhand"


def load(uri: str | None) -> MlflowTracker:
    """The tracker at a URI; None: where MLFLOW_TRACKING_URI says, or mlflow.db in this folder."""
    return MlflowTracker(uri)


class MlflowTracker:
    """Writes with a client of its own, so that a run that is active in this process is left alone."""

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
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return self._client.create_experiment(name) if found is None else found.experiment_id
