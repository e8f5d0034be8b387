"""The folder that a stage of training writes: its plan first, a mark when it is finished, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.errors import DataError, PlanError
from evenhand.training import checkpoints
from evenhand.training.options import Options

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
