"""The grades behind a pack's numbers, disclosed as text, and the check that recomputes every number from them.

A line of `grades/RUN.jsonl` is one sample, or what came of it in one arm, with the hash of the line's other fields, so
that a changed grade can be named. Prompts and answers are not disclosed. A pack is checked by making a run of these
lines again, and studying that: no model is called, and no code of the pack is executed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, cast

import orjson

from evenhand.core import aio
from evenhand.core.errors import DataError, EvenhandError, MissingExtraError, UsageError
from evenhand.core.files import json_lines, json_object, read_bytes, scratch, sha256, write_json, write_json_lines
from evenhand.core.types import Sample
from evenhand.core.version import own_version
from evenhand.evidence.facts import as_values, read_run
from evenhand.evidence.signed import COMMITMENTS, ENVELOPE, commitment_faults, read_commitment, signature_faults
from evenhand.runs.plan import read_plan_file
from evenhand.runs.store import Rows, Store
from evenhand.runs.stored import StoredRun
from evenhand.runs.trust import python_in

MANIFEST = "manifest.json"
PACK = "evidence.json"
_FACTS = (
    *("identity", "plan", "options", "benchmark", "models", "files", "kept", "versions", "created", "seconds"),
    *("samples", "scorer", "scorers", "arms", "caveats", "notes", "certificates", "described", "summaries", "shard"),
)
"""What a study needs to know of a run besides its grades."""
_MOST = 20
"""Findings that are named of one kind."""


# --- writing ---


def disclose(run: StoredRun, name: str, folder: Path) -> None:
    """Write the facts and grades of a run."""
    write_json(folder / "grades" / f"{name}.json", {key: run.store.get(key) for key in _FACTS})
    write_json_lines(folder / "grades" / f"{name}.jsonl", map(_sealed, _rows(run.store)))


def _rows(store: Store) -> Iterator[dict[str, Any]]:
    numbers: dict[int, str] = {}
    for number, sample in store.samples():
        numbers[number] = sample.id
        yield {
            "sample": sample.id,
            "number": number,
            "kind": sample.kind,
            "choices": len(sample.choices),
            "cluster": sample.cluster,
            "metadata": sample.metadata,
        }
    grades: dict[tuple[int, int], list[Any]] = {}
    for number, arm, *grade, body in store.select(
        "SELECT sample, arm, scorer, iteration, status, reason, body FROM scores"
        " ORDER BY sample, arm, iteration, scorer"
    ):
        grades.setdefault((number, arm), []).append([*grade, None if body is None else orjson.loads(body)])
    for number, arm, status, reason, seconds, at_limit, reading in store.select(
        "SELECT sample, arm, status, reason, seconds, at_limit, reading FROM outcomes ORDER BY sample, arm"
    ):
        found = {"sample": numbers.get(number, ""), "number": number, "arm": arm, "status": status, "reason": reason}
        rest = {"seconds": seconds, "at_limit": at_limit, "reading": reading}
        yield {**found, **rest, "grades": grades.get((number, arm), [])}


def _sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "sha256": _seal(row)}


def _seal(row: Mapping[str, Any]) -> str:
    content = {name: value for name, value in row.items() if name != "sha256"}
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def seal(folder: Path, files: Iterable[Path]) -> str:
    """Write the hashes of a pack's files; return the hash of that list, by which the whole pack is known."""
    sums = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted({*files})}
    write_json(folder / MANIFEST, {"evenhand": own_version(), "sha256": sums})
    return sha256(folder / MANIFEST)


# --- checking ---


@dataclass(slots=True)
class Verified:
    """What a check of a pack has found."""

    seal: str
    """The hash of the list of hashes."""
    files: int = 0
    grades: int = 0
    numbers: int = 0
    """Numbers that were recomputed."""
    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    """What was not checked, and why."""
    commands: list[str] = field(default_factory=list[str])
    """What repeats the runs."""
    needs: list[str] = field(default_factory=list[str])
    """What these commands run and reach."""
    shown: list[str] = field(default_factory=list[str])
    """What the pack proves."""
    not_shown: list[str] = field(default_factory=list[str])
    """What it does not prove, and what would."""


