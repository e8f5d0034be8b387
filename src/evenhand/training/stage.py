"""What every training stage does around its loop: the output folder and its record, the device, the model card.

The record (training.json) is written first, with the options and the checksums of the data, and completed at the end.
So an interrupted stage can be resumed, and only with the same options and data.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.core.files import write_text
from evenhand.core.lazy import torch
from evenhand.core.progress import Count
from evenhand.core.version import versions
from evenhand.training import card, checkpoints, models
from evenhand.training.loop import Ended, Trainer, read_metrics, step_seed, train
from evenhand.training.models import Machine
from evenhand.training.options import StageOptions
from evenhand.training.parallel import join_team

RECORD = "training.json"
_MEMORY = ("micro_batch", "gradient_checkpointing")
"""Options with the same result, which may change when a training is resumed because memory ran out."""
T = TypeVar("T")


class Planned(Protocol):
    """Options with a folder."""

    @property
    def out(self) -> Path: ...
    def as_json(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True)
class StageRun:
    """One training stage in progress."""

    options: StageOptions
    machine: Machine
    finished: bool
    """Whether an earlier run finished it, so that only its record is left to read."""

    @property
    def record(self) -> dict[str, Any]:
        return read_record(self.options.out)

    def train(self, trainer: Trainer, steps: int, observe: Count) -> Ended:
        """Take the steps of the stage that are left."""
        of = self.options
        return train(trainer, of.out, steps=steps, seed=of.seed, save_every=of.save_every, observe=observe)

    def first_and_last(self, metric: str, steps: int) -> dict[str, float]:
        """Return the mean of a metric over the first and the last tenth of `steps` steps, at most 20 of each."""
        values = [line[metric] for line in read_metrics(self.options.out)[:steps]]
        if not values:
            return {}
        count = min(20, max(1, steps // 10))
        return {f"{metric}_first": _mean(values[:count]), f"{metric}_last": _mean(values[-count:])}

    def finish(self, ended: Ended, results: Mapping[str, object]) -> dict[str, Any]:
        """Complete the record, write the model card and return the record."""
        team = self.machine.team
        about = {"device": self.machine.device, "processes": team.size, "versions": versions()}

        def write() -> dict[str, Any]:
            record = finish_folder(self.options.out, ended.why, results, about)
            card.write(self.options.out, record)
            return record

        return team.on_main(write)


@contextlib.contextmanager
def training_run(
    stage: str, options: StageOptions, checksums: Mapping[str, str], *, resume: bool
) -> Generator[StageRun]:
    """Open the folder and the device for one stage. Running out of device memory becomes a one-sentence error."""
    machine = models.machine(options.device, options.dtype, join_team(options.device))
    finished = machine.team.on_main(lambda: open_folder(stage, options, checksums, resume=resume))
    torch.manual_seed(step_seed(options.seed, 0))  # new weights (adapters, heads) are initialized before the first step
    try:
        yield StageRun(options, machine, finished)
    except torch.OutOfMemoryError:
        raise UsageError(
            "The device is out of memory: --resume with a smaller --micro-batch or with --gradient-checkpointing, or "
            "begin again with a smaller --max-length or --lora."
        ) from None


def open_folder(stage: str, options: Planned, checksums: Mapping[str, str], *, resume: bool) -> bool:
    """Create the output folder, or reopen one with the same options; return True if the stage is finished already."""
    record, plan = options.out / RECORD, {"stage": stage, "options": options.as_json(), "data": dict(checksums)}
    if record.is_file():
        if not resume and not _has_no_progress(options.out):
            raise PlanError(f"{options.out} already holds a training: go on with --resume, or choose another --out.")
        before = read_record(options.out)
        if resume:
            _check_same(before, plan, options.out)
            return bool(before.get("finished"))
    elif options.out.is_dir() and any(options.out.iterdir()):
        raise PlanError(f"{options.out} is not empty; choose another --out.")
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoints.delete_all(options.out)
    _write(record, {**plan, "finished": False})
    return False


def finish_folder(folder: Path, ended: str, results: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Mark a training as finished, store its results and delete its checkpoints."""
    record = {**read_record(folder), "finished": True, "ended": ended, "results": dict(results), **about}
    _write(folder / RECORD, record)
    checkpoints.delete_all(folder)
    return record


def read_record(folder: Path) -> dict[str, Any]:
    """Return a training's options and data and, once it is finished, its results."""
    try:
        return json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"This training record cannot be read ({error}).", file=folder / RECORD) from None


def chunks(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split rows into chunks of a size."""
    return (rows[i : i + size] for i in range(0, len(rows), size))


def _has_no_progress(folder: Path) -> bool:
    """Whether a training ended before its first checkpoint, also in its stages: nothing is lost by starting again."""
    if read_record(folder).get("finished") or checkpoints.has_progress(folder):
        return False
    return all(_has_no_progress(record.parent) for record in folder.glob(f"*/{RECORD}"))


def _check_same(before: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
    if before.get("stage") != plan["stage"]:
        raise PlanError(
            f"{folder} holds a training of {before.get('stage')}, not {plan['stage']}; choose another --out."
        )
    if before.get("data") != plan["data"]:
        raise PlanError(f"The data has changed since the training in {folder} began; choose another --out.")
    given = before.get("options", {})
    changed = [name for name, value in plan["options"].items() if given.get(name) != value and name not in _MEMORY]
    if changed:
        name = changed[0]
        raise PlanError(
            f"The training in {folder} began with {name} = {given.get(name)}, not {plan['options'][name]}; "
            "resume it with the same options, or choose another --out."
        )


def _write(path: Path, values: Mapping[str, object]) -> None:
    write_text(path, json.dumps(values, indent=2) + "\n")  # of the standard library, which keeps NaN


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
