"""The loop that all stages share: steps, the optimizer, metrics, checkpoints.

A step depends only on the weights, the data, the options and its number: it seeds its own random numbers. So a resumed
training takes exactly the steps that an uninterrupted one would have taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from evenhand.core.errors import UsageError
from evenhand.core.lazy import torch
from evenhand.core.progress import Count, ignore
from evenhand.training import checkpoints, parallel
from evenhand.training.options import Decay, StageOptions, batch_count
from evenhand.training.parallel import Team

if TYPE_CHECKING:
    from torch import Tensor

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning-rate schedule: linear warm-up, then constant or falling to zero."""

    steps: int
    warmup: int | None = None
    """Steps until the full rate; None: 3 % of all. A longer warm-up than the training never reaches it."""
    decay: Decay = "linear"

    @classmethod
    def of(cls, options: StageOptions, rows: int) -> Schedule:
        """Return the schedule that the options of a stage name, for this many rows of data."""
        return cls(options.total_steps(rows), options.warmup, options.lr_decay)

    def factor(self, step: int) -> float:
        """Return the factor of the learning rate at a step."""
        warmup_steps = max(1, round(0.03 * self.steps)) if self.warmup is None else self.warmup
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        left = (self.steps - step) / max(1, self.steps - warmup_steps)
        return {"constant": 1.0, "linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2}[self.decay]


class Optimizer:
    """AdamW with one learning rate per group of named weights. Clips the gradients of each group to `max_norm`.

    Its whole state is a set of named tensors, which is what a checkpoint stores.
    """

    def __init__(
        self,
        groups: Sequence[tuple[Mapping[str, Tensor], float]],
        schedule: Schedule,
        *,
        max_norm: float = 1.0,
        weight_decay: float = 0.0,
        team: Team | None = None,
    ) -> None:
        self.team = team or Team()
        self._named = {name: weight for named, _ in groups for name, weight in named.items()}
        self._learning_rates = [lr for _, lr in groups]
        self._schedule = schedule
        self._max_norm = max_norm
        self.kept: dict[str, Tensor] = {}
        """Other tensors, by name, that belong to the state of the training."""
        self._adam = torch.optim.AdamW(
            [{"params": list(named.values()), "lr": lr} for named, lr in groups], weight_decay=weight_decay
        )

    def begin(self, step: int) -> None:
        """Set the learning rates of a step."""
        for group, lr in zip(self._adam.param_groups, self._learning_rates, strict=True):
            group["lr"] = lr * self._schedule.factor(step)

    def update(self) -> float:
        """Update the weights with the gradients of all processes; return the gradient norm of the first group."""
        self.team.sum_gradients(list(self._named.values()))
        clip: Any = torch.nn.utils.clip_grad_norm_
        norms = [
            float(parallel.full_tensor(clip(group["params"], self._max_norm))) for group in self._adam.param_groups
        ]
        if not all(math.isfinite(norm) for norm in norms):
            raise UsageError("The gradient is not a number; a lower --lr or --dtype float32 may help.")
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return norms[0]

    def state(self) -> dict[str, Tensor]:
        """Return weights and moments by name. Every process must call this; only the main one gets the tensors."""
        tensors = {f"weight/{name}": weight.detach() for name, weight in self._named.items()}
        for name, weight in self._named.items():
            moments = self._adam.state.get(weight, {})
            tensors |= {f"{moment}/{name}": moments[moment] for moment in _MOMENTS if moment in moments}
        tensors |= {f"kept/{name}": tensor for name, tensor in self.kept.items()}
        state: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            full = parallel.full_tensor(tensor)
            if self.team.is_main:
                state[name] = full.cpu().contiguous()
        return state

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a state. Raises KeyError or RuntimeError if it belongs to other weights."""
        self.kept = {name: tensors[f"kept/{name}"] for name in self.kept}
        with torch.no_grad():
            for name, weight in self._named.items():
                weight.copy_(parallel.sharded_like(tensors[f"weight/{name}"], weight))
                moments = {each: tensors[f"{each}/{name}"] for each in _MOMENTS if f"{each}/{name}" in tensors}
                self._adam.state[weight] = {
                    each: tensor if each == "step" else parallel.sharded_like(tensor, weight)
                    for each, tensor in moments.items()
                }


T = TypeVar("T")
METRICS, EVENTS = "metrics.jsonl", "tensorboard"


@dataclass(frozen=True, slots=True)
class CheckpointCheck:
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
    check: Callable[[int], CheckpointCheck] | None = None,
) -> Ended:
    """Take the remaining steps. The trainer then has the weights of the last step, or of the one that is kept instead.

    Args:
        check: Called with the number of steps done before the first step and before each checkpoint.
    """
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
                checked = check(number + 1) if saves and check is not None else CheckpointCheck()
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
