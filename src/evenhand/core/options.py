"""Typed options of methods, benchmarks and scorers, each declared once with type, bounds and help text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypeVar

from evenhand.core.errors import PlanError, UnknownNameError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PRESET = "preset"
"""The key that selects a preset."""
DEFAULT_PRESET = "evenhand"
"""The preset that consists of the fields' defaults."""

_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


def _as_text(value: Any) -> Any:
    """Turn a path or number into text: `data=2024` on the command line is a folder, but parses as a number."""
    if isinstance(value, os.PathLike) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)  # pyright: ignore[reportUnknownArgumentType]
    return value


def _as_names(value: Any) -> Any:
    """Split a list, or a text with commas or plus signs, into names; the validator reports unknown ones by name."""
    if value is None or value == "":
        return () if value == "" else None
    names = cast("Iterable[Any]", value) if isinstance(value, list | tuple) else re.split(r"[,+]", str(value))
    return tuple(str(name).strip() for name in names)


AS_TEXT = BeforeValidator(_as_text)
Text = Annotated[str, AS_TEXT]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
"""Names given as a list, or as one text separated by commas or plus signs."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option as shown to users."""

    name: str
    kind: str
    """Type and bounds in words, e.g. `a whole number from 1 to 8`."""
    default: Any
    help: str
    required: bool
    presets: Mapping[str, Any]
    """Preset → its value, for presets that differ from the default."""


class Options(BaseModel):
    """The base of all options; a field has a type, bounds and a description.

    `toxicity: float = Field(default=0.1, ge=0, le=1, description="…")`. The fields' defaults are the preset `evenhand`;
    `presets` may name others. A rule between fields is a validator that raises PlanError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    at_most: ClassVar[Mapping[str, Any]] = {}
    """Options under which the method makes all calls that it can make, for an upper bound of its cost."""

    @classmethod
    def parse(cls, owner: str, given: Mapping[str, Any]) -> Self:
        """Validate the given options, completed from the chosen preset and the defaults.

        `owner` names their owner in error messages, e.g. `method cot`.
        """
        values = dict(given)
        presets: Mapping[str, Mapping[str, Any]] = {DEFAULT_PRESET: {}, **cls.presets} if cls.presets else {}
        if presets and PRESET in values:
            name = values.pop(PRESET)
            if name not in presets:
                raise UnknownNameError(f"preset of the {owner}", str(name), presets)
            values = {**presets[name], **values}
        for name in values:
            if name not in cls.model_fields:
                known = [*cls.model_fields, *([PRESET] if presets else [])]
                raise UnknownNameError(f"option of the {owner}", name, known)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise PlanError(cls._message(owner, error.errors()[0], values)) from error

    @classmethod
    def table(cls) -> list[Option]:
        """Return every option, in order of declaration."""
        return [
            Option(
                name,
                _kind(field),
                field.default,
                field.description or "",
                field.is_required(),
                {
                    preset: values[name]
                    for preset, values in cls.presets.items()
                    if name in values and values[name] != field.default
                },
            )
            for name, field in cls.model_fields.items()
        ]

    @classmethod
    def _message(cls, owner: str, error: ErrorDetails, values: Mapping[str, Any]) -> str:
        if not error["loc"]:
            return f"The {owner} does not accept these options: {error['msg']}."
        name = str(error["loc"][0])
        field = cls.model_fields[name]
        if error["type"] == "missing":
            return f"The {owner} needs the option {name}: {field.description}"
        return f"The option {name} of the {owner} must be {_kind(field)}, not {values[name]!r}."


Options_co = TypeVar("Options_co", bound=Options, default=Options, covariant=True)


def _kind(field: FieldInfo) -> str:
    """Describe the type and bounds of a field in words."""
    annotation: Any = field.annotation
    if NoneType in get_args(annotation):
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if annotation in (int, float):
        return ("a whole number" if annotation is int else "a number") + _span(field)
    return "true or false" if annotation is bool else "a text" if annotation is str else "a list of names"


def _span(field: FieldInfo) -> str:
    bounds = {key: getattr(each, key) for each in field.metadata for key in _BOUNDS if hasattr(each, key)}
    if bounds.keys() == {"ge", "le"}:
        return f" from {bounds['ge']} to {bounds['le']}"
    return " and".join(f" {word} {bounds[key]}" for key, word in _BOUNDS.items() if key in bounds)
