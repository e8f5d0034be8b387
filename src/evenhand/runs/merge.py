"""Merges the shards of a plan into one run, whose numbers are those of a run that was never split.

Shards are refused if their plans, data, models or code differ, if one is missing, or if one is still running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import PlanError, StoreError
from evenhand.core.files import check_new_folder, draft_folder
from evenhand.core.types import Usage
from evenhand.runs import own
from evenhand.runs.file import is_locked
from evenhand.runs.shards import Shard
from evenhand.runs.store import Store
from evenhand.runs.stored import StoredRun, mark_run

_COPIED = (
    *("identity", "plan", "options", "benchmark", "models", "searches", "files", "kept", "versions", "scorer", "arms"),
    *("summaries", "described", "scope"),
)
"""Facts that are the same in all shards, and the scope of the first."""
_NAMES = {
    "benchmark": "data",
    "models": "models (their weights, endpoints or engines)",
    "searches": "search providers",
    "files": "Python files or fitted weights",
    "versions": "versions of packages",
    "code": "code of Evenhand",
    "options": "options of methods",
    "scorer": "grading",
}
"""What to call a fact in which shards differ."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merged run holds."""

    shards: int
    samples: int
    outcomes: int
    pending: int
    """Outcomes that are still missing; the run can be resumed."""


def merge(directories: Sequence[Path], out: Path) -> Merged:
    """Merge the shards in `directories` into a new run in `out`; the shards are only read."""
    check_new_folder(out)
    with ExitStack() as stack:
        runs: list[StoredRun] = []
        for directory in directories:
            run = StoredRun.open(directory)
            stack.callback(run.store.close)
            if is_locked(directory):
                raise PlanError(f"{directory} is still running; merge it when it is done.")
            runs.append(run)
        runs = _checked(runs)
        try:
            with draft_folder(out) as draft, closing(Store(draft, create=True)) as store:
                own.copy_kept(runs[0].store.get("kept") or {}, runs[0].directory, draft)
                return _copied(runs, store)
        except OSError as error:
            raise StoreError(f"{out} cannot be written: {error}. Choose another --out.") from error


def _checked(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the shards in their order; refuse what is not all shards of one plan."""
    shards: dict[int, StoredRun] = {}
    first, *others = runs
    for run in runs:
        text = run.store.get("shard")
        if text is None:
            raise PlanError(f"{run.directory} is not a shard: it was run without --shard.")
        shard = Shard.parse(text)
        if shard.index in shards:
            raise PlanError(f"{shards[shard.index].directory} and {run.directory} are both shard {shard}.")
        shards[shard.index] = run
    for other in others:
        if difference := _difference(first, other):
            raise PlanError(f"{first.directory} and {other.directory} cannot be merged: {difference}.")
    count = Shard.parse(first.store.get("shard")).count
    if missing := [str(Shard(index, count)) for index in range(1, count + 1) if index not in shards]:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5:,} more" if len(missing) > 5 else "")
        raise PlanError(f"Not all shards are named; missing: {named}.")
    return [shards[index] for index in sorted(shards)]


def _difference(first: StoredRun, other: StoredRun) -> str | None:
    """Say in what two shards differ; None if they are of one plan, data and code."""
    counts = [Shard.parse(run.store.get("shard")).count for run in (first, other)]
    if counts[0] != counts[1]:
        return f"one is of {counts[0]} shards, the other of {counts[1]}"
    essences = [orjson.loads(orjson.dumps(run.plan.essence())) for run in (first, other)]
    if essences[0] != essences[1]:
        return f"their plans differ in {_where(*essences)}"
    for fact, name in _NAMES.items():
        left, right = first.store.get(fact), other.store.get(fact)
        if left != right:
            return f"their {name} differ{_where(left, right, ' in ')}"
    return "they differ in what identifies them" if _get(first, "identity") != _get(other, "identity") else None


def _where(left: Any, right: Any, lead: str = "") -> str:
    """Name the first key in which two mappings differ, with its values if they are short."""
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return ""
    one, two = dict[str, Any](left), dict[str, Any](right)  # pyright: ignore[reportUnknownArgumentType]
    key = next(key for key in {**one, **two} if one.get(key) != two.get(key))
    values = [str(side.get(key)) for side in (one, two)]
    shown = f" ({values[0]} and {values[1]})" if max(map(len, values)) < 40 else ""
    return f"{lead}{key}{shown}"


def _copied(runs: Sequence[StoredRun], store: Store) -> Merged:
    for run in runs:
        store.copy_rows(run.store)
    numbers, last = next(store.select("SELECT COUNT(*), MAX(number) FROM samples"))
    if numbers != last:
        raise PlanError(f"These shards have {numbers:,} of the {last:,} samples of their plan; one of them is damaged.")
    facts = {key: value for key in _COPIED if (value := runs[0].store.get(key)) is not None}
    store.put(**facts, **_joined(runs), samples=numbers)
    if all(run.is_own for run in runs):  # shards of other machines stay theirs
        mark_run(store)
    outcomes = next(store.select("SELECT COUNT(*) FROM outcomes"))[0]
    return Merged(len(runs), numbers, outcomes, numbers * len(runs[0].plan.arms()) - outcomes)


def _joined(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """The facts that add up over the shards."""
    own = {Shard.parse(_get(run, "shard")).caveat for run in runs}
    scorers: dict[str, Any] = {}
    for run in runs:
        scorers |= _get(run, "scorers") or {}
    learned: list[Any] = [found for run in runs if (found := _get(run, "learned"))]
    return {
        "created": min(_get(run, "created") for run in runs),
        "seconds": sum(_get(run, "seconds") or 0.0 for run in runs),
        "caveats": sorted({each for run in runs for each in _get(run, "caveats") or ()} - own),
        "notes": sorted({each for run in runs for each in _get(run, "notes") or ()}),
        "scoring": asdict(sum((Usage(**found) for run in runs if (found := _get(run, "scoring"))), Usage())),
        "scorers": scorers,
        "certificates": next((found for run in runs if (found := _get(run, "certificates")) is not None), None),
        "settings": {**(_get(runs[0], "settings") or {}), "shard": None, "origin": {}},
        "merged": [{"folder": run.directory.name, "shard": _get(run, "shard")} for run in runs],
        **({"learned": learned[0]} if learned else {}),
    }


def _get(run: StoredRun, fact: str) -> Any:
    return run.store.get(fact)