def verify(folder: Path, *, commitment: Path | None = None, key: Path | None = None) -> Verified:
    """Check a pack: the hashes of its files and grades, every number from the grades, commitments and signature.

    Args:
        commitment: The commitment as it was published before the run.
        key: The public key of whoever should have signed.
    """
    listed, pack = _object(folder / MANIFEST), _object(folder / PACK)
    found = Verified(sha256(folder / MANIFEST))
    sums, runs = listed.get("sha256"), pack.get("runs")
    if not isinstance(sums, dict):
        raise DataError("it has no hashes of files under sha256.", file=folder / MANIFEST)
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in cast("list[Any]", runs)):
        raise DataError("its runs are not a list of objects.", file=folder / PACK)
    _check_files(folder, cast("dict[str, Any]", sums), found)
    if listed.get("evenhand") != own_version():
        found.notes.append(
            f"The pack was made by Evenhand {listed.get('evenhand')}, and this is {own_version()}; a later version may "
            "compute a number otherwise"
        )
    whole = True
    for run in cast("list[dict[str, Any]]", runs):
        name = str(run.get("name"))
        if PurePosixPath(name).name != name or name in ("", "..") or not name.isprintable():
            raise DataError("the name of a run is not a valid file name.", file=folder / PACK)
        plan = read_plan_file(folder / "plans" / f"{name}.yaml")
        try:
            whole &= _check_run(folder, name, run, plan, found)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            found.faults.append(f"The grades of {name} cannot be read ({type(error).__name__}: {error})")
        except EvenhandError as error:
            found.faults.append(f"The numbers of {name} cannot be computed: {str(error).rstrip('.')}")
        try:
            found.needs += _needs(plan, name)
            found.commands += repeats(plan, name)
        except (LookupError, TypeError, AttributeError) as error:
            found.faults.append(f"The plan of {name} cannot be read ({type(error).__name__}: {error})")
    if not runs:
        found.faults.append(f"{folder / PACK} names no run")
    _check_commitments(folder, commitment, found)
    _check_signature(folder, cast("dict[str, Any]", sums), key, found)
    what = ", and so do models and verdicts" if whole else ", but for those named above"
    found.shown.insert(
        0, f"Every number in evidence.json follows from its grades{what}; files are as the manifest says"
    )
    found.not_shown += [
        "That the grades are those of the models' answers, which the pack does not hold: the commands below ask again",
        "That page, model card and PDF say what evidence.json says, if whoever made the pack changed them",
        "That the run was not repeated until its numbers pleased",
    ]
    return found


def committed_parts(folder: Path, name: str) -> tuple[dict[str, Any], list[str]]:
    """The facts of a disclosed run, and the ids of its samples."""
    lines = json_lines(folder / "grades" / f"{name}.jsonl")
    return _object(folder / "grades" / f"{name}.json"), [row["sample"] for _, row in lines if "arm" not in row]


def _check_commitments(folder: Path, published: Path | None, found: Verified) -> None:
    known: set[str] = set()
    for path in sorted((folder / COMMITMENTS).glob("*.json")):
        try:
            stated = read_commitment(path)
            faults = commitment_faults(stated, *committed_parts(folder, path.stem))
        except (LookupError, TypeError, ValueError, EvenhandError) as error:
            found.faults.append(f"The commitment of {path.stem} cannot be checked ({error})")
            continue
        known.add(stated["sha256"])
        found.faults += [f"The commitment of {path.stem}: {each}" for each in faults]
        if not faults:
            parts = "plan, data, models, samples, seeds and version of Evenhand"
            found.shown.append(f"{path.stem} was run as committed to ({parts}); commitment {stated['sha256'][:16]}…")
    if published is not None and read_commitment(published)["sha256"] not in known:
        found.faults.append(f"No run of the pack is the one that {published} commits to")
    elif published is not None:
        found.shown.append(f"It is the commitment of {published}")
    elif known:
        found.not_shown.append("That the commitment was made before the run: pass the published one, --commitment FILE")
    else:
        found.not_shown.append("That the plan and the samples were chosen before the run: the pack has no commitment")


