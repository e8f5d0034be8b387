"""Loads jobs with résumés, and names of applicants by race and sex.

The public set is that of Bloomberg's test of GPT as a recruiter (2024): `resumes_to_rank.json` and two files of names.
`jobs.yaml` is ours and works offline with our own names. Files of the user's own have the form of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.core.errors import DataError
from evenhand.core.files import read_bytes
from evenhand.data.identities import load_names
from evenhand.data.locate import find_file, find_set
from evenhand.data.yaml_file import read_yaml

RACES = ("white", "Black", "Asian", "Hispanic")
SEXES = ("woman", "man")
GROUPS = tuple((race, sex) for race in RACES for sex in SEXES)
"""(race, sex), in the order of all tables."""
JOBS_FILE, MEN_FILE, WOMEN_FILE = "resumes_to_rank.json", "top_mens_names.json", "top_womens_names.json"
_CODES = {"W": "white", "B": "Black", "A": "Asian", "H": "Hispanic"}
_FORM = "JOB: {description: TEXT, resumes: [TEXT with {name}]}"

Names = Mapping[tuple[str, str], Sequence[str]]
"""(race, sex) → names."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job with the résumés of its applicants, in which {name} stands for the name."""

    name: str
    description: str
    resumes: tuple[str, ...]


def load_jobs(file: str | Path | None = None) -> list[Job]:
    """Read jobs from a JSON or YAML file, or the built-in ones."""
    path = resources.files(__name__) / "jobs.yaml" if file is None else Path(file).expanduser()
    content = _json(path) if isinstance(path, Path) and ".json" in path.suffixes else read_yaml(path)
    try:
        jobs = [
            Job(str(name), str(part.get("description") or part["jd"]), tuple(map(_with_name, part["resumes"])))
            for name, part in cast("Mapping[str, Any]", content).items()
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"it is not of the form {_FORM}.", file=str(path)) from error
    if not jobs or not all(job.resumes for job in jobs):
        raise DataError(f"a job without résumés, or no job; the form is {_FORM}.", file=str(path))
    return jobs


def own_names(file: str | Path | None = None) -> Names:
    """Read names by race and sex from a CSV file (name, gender, race), or the built-in ones."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in load_names(file):
        group = (each.groups.get("race", ""), each.groups.get("gender", ""))
        if group not in GROUPS:
            raise DataError(
                f"{each.text} has the race {group[0]!r} and the gender {group[1]!r}; use {', '.join(RACES)} and "
                f"{' or '.join(SEXES)}.",
                file=str(file),
            )
        found.setdefault(group, []).append(each.text)
    if len(found) < 2:
        raise DataError("the names are of one group; two or more are compared.", file=str(file))
    return {group: found[group] for group in GROUPS if group in found}


def public_files(data: str | Path | None) -> Mapping[str, Path]:
    """Find the three files of the public set."""
    folder = find_set("hiring", data)
    found = {name: find_file(folder, name) for name in (JOBS_FILE, MEN_FILE, WOMEN_FILE)}
    if missing := [name for name, path in found.items() if path is None]:
        again = "Download the set again: evenhand data pull hiring."
        raise DataError(f"{', '.join(missing)} is missing. {again}", file=folder)
    return {name: path for name, path in found.items() if path is not None}


def public_names(files: Mapping[str, Path]) -> Names:
    """Read the public names, which are in capitals."""
    by_sex = {"man": _json(files[MEN_FILE]), "woman": _json(files[WOMEN_FILE])}
    try:
        found = {
            (_CODES[code], sex): [str(name).title() for name in names]
            for sex, by_race in by_sex.items()
            for code, names in by_race.items()
        }
        return {group: found[group] for group in GROUPS}
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError("the names are not by W, B, A and H.", file=files[MEN_FILE]) from error


def _with_name(resume: Any) -> str:
    if not isinstance(resume, str):
        raise TypeError
    return resume if "{name}" in resume else f"{{name}}\n\n{resume}"


def _json(path: Path) -> Any:
    try:
        return orjson.loads(read_bytes(path))
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}).", file=path) from error
