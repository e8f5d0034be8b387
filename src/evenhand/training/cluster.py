"""Training on a Ray cluster: the same loops in the workers of Ray Train, one process for each GPU.

Ray Train connects its workers as `accelerate launch` does, so a training is the same with both. Checkpoints are those
of the loops, in the output folder, which all nodes must see. If a worker or a node dies, Ray Train starts all workers
again, and they go on from the newest checkpoint.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, MissingExtraError, ModelError, UsageError
from evenhand.core.events import event
from evenhand.core.files import read_yaml
from evenhand.core.progress import Announce, Count, ignore
from evenhand.models.ray.connect import check_resources, connect, enter, set_address
from evenhand.models.ray.replica import Failure
from evenhand.training.configs import NAMES, path_of
from evenhand.training.parallel import join_team

Work = Callable[..., object]
"""A training, called with `resume` and `announce`; its results are in its folder."""
_MOST_IDLE = 3
"""So many starts of the workers in a row without a new step, and the training is given up."""
_MOST_FAILURES = 20
_LOOK = 0.5
"""Seconds between looks at the progress."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How many processes train, and how they share the weights."""

    count: int | None = None
    """None: one for each GPU of the cluster, a single one where it has none."""
    parallel: str = "several_gpus"
    """The name of a configuration in `configs`."""
    device: str | None = None
    """`cpu` takes no GPUs."""


def placed(on: str | None, count: int | None, parallel: str | None, device: str | None) -> Workers | None:
    """Return the workers that options ask for; None to train in this process."""
    if on is not None:
        set_address(on)
        return Workers(count, parallel or NAMES[0], device)
    if count is not None or parallel not in (None, NAMES[0]):
        raise UsageError("--workers and --parallel are for training on Ray; add --on ray.")
    return None


class ProgressBoard:
    """The actor that the workers tell of their progress; it outlives them."""

    def __init__(self) -> None:
        self._starts = self._idle = 0
        self._stages: list[tuple[str, int, int | None]] = []
        self._furthest: dict[str, int] = {}
        self._is_further = True
        self._last_error = ""
        self._failure: Failure | None = None

    def begin(self) -> tuple[int, Failure | None]:
        """Note that the workers start; return how often they did before, and why they should not."""
        self._idle = 0 if self._is_further else self._idle + 1
        self._is_further = False
        if self._idle >= _MOST_IDLE and self._failure is None:
            why = f": {self._last_error}" if self._last_error else "; they may need more memory"
            self._failure = Failure("model", f"The workers died {self._idle} times without a new step{why}.")
        self._starts += 1
        self._stages = []
        return self._starts - 1, self._failure

    def tell(self, stage: str, done: int, total: int | None) -> None:
        """Note the progress of a stage."""
        if self._stages and self._stages[-1][0] == stage:
            self._stages.pop()
        self._stages.append((stage, done, total))
        if done > self._furthest.get(stage, 0):
            self._furthest[stage] = done
            self._is_further = True

    def fail(self, failure: Failure, *, is_final: bool) -> None:
        """Note an error of a worker; a final one would come again."""
        self._last_error = failure.text.strip().partition("\n")[0].removesuffix(".")
        if is_final:
            self._failure = self._failure or failure

    def look(self) -> tuple[int, list[tuple[str, int, int | None]], Failure | None]:
        return self._starts, self._stages, self._failure


