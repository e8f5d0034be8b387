"""Checkpoints: weights, moments and the step count, as safetensors. A checkpoint folder is complete or absent."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.core.files import PARTIAL, draft_folder

Checkpoint = tuple[int, Mapping[str, Any]]
"""The step count and the tensors."""
FOLDER = "checkpoints"
_TENSORS, _STEP = "state.safetensors", "state.json"
_KEPT = 2


def save(folder: Path, step: int, tensors: Mapping[str, object], score: float | None = None) -> None:
    """Write a checkpoint under a temporary name, rename it, and delete all but the newest and the best ones."""
    final = folder / FOLDER / f"step-{step:08d}"
    with draft_folder(final, durable=True) as unfinished:
        importlib.import_module("safetensors.torch").save_file(dict(tensors), unfinished / _TENSORS)
        (unfinished / _STEP).write_text(json.dumps({"step": step, "score": score}), encoding="utf-8")
    for old in set(_complete(folder)[:-_KEPT]) - set(_by_score(folder)[-1:]):
        shutil.rmtree(old)


def newest(folder: Path) -> Checkpoint | None:
    """Return the newest readable checkpoint; broken ones are skipped."""
    return _last_readable(_complete(folder))


def best(folder: Path) -> Checkpoint | None:
    """Return the checkpoint with the highest score, or the newest one if there are no scores."""
    return _last_readable(_by_score(folder))


def delete_all(folder: Path) -> None:
    """Delete all checkpoints of a finished training."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def has_progress(folder: Path) -> bool:
    """Whether a step was saved. The checkpoint before the first step does not count."""
    return any(path.name != "step-00000000" for path in _complete(folder))


def _complete(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / FOLDER).glob("step-*") if path.suffix != PARTIAL)


def _by_score(folder: Path) -> list[Path]:
    """Return the checkpoints from the lowest to the highest score, and from old to new where scores are equal."""
    return sorted(_complete(folder), key=_score)


def _score(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        score = json.loads((path / _STEP).read_text(encoding="utf-8")).get("score")
        return -math.inf if score is None else score
    return -math.inf


def _last_readable(paths: Sequence[Path]) -> Checkpoint | None:
    safetensors: Any = importlib.import_module("safetensors")
    load: Any = importlib.import_module("safetensors.torch").load_file
    for path in reversed(paths):
        with contextlib.suppress(OSError, ValueError, KeyError, safetensors.SafetensorError):
            step = int(json.loads((path / _STEP).read_text(encoding="utf-8"))["step"])
            return step, load(path / _TENSORS)
    return None
