"""Typed options: what a method, benchmark or scorer takes, declared once with types, bounds and help text."""

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

from evenhand.errors import PlanError, UnknownNameError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PRESET = "preset"
"""The key that names a preset where options are given."""
DEFAULT_PRESET = "evenhand"
"""The preset of the fields' own defaults."""

_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


def _as_text(value: Any) -> Any:
    """A path or a number as text: `data=2024` on a command line names a folder, but is read as a number."""
    if isinstance(value, os.PathLike) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)  # pyright: ignore[reportUnknownArgumentType]
    return value


def _as_names(value: Any) -> Any:
    """A list of names, or one text with commas or plus signs; everything becomes text, to be refused by name."""
    if value is None or value == "":
        return () if value == "" else None
    names = cast("Iterable[Any]", value) if isinstance(value, list | tuple) else re.split(r"[,+]", str(value))
    return tuple(str(name).strip() for name in names)


AS_TEXT = BeforeValidator(_as_text)
Text = Annotated[str, AS_TEXT]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
"""Written as a list, or as one text with commas or plus signs between the names."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is shown to people."""

    name: str
    kind: str
    """Type and bounds in words: `a whole number from 1 to 8`."""
    default: Any
    help: str
    required: bool
    presets: Mapping[str, Any]
    """The presets that set another value."""


class Options(BaseModel):
    """The base of all options; a field has a type, bounds and a description.

    `toxicity: float = Field(default=0.1, ge=0, le=1, description="…")`. The fields' defaults are the preset `evenhand`;
    `presets` may name others. A rule between fields is a validator that raises PlanError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def parse(cls, whose: str, given: Mapping[str, Any]) -> Self:
        """The given options over those of the named preset over the defaults; what is wrong is said in one sentence.

        `whose` says whose options these are: `method stardtox`.
        """
        values = dict(given)
        presets: Mapping[str, Mapping[str, Any]] = {DEFAULT_PRESET: {}, **cls.presets} if cls.presets else {}
        if presets and PRESET in values:
            name = values.pop(PRESET)
            if name not in presets:
                raise UnknownNameError(f"preset of the {whose}", str(name), presets)
            values = {**presets[name], **values}
        for name in values:
            if name not in cls.model_fields:
                known = [*cls.model_fields, *([PRESET] if presets else [])]
                raise UnknownNameError(f"option of the {whose}", name, known)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise PlanError(cls._sentence(whose, error.errors()[0], values)) from error

    @classmethod
    def table(cls) -> list[Option]:
        """Every option, in the order of declaration."""
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
    def _sentence(cls, whose: str, error: ErrorDetails, values: Mapping[str, Any]) -> str:
        if not error["loc"]:
            return f"The {whose} does not take these options: {error['msg']}."
        name = str(error["loc"][0])
        field = cls.model_fields[name]
        if error["type"] == "missing":
            return f"The {whose} needs the option {name}: {field.description}"
        return f"The option {name} of the {whose} must be {_kind(field)}, not {values[name]!r}."


Options_co = TypeVar("Options_co", bound=Options, default=Options, covariant=True)


def _kind(field: FieldInfo) -> str:
    """The type and bounds of a field in words."""
    annotation: Any = field.annotation
    parts = [each for each in get_args(annotation) if each is not NoneType]
    if NoneType in get_args(annotation):
        annotation = parts[0]
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
