"""The config files: config.toml of the user, and the nearest evenhand.toml of the project, which wins over it.

They name providers of models and set defaults of the commands. A provider of the project replaces the user's of the
same name as a whole, so that a project never gets the user's key with an address of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evenhand.core.errors import DataError, PlanError, UnknownNameError, check_names
from evenhand.core.files import read_toml
from evenhand.core.types import Price

PROJECT_FILE = "evenhand.toml"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that a file names; its fields are checked by those who use them."""

    name: str
    fields: Mapping[str, Any]
    source: Source
    table: str = "providers"

    @property
    def kind(self) -> str:
        """The registered provider behind the name."""
        return str(self.fields.get("type", "openai"))

    def error(self, name: str, message: str) -> DataError:
        """Return the error about one of its fields, with file and line."""
        return self.source.error(message, name, table=f"{self.table}.{self.name}")


@dataclass(frozen=True, slots=True)
class Source:
    """A config file."""

    path: Path
    text: str
    is_project: bool

    def error(self, message: str, name: str, table: str = "") -> DataError:
        return DataError(message, file=self.path, line=_line(self.text, table, name))


@dataclass(frozen=True, slots=True)
class Config:
    """What the config files say together."""

    providers: Mapping[str, Provider] = field(default_factory=dict[str, Provider])
    http: Mapping[str, Provider] = field(default_factory=dict[str, Provider])
    """Name → the endpoint that http/NAME stands for; `models/http.py` reads it."""
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """Model spec → price."""
    pinned: Mapping[str, str] = field(default_factory=dict[str, str])
    """Model spec → the revision that its endpoint serves; answers of other runs at the same revision are reused."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Option → its default for all commands that have it, as `core/fields.py` declares them."""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Name → options that --profile NAME sets."""
    out: str | None = None
    """The folder of runs that have no --out."""
    judge: str | None = None
    """The model for the role of the judge where a command names none."""
    sources: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Field → the file that sets it."""

    def profile(self, name: str | None) -> Mapping[str, Any]:
        """Return the options of a profile; of none, none."""
        if name is None:
            return {}
        check_names("profile of evenhand.toml", self.profiles, name)
        return self.profiles[name]


def read_config() -> Config:
    """Read both files; each may be missing."""
    fields: dict[str, Any] = {}
    sources: dict[str, Path] = {}
    for path, is_project in ((user_file(), False), (project_file(), True)):
        if path is None or not _is_there(path):
            continue
        for name, value in _read(path, is_project).items():
            fields[name] = {**fields.get(name, {}), **value} if name in _TABLES else value
            sources |= dict.fromkeys(value if name == "defaults" else (name,), path)
    return Config(**fields, sources=sources)


def user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".config") / "evenhand" / "config.toml"


def project_file() -> Path | None:
    """Return the nearest evenhand.toml, from the current folder upwards."""
    here = Path.cwd()
    return next((file for folder in (here, *here.parents) if _is_there(file := folder / PROJECT_FILE)), None)


def _is_there(file: Path) -> bool:
    """Whether there is a file; a folder that may not be entered has none."""
    try:
        return file.is_file()
    except PermissionError:
        return False


def _read(path: Path, is_project: bool) -> dict[str, Any]:
    values, text = read_toml(path)
    source = Source(path, text, is_project)
    defaults = _defaults(source, {name: values.pop(name) for name in list(values) if name not in _FIELDS})
    for name, value in values.items():
        words, fits = _FIELDS[name]
        if not fits(value):
            raise source.error(f"{name} must be {words}.", name)
    if "out" in values and is_project and path.parent != Path.cwd():
        values["out"] = str(path.parent / values["out"])
    values["defaults"] = defaults
    values["profiles"] = {name: _defaults(source, fields, name) for name, fields in values.get("profiles", {}).items()}
    values["prices"] = {spec: _price(source, spec, text) for spec, text in values.get("prices", {}).items()}
    values["pinned"] = {spec: _revision(source, spec, text) for spec, text in values.get("pinned", {}).items()}
    for table in ("providers", "http"):
        values[table] = {name: Provider(name, each, source, table) for name, each in values.get(table, {}).items()}
    return values


def _defaults(source: Source, given: Mapping[str, Any], profile: str = "") -> dict[str, Any]:
    """Return the defaults of options, or the options of a profile, checked by their declaration."""
    from evenhand.core.fields import ConfigFields, ProfileFields

    declared, table = (ProfileFields, f"profiles.{profile}") if profile else (ConfigFields, "")
    options = {each.name: each for each in declared.table() if each.name in declared.offered()}
    for name, value in given.items():
        if name not in options:
            known = [*options] if profile else [*_FIELDS, *options]
            raise source.error(_lower(UnknownNameError("field", name, known)), name, table)
        kind = options[name].kind
        try:
            declared.parse("file", {name: value})
            fits = not isinstance(value, bool) or kind == "true or false"
        except PlanError:
            fits = False
        if not fits:
            raise source.error(f"{name} must be {kind}.", name, table)
    found = declared.parse("file", given).given()
    if "system" in found:
        found["system"] = tuple(_beside(source, each) for each in found["system"])
    return {**found, "history": _beside(source, str(found["history"]))} if "history" in found else found


def _beside(source: Source, text: str) -> str:
    """Return the path of a file beside the config file; any other text as it is."""
    short = "\n" not in text and len(text) < 1000
    return str(place) if short and (place := source.path.parent / text).is_file() else text


def _price(source: Source, spec: str, text: Any) -> Price:
    try:
        return Price.parse(str(text))
    except ValueError as error:
        raise source.error(f"the price of {spec} must be INPUT/OUTPUT, e.g. '0.15/0.60'.", spec, "prices") from error


def _revision(source: Source, spec: str, text: Any) -> str:
    if isinstance(text, bool) or not str(text).strip():
        raise source.error(f"{spec} must be pinned to a revision, e.g. '2026-11-02'.", spec, "pinned")
    return str(text).strip()


def _is_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in cast(dict[str, Any], value).values())


_FIELDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "providers": ("tables such as [providers.local-vllm]", _is_tables),
    "http": ("tables such as [http.support]", _is_tables),
    "profiles": ("tables such as [profiles.production]", _is_tables),
    "prices": ("a table of 'SPEC' = 'INPUT/OUTPUT'", lambda value: isinstance(value, dict)),
    "pinned": ("a table of 'SPEC' = 'REVISION'", lambda value: isinstance(value, dict)),
    "out": ("the name of a folder", lambda value: isinstance(value, str) and bool(value)),
    "judge": ("a model, such as 'openai/gpt-4o'", lambda value: isinstance(value, str) and bool(value)),
}
"""Name → (what it must be, whether a value is that); other names are defaults of options."""
_TABLES = ("providers", "http", "profiles", "prices", "pinned", "defaults")
"""Fields whose entries in the project's file are added to those in the user's."""


def _line(text: str, table: str, name: str) -> int | None:
    """Return the line of a field in a table, or of the table's own header; the parser does not tell lines."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*(.*?)\s*\]+", line)
        if header:
            current = re.sub(r"[\"'\s]", "", header[1])
            if current == ".".join(filter(None, (table, name))) or (not table and current.startswith(f"{name}.")):
                return number
        elif current == table and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]", line):
            return number
    return None


def _lower(error: Exception) -> str:
    return str(error)[0].lower() + str(error)[1:]
