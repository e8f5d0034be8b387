"""Checkpoints: weights, moments and the step count, as safetensors. A checkpoint folder is complete or absent."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "checkpoints"
_TENSORS, _STEP = "state.safetensors", "state.json"
_KEPT = 2


def save(folder: Path, step: int, tensors: Mapping[str, Any]) -> None:
    """Write a checkpoint under a temporary name, rename it, and delete all but the newest ones."""
    final = folder / FOLDER / f"step-{step:08d}"
    draft = final.with_suffix(".partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    importlib.import_module("safetensors.torch").save_file(dict(tensors), draft / _TENSORS)
    (draft / _STEP).write_text(json.dumps({"step": step}), encoding="utf-8")
    for name in (_TENSORS, _STEP):
        with (draft / name).open("rb") as file:
            os.fsync(file.fileno())
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    for old in _complete(folder)[:-_KEPT]:
        shutil.rmtree(old)


def newest(folder: Path) -> tuple[int, Mapping[str, Any]] | None:
    """Return the step count and the tensors of the newest readable checkpoint; broken ones are skipped."""
    safetensors: Any = importlib.import_module("safetensors")
    load: Any = importlib.import_module("safetensors.torch").load_file
    for path in reversed(_complete(folder)):
        with contextlib.suppress(OSError, ValueError, KeyError, safetensors.SafetensorError):
            step = int(json.loads((path / _STEP).read_text(encoding="utf-8"))["step"])
            return step, load(path / _TENSORS)
    return None


def delete_all(folder: Path) -> None:
    """Delete all checkpoints of a finished training."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _complete(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / FOLDER).glob("step-*") if path.suffix != ".partial")
