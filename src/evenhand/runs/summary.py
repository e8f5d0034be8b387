"""What became of a stored run: counts and reasons per arm, state and cost. Read without the plan's models or data."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, PlanError, UsageError
from evenhand.core.registry import name_in_file
from evenhand.core.types import Status, Usage
from evenhand.runs.file import is_locked
from evenhand.runs.store import FILE_NAME, Store, no_plan, unreadable

UNGRADED: tuple[Status, ...] = ("failed", "unscored", "cut")
"""Samples without a grade; a refusal is a result and not among them."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """How many samples of one arm have which status, and why some have no grade."""

    label: str
    counts: Mapping[Status, int]
    pending: int
    reasons: Sequence[tuple[Status, str, int]]
    """(status, reason, count), most frequent first."""
    number: int = 1
    method: str = ""
    model: str = ""
    """The spec of the base model, or of the only one."""

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def ungraded(self) -> int:
        return sum(self.counts.get(status, 0) for status in UNGRADED)

    @property
    def nothing_measured(self) -> bool:
        """Whether samples were run and none of them has a result."""
        return 0 < self.done == self.ungraded


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A stored run at a glance; with a `fault`, it cannot be read."""

    folder: Path
    benchmark: str = ""
    models: Sequence[str] = ()
    methods: Sequence[str] = ()
    arms: Sequence[ArmSummary] = ()
    usage: Usage = Usage()
    created: str = ""
    running: bool = False
    headline: str = ""
    """As the last study of this very state printed it; "" if there is none."""
    unread: str = ""
    """The first reply in which no answer could be read."""
    fault: str = ""

    @property
    def answering(self) -> Sequence[str]:
        """The models that answer, without judges and other helpers."""
        return list(dict.fromkeys(arm.model for arm in self.arms))

    @property
    def done(self) -> int:
        return sum(arm.done for arm in self.arms)

    @property
    def total(self) -> int:
        return self.done + sum(arm.pending for arm in self.arms)

    @property
    def nothing_measured(self) -> bool:
        """Whether samples were run and none of them has a result."""
        return self.done > 0 and all(arm.ungraded == arm.done for arm in self.arms)

    @property
    def unmeasured(self) -> Sequence[ArmSummary]:
        """The arms of which samples were run and none has a result."""
        return [arm for arm in self.arms if arm.nothing_measured]

    @property
    def state(self) -> str:
        if self.fault:
            return "damaged"
        if self.running:
            return "running"
        if self.done < self.total:
            return f"stopped at {self.done:,} of {self.total:,}"
        if self.nothing_measured:
            return "failed"
        return f"failed in {len(self.unmeasured)} of {len(self.arms)} arms" if self.unmeasured else "complete"

    def reasons(self, most: int = 5) -> list[tuple[str, str, int]]:
        """Why samples have no grade, over all arms: (status, reason, count), most frequent first."""
        found: Counter[tuple[str, str]] = Counter()
        for arm in self.arms:
            for status, reason, count in arm.reasons:
                found[status, reason] += count
        return [(*key, count) for key, count in found.most_common(most)]


def read_summary(directory: Path) -> RunSummary:
    """The summary of the run in `directory`; raises StoreError if its file is damaged."""
    try:
        with closing(Store(directory)) as store:
            return _summary(directory, store)
    except sqlite3.Error as error:
        raise unreadable(directory, error) from error


def read_or_fault(directory: Path) -> RunSummary:
    """The summary of the run in `directory`; one that cannot be read has a fault and the date of its file."""
    try:
        return read_summary(directory)
    except (EvenhandError, LookupError, TypeError, ValueError, OSError) as error:
        changed = ""
        with suppress(OSError):
            changed = datetime.fromtimestamp((directory / FILE_NAME).stat().st_mtime, UTC).isoformat()
        return RunSummary(directory, created=changed, fault=str(error) or type(error).__name__)


def _summary(directory: Path, store: Store) -> RunSummary:
    running = is_locked(directory)  # before the samples are counted: a run that ends meanwhile did not stop early
    plan: Mapping[str, Any] | None = store.get("plan")
    if plan is None:
        raise PlanError(f"The run in {directory} is starting; look again." if running else no_plan(directory))
    labels: Mapping[str, str] = store.get("arms") or {"1": plan["methods"][0]["name"]}
    samples: int = store.get("samples") or 0
    combinations = dict(enumerate(product(plan["models"], plan["methods"], plan.get("seeds") or [0]), 1))
    arms = [_arm(store, int(number), label, samples, combinations[int(number)]) for number, label in labels.items()]
    specs = [model["spec"] for assignment in plan["models"] for model in assignment.values()]
    kept: Mapping[str, Any] = store.get("headline") or {}
    return RunSummary(
        folder=directory,
        benchmark=plan["benchmark"],
        models=list(dict.fromkeys(specs)),
        methods=list(dict.fromkeys(name_in_file(method["name"], "method") for method in plan["methods"])),
        arms=arms,
        usage=sum(store.usage().values(), store.scoring()),
        created=store.get("created") or "",
        running=running,
        headline=kept["text"] if kept.get("done") == sum(arm.done for arm in arms) else "",
        unread=store.unread() if any(each[0] != "failed" for arm in arms for each in arm.reasons) else "",
    )


def _arm(store: Store, number: int, label: str, samples: int, combination: Sequence[Any]) -> ArmSummary:
    counts = store.counts(number)
    reasons = [each for each in store.reasons(number) if each[0] in UNGRADED]
    models: Mapping[str, Any] = combination[0]
    model = models.get("base") or next(iter(models.values()))
    pending = samples - sum(counts.values())
    return ArmSummary(label, counts, pending, reasons, number, combination[1]["name"], model["spec"])


def most_ungraded(text: str, samples: int) -> float:
    """How many of `samples` may have no grade by `--max-failed`: a share such as 5%, or a number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(%?)", text.strip())
    if match is None or (match.group(2) and float(match.group(1)) > 100):
        raise UsageError(f"--max-failed takes a share or a number of samples, e.g. 5% or 12, not {text!r}.")
    amount = float(match.group(1))
    return amount * samples / 100 if match.group(2) else amount
