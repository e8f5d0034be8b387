"""The loop that all stages share: steps, metrics, checkpoints.

A step depends on the weights, the data, the options and its own number alone: its random numbers come from a seed of
its own. So a resumed training goes on with exactly what an uninterrupted one would have had.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from evenhand.errors import UsageError
from evenhand.training import checkpoints
from evenhand.training.optimizer import Optimizer

METRICS, EVENTS = "metrics.jsonl", "tensorboard"
Observer = Callable[[int, int], None]
"""Called with the steps done and all steps."""


class StopTraining(Exception):  # noqa: N818 - a normal end, not a fault
    """Enough: the weights are to be kept as they are; the text says why."""


class Work(Protocol):
    """What a stage does in the loop."""

    optimizer: Optimizer

    def step(self, number: int) -> Mapping[str, float]:
        """One update (numbered from 0) and what was measured in it."""
        ...


def nobody(done: int, total: int) -> None:
    """An observer that shows nothing."""


def train(work: Work, folder: Path, *, steps: int, seed: int, save_every: int, observe: Observer = nobody) -> str:
    """Take the steps that are left and say why it ended: `done`, or what stopped it."""
    torch: Any = importlib.import_module("torch")
    team = work.optimizer.team
    done = _resumed(work, folder)
    observe = observe if team.is_main else nobody
    observe(done, steps)
    with _Metrics(folder, done) if team.is_main else contextlib.nullcontext() as metrics:
        for number in range(done, steps):
            torch.manual_seed(step_seed(seed, number))
            work.optimizer.begin(number)
            started = time.perf_counter()
            try:
                measured = work.step(number)
            except StopTraining as stop:
                _save(work, folder, number)
                return str(stop)
            except UsageError as error:
                raise UsageError(f"Training stopped at step {number + 1}: {error} {_kept(folder)}") from None
            if metrics is not None:
                metrics.write(number + 1, {**measured, "seconds": time.perf_counter() - started})
            if (number + 1) % save_every == 0 or number + 1 == steps:
                _save(work, folder, number + 1)
            observe(number + 1, steps)
    return "done"


def step_seed(seed: int, number: int) -> int:
    """A seed for one step, unlike that of any other step or training."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:7])


class Order:
    """Which rows a step takes: each epoch has all of them once, in an order of its own."""

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        self._rows, self._batch, self._seed = rows, batch, seed
        self._per_epoch = -(-rows // batch)
        self._epoch, self._shuffled = -1, list[int]()

    def rows(self, number: int) -> list[int]:
        epoch, place = divmod(number, self._per_epoch)
        if epoch != self._epoch:
            torch: Any = importlib.import_module("torch")
            generator = torch.Generator().manual_seed(step_seed(self._seed, -1 - epoch))
            self._epoch, self._shuffled = epoch, torch.randperm(self._rows, generator=generator).tolist()
        return self._shuffled[place * self._batch : (place + 1) * self._batch]


def _resumed(work: Work, folder: Path) -> int:
    """How many steps the last whole checkpoint has; the work goes on from it."""
    found = checkpoints.newest(folder)
    if found is None:
        return 0
    done, tensors = found
    try:
        work.optimizer.restore(tensors)
    except (KeyError, RuntimeError):
        raise UsageError(f"The checkpoint in {folder} belongs to another model; choose another --out.") from None
    return done


def _save(work: Work, folder: Path, done: int) -> None:
    state = work.optimizer.state()
    work.optimizer.team.by_main(lambda: checkpoints.save(folder, done, state))


def _kept(folder: Path) -> str:
    found = checkpoints.newest(folder)
    return f"The checkpoint of step {found[0]} is kept in {folder}." if found else "There was no checkpoint yet."


class _Metrics:
    """A line of numbers per step, and the same for TensorBoard where that is installed."""

    def __init__(self, folder: Path, done: int) -> None:
        path = folder / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        path.write_bytes(b"".join(lines[:done]))  # those of steps that are taken again go
        self._file = path.open("a", encoding="utf-8")
        self._events: Any = _event_writer(folder / EVENTS, done)

    def __enter__(self) -> _Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, step)


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """What was measured, step by step."""
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]


def _event_writer(folder: Path, done: int) -> Any:
    """TensorBoard's writer, or None: the extra is optional, and metrics.jsonl holds everything."""
    try:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder, purge_step=done + 1)
    except ImportError:
        return None
