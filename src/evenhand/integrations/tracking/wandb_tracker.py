"""Logs to Weights & Biases, online or offline as WANDB_MODE says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.integrations.tracking import Entry

_PROJECT = "evenhand"
_WITHOUT_KEY = ("offline", "dryrun", "disabled")


def load(project: str | None) -> WandbTracker:
    """The tracker of a project; None: the one of WANDB_PROJECT, or `evenhand`."""
    return WandbTracker(project or os.environ.get("WANDB_PROJECT") or _PROJECT)


class WandbTracker:
    """Begins and ends runs of its own; one that is active in this process is left alone."""

    title = "Weights & Biases"

    def __init__(self, project: str) -> None:
        import wandb

        self._wandb: Any = wandb
        self._project = project
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
