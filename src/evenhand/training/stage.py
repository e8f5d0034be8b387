"""What every stage of training does around its loop: the folder, the machine, the record and the card."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from evenhand.errors import DataError, PlanError, UsageError
from evenhand.training import card, checkpoints, models
from evenhand.training.loop import read_metrics, step_seed
from evenhand.training.models import Machine
from evenhand.training.options import Options
from evenhand.training.parallel import joined
from evenhand.version import versions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One training under way."""

    options: Options
    machine: Machine
    finished: bool
    """It was finished before; there is only a record to read."""

    @property
    def record(self) -> dict[str, Any]:
        return read(self.options.out)

    def last(self, name: str, most: int) -> dict[str, float]:
        """The mean of a metric over the first and over the last tenth of the steps, at most 20 of each."""
        values = [line[name] for line in read_metrics(self.options.out)]
        if not values:
            return {}
        some = min(20, max(1, most // 10))
        return {f"{name}_first": _mean(values[:some]), f"{name}_last": _mean(values[-some:])}

    def finish(self, ended: str, results: Mapping[str, Any]) -> dict[str, Any]:
        team = self.machine.team
        about = {"device": self.machine.device, "processes": team.size, "versions": versions()}

        def finished() -> dict[str, Any]:
            record = finish(self.options.out, ended, results, about)
            card.write(self.options.out, record)
            return record

        return team.by_main(finished)


@contextlib.contextmanager
def begun(name: str, options: Options, sums: Mapping[str, str], *, resume: bool) -> Generator[Run]:
    """A run in its folder; what goes wrong on the device is told in one sentence."""
    torch: Any = importlib.import_module("torch")
    machine = models.machine(options.device, options.dtype, joined(options.device))
    finished = machine.team.by_main(lambda: begin(name, options, sums, resume=resume))
    torch.manual_seed(step_seed(options.seed, 0))  # new weights (adapters, heads) are drawn before the first step
    try:
        yield Run(options, machine, finished)
    except torch.OutOfMemoryError:
        raise UsageError(
            "The memory of the device is used up; choose a smaller --micro-batch, a smaller --max-length, or --lora, "
            "and --resume."
        ) from None


def parts(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The rows in pieces of a size."""
    return (rows[i : i + size] for i in range(0, len(rows), size))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


RECORD = "training.json"


def begin(stage: str, options: Options, sums: Mapping[str, str], *, resume: bool) -> bool:
    """Make the folder, or find it as it was left by the same options; True when it is finished already."""
    record, plan = options.out / RECORD, {"stage": stage, "options": options.as_json(), "data": dict(sums)}
    if record.is_file():
        if not resume and not _nothing_done(options.out):
            raise PlanError(f"{options.out} holds a training already: go on with --resume, or choose another --out.")
        before = read(options.out)
        if resume:
            _check_same(before, plan, options.out)
            return bool(before.get("finished"))
    elif options.out.is_dir() and any(options.out.iterdir()):
        raise PlanError(f"{options.out} is not empty; choose another --out.")
    options.out.mkdir(parents=True, exist_ok=True)
    _write(record, {**plan, "finished": False})
    return False


def finish(folder: Path, ended: str, results: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Mark a training as finished, with what came out of it; its checkpoints are no longer needed."""
    whole = {**read(folder), "finished": True, "ended": ended, "results": dict(results), **about}
    _write(folder / RECORD, whole)
    checkpoints.forget(folder)
    return whole


def read(folder: Path) -> dict[str, Any]:
    """A training's plan and, once it is finished, its results."""
    try:
        return json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"This record of a training cannot be read ({error}).", file=folder / RECORD) from None


def _nothing_done(folder: Path) -> bool:
    """Whether a training ended before it had anything to lose, so that it may be begun anew."""
    return not read(folder).get("finished") and not (folder / checkpoints.FOLDER).exists()


def _check_same(before: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
    if before.get("stage") != plan["stage"]:
        raise PlanError(
            f"{folder} holds a training of {before.get('stage')}, not {plan['stage']}; choose another --out."
        )
    if before.get("data") != plan["data"]:
        raise PlanError(f"The data has changed since the training in {folder} began; choose another --out.")
    options: Mapping[str, Any] = before.get("options", {})
    changed = [name for name, value in plan["options"].items() if options.get(name) != value]
    if changed:
        name = changed[0]
        raise PlanError(
            f"The training in {folder} began with {name} = {options.get(name)}, not {plan['options'][name]}; "
            "resume it with the same options, or choose another --out."
        )


def _write(path: Path, values: Mapping[str, Any]) -> None:
    draft = path.with_name(path.name + ".partial")
    draft.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