def train_on_ray(work: Work, out: Path, workers: Workers, *, resume: bool, announce: Announce) -> None:
    """Run a training in Ray's workers and show its progress here; return when it is done."""
    _need_packages()
    ray = connect()
    has_gpus = workers.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
    count = workers.count or (int(ray.cluster_resources()["GPU"]) if has_gpus else 1)
    check_resources(ray, f"Training by {count} workers", CPU=count, GPU=count if has_gpus else 0)
    board = ray.remote(ProgressBoard).options(num_cpus=0).remote()
    out.parent.mkdir(parents=True, exist_ok=True)
    storage = out.parent.resolve() / f".{out.name}.ray"  # Ray checks that all nodes see it, and so the folder beside it
    config: dict[str, Any] = {
        "work": work,
        "resume": resume,
        "board": board,
        "folder": str(Path.cwd()),
        "environment": environment_of(workers.parallel),
    }
    ended: list[Exception | None] = []

    def fit() -> None:
        try:
            _fit(config, count, has_gpus, storage)
            ended.append(None)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    progress = _Progress(announce)
    try:
        while thread.is_alive():
            thread.join(_LOOK)
            progress.show(*ray.get(board.look.remote()))
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    failure: Failure | None = ray.get(board.look.remote())[2]
    ray.kill(board)
    if failure is not None:
        raise failure.error()
    if ended[0] is not None:
        reason = str(ended[0]).strip().partition("\n")[0]
        raise ModelError(f"Ray Train gave up: {reason} Continue with --resume.") from ended[0]


def environment_of(parallel: str) -> dict[str, str]:
    """Return the variables by which `accelerate launch` tells a process of a configuration."""
    config: Mapping[str, Any] = read_yaml(path_of(parallel))
    sharding: Mapping[str, Any] = config.get("fsdp_config") or {}
    found = {name.upper(): str(value).lower() for name, value in sharding.items()}
    return found | ({"ACCELERATE_USE_FSDP": "true"} if sharding else {})


def _need_packages() -> None:
    for package in ("ray", "pandas", "pyarrow"):  # Ray Train needs all three
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("training on Ray", "ray")


def _fit(config: dict[str, object], count: int, has_gpus: bool, storage: Path) -> None:
    train: Any = importlib.import_module("ray.train")
    each = {"CPU": 1, "GPU": 1} if has_gpus else {"CPU": 1}
    torch: Any = importlib.import_module("ray.train.torch")
    torch.TorchTrainer(
        work_in_worker,
        train_loop_config=config,
        torch_config=torch.TorchConfig(backend="nccl" if has_gpus else "gloo"),
        scaling_config=train.ScalingConfig(num_workers=count, use_gpu=has_gpus, resources_per_worker=each),
        run_config=train.RunConfig(
            name="training",
            storage_path=str(storage),
            failure_config=train.FailureConfig(max_failures=_MOST_FAILURES),
        ),
    ).fit()


def work_in_worker(config: Mapping[str, Any]) -> None:
    """Train in one of the workers, from the newest checkpoint if the workers were started before."""
    ray: Any = importlib.import_module("ray")
    board = config["board"]
    enter(config["folder"])
    os.environ.update(config["environment"])
    try:
        team = join_team(None)
        starts, failure = team.on_main(lambda: ray.get(board.begin.remote()))
        if failure is None:
            teller = partial(_teller, board if team.is_main else None)
            config["work"](resume=config["resume"] or starts > 0, announce=teller)
    except Exception as error:
        # Ray starts the workers again, and if the error is final, they end at once.
        ray.get(board.fail.remote(Failure.of(error), is_final=isinstance(error, EvenhandError)))
        raise


def _teller(board: Any, stage: str) -> Count:
    if board is None:
        return ignore
    board.tell.remote(stage, 0, 0)

    def tell(done: int, total: int | None) -> None:
        board.tell.remote(stage, done, total)

    return tell


class _Progress:
    """Shows what the board says."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._observers: dict[str, Count] = {}
        self._starts = 1

    def show(self, starts: int, stages: list[tuple[str, int, int | None]], _failure: Failure | None) -> None:
        if starts > self._starts:
            self._starts = starts
            event("worker", "a worker died; all go on from the checkpoint", level=logging.WARNING)
        for name, done, total in stages:
            if name not in self._observers:
                self._observers[name] = self._announce(name)
            if total and name == stages[-1][0]:
                self._observers[name](done, total)
