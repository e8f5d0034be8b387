"""Social groups as they are written into prompts, and names that signal them.

`en.yaml` has the groups of each attribute in English; the files of other languages have their grammar too (`inflect`).
`names.csv` has names by gender and race. Their source: surnames and
`surname_share`, the percentage of bearers who belong to the group, are from "Frequently Occurring Surnames from the
2010 Census" of the US Census Bureau. First names of white and Black people are from Bertrand and Mullainathan (2004),
who chose them by their frequency in birth records and checked them in a survey. The other first names are ours, so
there the surname carries the signal. A file of the user's own may replace either.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from evenhand.core.errors import DataError, UnknownNameError, check_names
from evenhand.core.files import read_text, read_yaml

Pronouns = Literal["she", "he", "they"]
FOLDER = resources.files(__name__)
_FIELDS = ("adjective", "noun", "pronouns")
_GENDERS = ("f", "m", "x")
PRONOUNS: Mapping[str, Pronouns] = {"woman": "she", "man": "he"}
"""Gender of a name → its pronouns; they for any other."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group and how it is written."""

    attribute: str
    name: str
    adjective: str
    noun: str = "person"
    pronouns: Pronouns = "they"
    gender: str = ""
    """The grammatical gender in a language that has it: f, m, or x for neither."""
    forms: tuple[tuple[str, str], ...] = ()
    """There, the cases of the noun and the articles that differ from those of its gender."""

    @property
    def phrase(self) -> str:
        """The group as a noun phrase without an article: "Black person", "woman"."""
        return self.noun if self.noun != "person" else f"{self.adjective} person"

    def fields(self) -> dict[str, str]:
        """The group in the format of an identities file."""
        if self.gender:
            return {"gender": self.gender, "noun": self.noun, **dict(self.forms)}
        return {name: getattr(self, name) for name in _FIELDS}


@dataclass(frozen=True, slots=True)
class Name:
    """A name and the groups that it signals, by attribute."""

    text: str
    groups: Mapping[str, str]

    @property
    def pronouns(self) -> Pronouns:
        return PRONOUNS.get(self.groups.get("gender", ""), "they")


def load_identities(
    file: str | Path | Mapping[str, Any] | None = None, language: str = "en"
) -> Mapping[str, tuple[Group, ...]]:
    """Read attribute → groups, from a file of the user's own, its content, or the built-in one of the language."""
    if isinstance(file, Mapping):
        path, content = "identities", cast(Any, file)
    else:
        path = FOLDER / f"{language}.yaml" if file is None else Path(file).expanduser()
        content = read_yaml(path)
        if file is None and language != "en":
            content = content["groups"]
    read = _group if language == "en" else partial(_inflected, language)
    if not isinstance(content, dict) or not content:
        raise DataError("write 'attribute:' and below it 'group: { adjective: WORD }'.", file=str(path))
    attributes = cast("Mapping[Any, Any]", content)
    return {str(name): _groups(str(name), groups, str(path), read) for name, groups in attributes.items()}


def choose_attributes(known: Mapping[str, tuple[Group, ...]], wanted: Sequence[str]) -> Mapping[str, tuple[Group, ...]]:
    """Return the wanted attributes, in the order in which they are named."""
    check_names("attribute", known, *wanted)
    return {name: known[name] for name in dict.fromkeys(wanted)}


def load_names(file: str | Path | Sequence[Mapping[str, str]] | None = None) -> tuple[Name, ...]:
    """Read names from a CSV file with the column `name` and a column for each attribute that a name signals."""
    if not isinstance(file, str | Path | None):
        return tuple(Name(row["name"], {key: row[key] for key in row if key != "name"}) for row in file)
    path = Path(str(FOLDER / "names.csv")) if file is None else Path(file).expanduser()
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    if not rows or "name" not in rows[0] or len(rows[0]) < 2:
        raise DataError("a file of names is CSV with the columns name and, e.g., gender and race.", file=str(path))
    found: list[Name] = []
    for line, row in enumerate(rows, 2):
        groups = {key: value.strip() for key, value in row.items() if key != "name" and isinstance(value, str)}
        if not (row["name"] or "").strip():
            raise DataError("the name is missing.", file=str(path), line=line)
        found.append(Name(row["name"].strip(), {key: value for key, value in groups.items() if value}))
    return tuple(found)


def _groups(attribute: str, groups: Any, file: str, read: Callable[[str, str, Any, str], Group]) -> tuple[Group, ...]:
    if isinstance(groups, list):  # plain words: each is the group's name and how it is written
        words = [str(each) for each in cast("list[Any]", groups)]
        groups = {
            word: {"gender": "x", "noun": word} if read is not _group else {"adjective": word, "noun": word}
            for word in words
        }
    if not isinstance(groups, dict) or len(cast("Mapping[Any, Any]", groups)) < 2:
        raise DataError(f"{attribute} needs at least two groups, to be compared.", file=file)
    return tuple(read(attribute, str(name), each, file) for name, each in cast("Mapping[Any, Any]", groups).items())


def _inflected(language: str, attribute: str, name: str, fields: Any, file: str) -> Group:
    given = {str(key): str(value) for key, value in cast("dict[Any, Any]", fields).items()}
    if not given.get("noun") or given.get("gender") not in _GENDERS:
        raise DataError(
            f"the group {name} needs a gender and a noun in the language {language}: {{ gender: f, noun: WORDS }} "
            f"(the gender is {', '.join(_GENDERS[:-1])} or {_GENDERS[-1]}).",
            file=file,
        )
    gender, noun = given.pop("gender"), given.pop("noun")
    pronouns: Pronouns = "she" if gender == "f" else "he" if gender == "m" else "they"
    return Group(attribute, name, noun, noun, pronouns, gender, tuple(given.items()))


def _group(attribute: str, name: str, fields: Any, file: str) -> Group:
    if not isinstance(fields, dict) or not all(
        isinstance(each, str) for each in cast("dict[Any, Any]", fields).values()
    ):
        raise DataError(f"the group {name} has no fields; write {{ adjective: WORD }}.", file=file)
    given = cast("dict[str, str]", fields)
    for field in given:
        if field not in _FIELDS:
            raise DataError(str(UnknownNameError(f"field of the group {name}", field, _FIELDS)), file=file)
    if not given.get("adjective", "").strip():
        raise DataError(f"the group {name} has no adjective.", file=file)
    pronouns = given.get("pronouns", "they")
    if pronouns not in ("she", "he", "they"):
        raise DataError(f"the pronouns of {name} are she, he or they, not {pronouns}.", file=file)
    return Group(attribute, name, given["adjective"], given.get("noun", "person"), pronouns)
