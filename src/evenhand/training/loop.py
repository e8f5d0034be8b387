"""The loop that all stages share: steps, metrics, checkpoints.

A step depends only on the weights, the data, the options and its number: it seeds its own random numbers. So a resumed
training takes exactly the steps that an uninterrupted one would have taken.
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
"""Called with the number of steps done and the total."""


class StopTraining(Exception):  # noqa: N818 - a normal end, not a fault
    """Ends the training early and keeps the weights; the text says why."""


class Trainer(Protocol):
    """What a stage provides to the loop."""

    optimizer: Optimizer

    def step(self, number: int) -> Mapping[str, float]:
        """Do one step (numbered from 0) and return its metrics."""
        ...


def nobody(done: int, total: int) -> None:
    """An observer that shows nothing."""


def train(trainer: Trainer, folder: Path, *, steps: int, seed: int, save_every: int, observe: Observer = nobody) -> str:
    """Take the remaining steps and return why the training ended: `done`, or what stopped it."""
    torch: Any = importlib.import_module("torch")
    team = trainer.optimizer.team
    done = _restore(trainer, folder)
    observe = observe if team.is_main else nobody
    observe(done, steps)
    with _MetricsLog(folder, done) if team.is_main else contextlib.nullcontext() as log:
        for number in range(done, steps):
            torch.manual_seed(step_seed(seed, number))
            trainer.optimizer.begin(number)
            started = time.perf_counter()
            try:
                metrics = trainer.step(number)
            except StopTraining as stop:
                _save(trainer, folder, number)
                return str(stop)
            except UsageError as error:
                raise UsageError(f"Training stopped at step {number + 1}: {error} {_last_checkpoint(folder)}") from None
            if log is not None:
                log.write(number + 1, {**metrics, "seconds": time.perf_counter() - started})
            if (number + 1) % save_every == 0 or number + 1 == steps:
                _save(trainer, folder, number + 1)
            observe(number + 1, steps)
    return "done"


def step_seed(seed: int, number: int) -> int:
    """Return a seed for one step that no other step or training has."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:7])


class BatchSampler:
    """Chooses the rows of each step: every epoch takes all rows once, in a new random order."""

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        self._rows, self._batch, self._seed = rows, batch, seed
        self._steps_per_epoch = -(-rows // batch)
        self._epoch, self._shuffled = -1, list[int]()

    def rows(self, step: int) -> list[int]:
        epoch, position = divmod(step, self._steps_per_epoch)
        if epoch != self._epoch:
            torch: Any = importlib.import_module("torch")
            generator = torch.Generator().manual_seed(step_seed(self._seed, -1 - epoch))
            self._epoch, self._shuffled = epoch, torch.randperm(self._rows, generator=generator).tolist()
        return self._shuffled[position * self._batch : (position + 1) * self._batch]


def _restore(trainer: Trainer, folder: Path) -> int:
    """Load the newest checkpoint, if there is one, and return its step count."""
    checkpoint = checkpoints.newest(folder)
    if checkpoint is None:
        return 0
    done, tensors = checkpoint
    try:
        trainer.optimizer.restore(tensors)
    except (KeyError, RuntimeError):
        raise UsageError(f"The checkpoint in {folder} belongs to another model; choose another --out.") from None
    return done


def _save(trainer: Trainer, folder: Path, done: int) -> None:
    state = trainer.optimizer.state()
    trainer.optimizer.team.on_main(lambda: checkpoints.save(folder, done, state))


def _last_checkpoint(folder: Path) -> str:
    checkpoint = checkpoints.newest(folder)
    if checkpoint is None:
        return "There was no checkpoint yet."
    return f"The checkpoint of step {checkpoint[0]} is kept in {folder}."


class _MetricsLog:
    """Writes one line of metrics per step, and the same to TensorBoard if it is installed."""

    def __init__(self, folder: Path, done: int) -> None:
        path = folder / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        path.write_bytes(b"".join(lines[:done]))  # drop the lines of steps that will be repeated
        self._file = path.open("a", encoding="utf-8")
        self._events: Any = _event_writer(folder / EVENTS, done)

    def __enter__(self) -> _MetricsLog:
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
    """Return the metrics of each step."""
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]


def _event_writer(folder: Path, done: int) -> Any:
    """Return TensorBoard's writer, or None: the package is optional, and metrics.jsonl holds everything."""
    try:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder, purge_step=done + 1)
    except ImportError:
        return None
