"""Scenarios and identities of MALIBU: the built-in ones, or those of a folder and of a file of the user's.

A base scenario is one YAML file: a profession, its task, and derived scenarios that vary role and setting, each with
two responses of equal content. A folder that a model wrote is frozen: its `provenance.json` holds the sum of each file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.data.malibu.words import identity_words
from evenhand.data.yaml_file import read_yaml
from evenhand.errors import DataError

BUILTIN, IDENTITIES, PROVENANCE = "builtin", "identities.yaml", "provenance.json"
CONTROL = "control"
"""The name of what has no identity; no identity may have it."""
FEWEST_WORDS, MOST_WORDS = 30, 150
"""Of a response."""
LENGTHS_DIFFER = 0.2
"""How much shorter the one response may be than the other."""

_ID = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A case of a profession, with two responses that say the same in other words."""

    id: str
    role: str
    setting: str
    situation: str
    responses: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Base:
    """What scenarios have in common."""

    id: str
    profession: str
    task: str
    surfaces: str
    """What bias a judge could show here; documentation, never shown to a judge."""
    derived: tuple[Scenario, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose a response may be said to be."""

    name: str
    category: str
    tag: str
    author: str
    """The identity in a sentence: "a female professional"."""


def load_bases(folder: str | Path | None = None, tags: Sequence[str] = ()) -> tuple[Base, ...]:
    """The base scenarios of a folder, or the built-in ones; `tags` are words that no scenario may have."""
    place = _folder(folder)
    files = sorted((file for file in place.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    if not files:
        raise DataError("the folder holds no scenario (*.yaml); `evenhand malibu generate` writes some.", file=folder)
    _check_frozen(place, files)
    return tuple(_read_base(file, tags) for file in files)


def load_identities(file: str | Path | None = None) -> tuple[Identity, ...]:
    """The identities of a YAML file (category → identity → tag and author), or the built-in ones."""
    path: Traversable = _data().joinpath(IDENTITIES) if file is None else Path(file).expanduser()
    found: dict[str, Identity] = {}
    for category, members in _yaml(path).items():
        if not isinstance(members, dict) or len(cast(dict[Any, Any], members)) < 2:
            raise DataError(f"the category {category!r} needs two identities or more, each on a line.", file=str(path))
        for name, fields in cast(dict[Any, Any], members).items():
            for each in (category, name):
                _check_id(each, str(path))
            if name == CONTROL or name in found:
                raise DataError(f"the identity {name!r} is taken already; give it another name.", file=str(path))
            row = _fields(fields, f"the identity {name!r}", str(path))
            texts = (_text(row, key, f"the identity {name!r}", str(path)) for key in ("tag", "author"))
            found[name] = Identity(name, category, *texts)
    if not found:
        raise DataError("the file names no identity.", file=str(path))
    return tuple(found.values())


def pairs_of(identities: Sequence[Identity]) -> tuple[tuple[Identity, Identity], ...]:
    """The pairs that are compared: those within a category."""
    return tuple((one, other) for one, other in combinations(identities, 2) if one.category == other.category)


def content_hash(content: Sequence[Base] | Sequence[Identity]) -> str:
    """SHA-256 of what is said, however the files spell it."""
    return hashlib.sha256(orjson.dumps([asdict(each) for each in content])).hexdigest()


def situation_fault(situation: str, tags: Sequence[str] = ()) -> str | None:
    """What is wrong with a situation; None when nothing is."""
    return _telling("the situation", situation, tags)


def responses_fault(responses: Sequence[str], tags: Sequence[str] = ()) -> str | None:
    """What is wrong with the two responses to a situation; None when nothing is."""
    if len(responses) != 2:
        return f"there are {len(responses)} responses, not two"
    for number, text in enumerate(responses, 1):
        count = len(text.split())
        if not FEWEST_WORDS <= count <= MOST_WORDS:
            return f"response {number} has {count} words, not {FEWEST_WORDS} to {MOST_WORDS}"
        if fault := _telling(f"response {number}", text, tags):
            return fault
    if " ".join(responses[0].split()) == " ".join(responses[1].split()):
        return "the two responses are the same text"
    short, long = sorted(len(text.split()) for text in responses)
    if short < (1 - LENGTHS_DIFFER) * long:
        return f"the responses have {short} and {long} words, which differ by more than {LENGTHS_DIFFER:.0%}"
    return None


def _telling(what: str, text: str, tags: Sequence[str]) -> str | None:
    words = identity_words(text, tags)
    return f"{what} has words that tell an identity: {', '.join(words)}" if words else None


def _data() -> Traversable:
    return resources.files("evenhand.data.malibu")


def _folder(folder: str | Path | None) -> Traversable:
    if folder is None:
        return _data().joinpath(BUILTIN)
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise DataError(f"There is no folder {folder} of scenarios; `evenhand malibu generate --out FOLDER` makes one.")
    return path


def _check_frozen(place: Traversable, files: Sequence[Traversable]) -> None:
    """Refuse files that are not those that were written, where the folder says which were."""
    noted = place.joinpath(PROVENANCE)
    if not noted.is_file():
        return
    try:
        sums: dict[str, str] = dict(orjson.loads(noted.read_bytes())["sha256"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError("does not hold the sums of the files; the folder is damaged.", file=str(noted)) from error
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    for name in sorted({*sums, *there}):
        if sums.get(name) != there.get(name):
            what = "is missing" if name not in there else "was added" if name not in sums else "was changed"
            raise DataError(
                f"{name} {what} since the folder was written; remove {PROVENANCE} to use it as your own.",
                file=str(place),
            )


def _read_base(file: Traversable, tags: Sequence[str]) -> Base:
    row, path = _yaml(file), str(file)
    found = _check_id(row.get("id"), path)
    if f"{found}.yaml" != file.name:
        raise DataError(f"the id is {found!r}; it must be the name of the file.", file=path)
    rows: Any = row.get("derived")
    if not isinstance(rows, list) or not rows:
        raise DataError("the field 'derived' must be a list of scenarios.", file=path)
    scenarios: dict[str, Scenario] = {}
    for scenario in _scenarios(cast(list[Any], rows), path, tags):
        if scenario.id in scenarios:
            raise DataError(f"the id {scenario.id!r} is given to two scenarios.", file=path)
        scenarios[scenario.id] = scenario
    texts = (_text(row, key, "the base scenario", path) for key in ("profession", "task", "surfaces"))
    return Base(found, *texts, derived=tuple(scenarios.values()))


def _scenarios(rows: Sequence[Any], path: str, tags: Sequence[str]) -> Iterator[Scenario]:
    for number, each in enumerate(rows, 1):
        row = _fields(each, f"scenario {number}", path)
        name = f"the scenario {_check_id(row.get('id'), path)!r}"
        role, setting, situation = (_text(row, key, name, path) for key in ("role", "setting", "situation"))
        given: Any = row.get("responses")
        responses = cast(list[Any], given) if isinstance(given, list) else []
        texts = [each.strip() for each in responses if isinstance(each, str)]
        if fault := situation_fault(situation, tags) or responses_fault(texts, tags):
            raise DataError(f"{name}: {fault}.", file=path)
        yield Scenario(row["id"], role, setting, situation, (texts[0], texts[1]))


def _yaml(file: Traversable) -> dict[Any, Any]:
    """The mapping in a YAML file."""
    return _fields(read_yaml(file), "the file", str(file))


def _fields(row: Any, what: str, path: str) -> dict[Any, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{what} is not a list of fields (name: value).", file=path)
    return cast(dict[Any, Any], row)


def _text(row: Mapping[Any, Any], key: str, what: str, path: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{what} has no text in the field {key!r}.", file=path)
    return value.strip()


def _check_id(name: Any, path: str) -> str:
    # Sample ids are made of these with slashes, and samples of one base must stand together when sorted.
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise DataError(f"{name!r} is no id; write small letters, digits and underscores.", file=path)
    return name
