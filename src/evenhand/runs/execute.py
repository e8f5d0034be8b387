"""Executes a plan: in this process, or by workers on Ray."""

from __future__ import annotations

from pathlib import Path

from evenhand.core.errors import UsageError
from evenhand.core.progress import Observer, Progress
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan
from evenhand.runs.runner import Runner


async def run_plan(plan: Plan, directory: Path, settings: Settings, observer: Observer | None = None) -> Progress:
    """Run all pending samples of the plan and store them in `directory`; raise only errors that the user must fix."""
    if settings.workers is None:
        return await Runner(plan, directory, settings, observer).run()
    if settings.on is None:
        raise UsageError("Workers need a cluster; pass --on ray, or remove --workers.")
    from evenhand.runs.cluster import ClusterRun

    return await ClusterRun(plan, directory, settings, observer).run()