def _check_signature(folder: Path, listed: Mapping[str, Any], key: Path | None, found: Verified) -> None:
    if not (folder / ENVELOPE).is_file():
        if key is not None:
            found.faults.append(f"There is no {ENVELOPE}, so nobody has signed the pack")
        found.not_shown.append("Who made the pack: it is not signed")
        return
    known = {MANIFEST, *listed}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    sums = {name: sha256(path) for name, path in files.items() if name in known}
    try:
        key_id, faults = signature_faults(folder, sums, key)
    except MissingExtraError as error:
        if key is not None:
            raise
        found.not_shown.append(f"Whether the signature holds: it was not checked. {str(error).rstrip('.')}")
        return
    found.faults += [f"{ENVELOPE}: {each}" for each in faults]
    if not faults:
        found.shown.append(f"All files were signed with the key {key_id[:16]}…")
    if key is None:
        found.not_shown.append("Whose key that is: pass the public key that you know, --key FILE")
    elif not faults:
        found.shown.append(f"It is the key in {key}")


def repeats(plan: Mapping[str, Any], name: str) -> list[str]:
    """The command, given in the folder of a pack, that repeats a run; none for imported answers."""
    if any(model.get("provider") == "imported" for models in plan.get("models") or () for model in models.values()):
        return []
    return [f"evenhand run --config {quote(f'plans/{name}.yaml')} --out {quote(f'repeated/{name}')}"]


def _needs(plan: Mapping[str, Any], name: str) -> Iterator[str]:
    """Say which Python of the pack repeats a run, where it sends requests, and what cannot be repeated."""
    for file in python_in(plan):
        yield f"{name} runs the Python file {file}; read it first"
    for model in (model for models in plan.get("models") or () for model in models.values()):
        if model.get("provider") == "imported":
            file = model["extra"]["file"]
            yield f"The answers of {model['spec']} in {name} were imported from {file}, so no command repeats them"
        if model.get("base_url"):
            key = model.get("key", "its usual variable") or "no variable"
            yield f"{name} sends requests for {model['spec']} to {model['base_url']}, with the key in {key}"


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"There is no {path}; name the folder of a pack that `evenhand evidence pack` made.")
    return json_object(read_bytes(path), path, None)


def _check_files(folder: Path, known: Mapping[str, Any], found: Verified) -> None:
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, digest in known.items():
        if name not in there:
            found.faults.append(f"{name} is missing")
        elif sha256(there[name]) != digest:
            found.faults.append(f"{name} was changed: its hash is not the one in {MANIFEST}")
        found.files += 1
    added = sorted(
        name for name in there if name not in (*known, MANIFEST, ENVELOPE) and not name.startswith("repeated/")
    )
    found.notes += [f"{name} is not part of the pack" for name in added[:_MOST]]


def _check_run(folder: Path, name: str, stated: Mapping[str, Any], plan: Mapping[str, Any], found: Verified) -> bool:
    """Compare what a pack says of a run with what its grades give; return whether all of it could be computed."""
    with scratch() as place:
        target = place / name
        known = _rebuilt(folder, name, target, found)
        facts = read_run(target)
    described: Mapping[str, Any] = known.get("described") or {}
    whole = not (described.get("left_out") or described.get("audited"))
    values, plans = orjson.loads(orjson.dumps([as_values(facts), [plan, facts.plan]], default=str))
    if other := sorted(each for each in {*plans[0], *plans[1]} if plans[0].get(each) != plans[1].get(each)):
        fault = f"plans/{name}.yaml is not the plan in the grades: {', '.join(other)}"
        if "kept" in known:
            found.faults.append(fault)
        else:
            found.notes.append(f"{fault}; of an older pack, files that it copied may be the reason")
    for where, said, computed in _numbers(_stated(stated), _stated(values), whole=whole):
        found.numbers += len(cast("list[Any]", computed)) if isinstance(computed, list) else 1
        if not _same(said, computed):
            found.faults.append(f"{name}, {where}: the pack says {_short(said)}, the grades give {_short(computed)}")
    if not whole:
        left = ", ".join([*map(str, described.get("left_out") or ()), *(["its audit"] if described["audited"] else [])])
        found.notes.append(
            f"Of {name}, this takes code of its benchmark and was not recomputed: {left}; effects and verdicts"
        )
    return whole


