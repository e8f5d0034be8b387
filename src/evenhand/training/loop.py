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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evenhand.core.errors import UsageError
from evenhand.core.progress import Count, ignore
from evenhand.training import checkpoints
from evenhand.training.optimizer import Optimizer
from evenhand.training.options import batch_count

T = TypeVar("T")
METRICS, EVENTS = "metrics.jsonl", "tensorboard"


@dataclass(frozen=True, slots=True)
class Check:
    """What was measured before a checkpoint is saved."""

    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    breach: str | None = None
    """Why the training must end here and go back to the last checkpoint."""
    score: float | None = None
    """How good the weights are; the best checkpoint is kept. None: the last one is."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a training ended, and the step whose weights were kept."""

    why: str
    step: int


class Trainer(Protocol):
    """What a stage provides to the loop."""

    optimizer: Optimizer

    def step(self, number: int) -> Mapping[str, float]:
        """Do one step (numbered from 0) and return its metrics."""
        ...


def train(
    trainer: Trainer,
    folder: Path,
    *,
    steps: int,
    seed: int,
    save_every: int,
    observe: Count = ignore,
    check: Callable[[int], Check] | None = None,
) -> Ended:
    """Take the remaining steps. The trainer then has the weights of the last step, or of the one that is kept instead.

    Args:
        check: Called with the number of steps done before the first step and before each checkpoint.
    """
    torch: Any = importlib.import_module("torch")
    team = trainer.optimizer.team
    done, ended = _restore(trainer, folder, checkpoints.newest(folder)), Ended("done", steps)
    observe = observe if team.is_main else ignore
    if check is not None and done == 0:
        _save(trainer, folder, 0, check(0).score)  # something to go back to
    observe(done, steps)
    with _MetricsLog(folder, done) if team.is_main else contextlib.nullcontext() as log:
        for number in range(done, steps):
            torch.manual_seed(step_seed(seed, number))
            trainer.optimizer.begin(number)
            started, saves = time.perf_counter(), (number + 1) % save_every == 0 or number + 1 == steps
            try:
                metrics = {**trainer.step(number), "seconds": time.perf_counter() - started}
                checked = check(number + 1) if saves and check is not None else Check()
            except UsageError as error:
                raise UsageError(f"Training stopped at step {number + 1}: {error} {_last_checkpoint(folder)}") from None
            if saves and checked.breach is None:
                _save(trainer, folder, number + 1, checked.score)
            if checked.breach is not None:
                metrics["rolled_back_to"] = (checkpoints.best(folder) or (0,))[0]
            if log is not None:
                log.write(number + 1, {**metrics, **checked.metrics})
            observe(number + 1, steps)
            if checked.breach is not None:
                ended = Ended(f"stopped at step {number + 1}, because {checked.breach}", number + 1)
                break
    return ended if check is None else _keep_best(trainer, folder, ended)


def _keep_best(trainer: Trainer, folder: Path, ended: Ended) -> Ended:
    """Go back to the best checkpoint if that is not where the training ended."""
    kept = checkpoints.best(folder)
    if kept is None or kept[0] == ended.step:
        return ended
    _restore(trainer, folder, kept)
    return Ended(f"{ended.why}; the weights are those of step {kept[0]}", kept[0])


def step_seed(seed: int, number: int) -> int:
    """Return a seed for one step that no other step or training has."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:7])


def batches(rows: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split rows into batches; a rest of less than half a batch joins the last one."""
    starts = [i * size for i in range(batch_count(len(rows), size))]
    return [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]


class BatchSampler:
    """Chooses the rows of each step: every epoch takes all rows once, in a new random order."""

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        self._rows, self._batch, self._seed = rows, batch, seed
        self._epoch, self._batches = -1, list[Sequence[int]]()

    def rows(self, step: int) -> Sequence[int]:
        epoch, position = divmod(step, batch_count(self._rows, self._batch))
        if epoch != self._epoch:
            torch: Any = importlib.import_module("torch")
            generator = torch.Generator().manual_seed(step_seed(self._seed, -1 - epoch))
            shuffled: list[int] = torch.randperm(self._rows, generator=generator).tolist()
            self._epoch, self._batches = epoch, batches(shuffled, self._batch)
        return self._batches[position]


def _restore(trainer: Trainer, folder: Path, checkpoint: checkpoints.Checkpoint | None) -> int:
    """Load a checkpoint, if there is one, and return its step count."""
    if checkpoint is None:
        return 0
    done, tensors = checkpoint
    try:
        trainer.optimizer.restore(tensors)
    except (KeyError, RuntimeError):
        raise UsageError(f"The checkpoint in {folder} belongs to another model; choose another --out.") from None
    return done


def _save(trainer: Trainer, folder: Path, done: int, score: float | None) -> None:
    state = trainer.optimizer.state()
    trainer.optimizer.team.on_main(lambda: checkpoints.save(folder, done, state, score))


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