def _rebuilt(folder: Path, name: str, target: Path, found: Verified) -> Mapping[str, Any]:
    """Make a run from disclosed grades; return its facts."""
    facts = _object(folder / "grades" / f"{name}.json")
    samples: list[tuple[int, Sample]] = []
    rows = Rows()
    file = folder / "grades" / f"{name}.jsonl"
    changed = 0
    for line, row in json_lines(file):
        if row.get("sha256") != _seal(row):
            changed += 1
            if changed <= _MOST:
                arm = f" in arm {row['arm']}" if "arm" in row else ""
                found.faults.append(f"{file.relative_to(folder)}, line {line}: {row.get('sample')}{arm} was changed")
        if "arm" not in row:
            samples.append((row["number"], _sample(row)))
            continue
        found.grades += 1
        place = (row["number"], row["arm"])
        rows.outcomes.append(
            (*place, row["status"], row["reason"], row["seconds"], row["at_limit"], row["reading"], None)
        )
        for scorer, iteration, status, reason, values in row["grades"]:
            body = None if values is None else orjson.dumps(values).decode()
            rows.scores.append((*place, scorer, iteration, status, reason, body))
    if changed > _MOST:
        found.faults.append(f"{file.relative_to(folder)}: {changed - _MOST:,} more lines were changed")
    with closing(Store(target, create=True)) as store:
        store.add_numbered(samples)
        store.put(**{key: facts[key] for key in _FACTS if facts.get(key) is not None})
        aio.run(store.record_rows(rows))
    return facts


def _sample(row: Mapping[str, Any]) -> Sample:
    choices = ("",) * int(row["choices"])
    return Sample(row["sample"], row["kind"], "", choices=choices, cluster=row["cluster"], metadata=row["metadata"])


def _stated(run: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run in a pack is computed from grades."""
    effect = ("difference", "low", "high", "n", "p_value", "p_adjusted")
    return {
        "samples": run["data"]["samples"],
        "groups": run["data"]["groups"],
        "arms": _keyed(
            (
                arm["label"],
                {
                    **{name: arm[name] for name in ("method", "models", "seed", "statuses", "not_run")},
                    "estimates": _keyed(
                        (f"{each['metric']}, {each['group']}", [each[name] for name in ("value", "low", "high", "n")])
                        for each in arm["estimates"]
                    ),
                },
            )
            for arm in run["arms"]
        ),
        "effects": _keyed(
            (f"{each['before']} → {each['after']}, {each['metric']}, {each['group']}", [each[name] for name in effect])
            for each in run["effects"]
        ),
        "rates": _keyed(
            (
                f"{each['arm']}, {' × '.join(table['by'])}, {row['category']}",
                [row[name] for name in ("people", "selected", "rate", "ratio")],
            )
            for each in run["selection_rates"]
            for table in each["tables"]
            for row in table["rows"]
        ),
        "verdicts": run["verdicts"],
    }


def _keyed(rows: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The values by name; a name that stands twice could hide a wrong number behind the right one."""
    found: dict[str, Any] = {}
    for name, value in rows:
        if name in found:
            raise DataError(f"{name} stands twice")
        found[name] = value
    return found


def _numbers(stated: Mapping[str, Any], computed: Mapping[str, Any], *, whole: bool) -> Iterator[tuple[str, Any, Any]]:
    """(place, as stated, as computed) of all numbers; if not `whole`, of those that need no code of the run's own."""
    kept = {name: value for name, value in computed.items() if whole or name not in ("effects", "verdicts")}
    for place, value in _leaves(kept):
        yield ", ".join(place), _at(stated, place), value
    if whole:
        known = {place for place, _ in _leaves(kept)}
        yield from ((", ".join(place), said, None) for place, said in _leaves(stated) if place not in known)


def _leaves(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, Any]", value).items():
            yield from _leaves(each, (*place, str(name)))
    else:
        yield place, value


def _at(value: Any, place: Sequence[str]) -> Any:
    for name in place:
        value = value.get(name) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value  # pyright: ignore[reportUnknownVariableType]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, cast('list[Any]', value)))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _same(said: Any, computed: Any) -> bool:
    if isinstance(said, list) and isinstance(computed, list):
        pairs = cast("list[Any]", said), cast("list[Any]", computed)
        return len(pairs[0]) == len(pairs[1]) and all(map(_same, *pairs))
    if isinstance(said, int | float) and isinstance(computed, int | float):
        return math.isclose(said, computed, rel_tol=1e-9, abs_tol=1e-12)
    return said == computed
