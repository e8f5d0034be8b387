"""Options, each declared once: type, default, range, help and place are one line of one class.

`Options` are those of a method, benchmark or scorer. A `Request` is what a command or a public function is asked for:
its fields are the command's options (`cli/options.py` builds them), the function's parameters (`taking`), the defaults
in evenhand.toml, the record by which a run is resumed (`Request.record`) and the table in the documentation.

    class ListRequest(Request):
        folder: Path = argument("Where the runs are.", default=Path("runs"))
        limit: int | None = option(None, "At most this many.", short="-n", ge=1, common=True)

    @command(ListRequest)               # in cli/
    def runs(request: ListRequest) -> None: …

    @taking(ListRequest)                # in api.py: listed(limit=3), with completion in editors
    def listed(request: ListRequest) -> list[str]: …

A class of fields that several requests share is a base class of them; its `section` is their heading in help. What a
command decides itself is in `fixed`: the field is there with its default, but neither as an option nor a parameter.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypeVar

from evenhand.core.errors import PlanError, check_names
from evenhand.core.presets import DEFAULT_PRESET, Presets

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PRESET = "preset"
"""The key that selects a preset."""

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
Several = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Texts: one, or a list of them; on the command line an option that is repeated."""


@dataclass(frozen=True, slots=True)
class Face:
    """How an option is named and shown; its type, default, range and description are the field's."""

    flag: str = ""
    """`--model` of a field `models`; by default `--` and the name."""
    short: str = ""
    metavar: str = ""
    common: bool = False
    """Whether most people need it, so that --help shows it; --help-all shows all."""
    is_argument: bool = False
    """Whether it stands on the command line without a flag."""
    read: Callable[[Any], Any] | None = None
    """Makes the field's value of the text on the command line, or of the texts where it is repeated."""
    env: str = ""
    hidden: bool = False
    choices: Sequence[str] = ()
    """The values that a text may have, where a Literal cannot name them."""


def option(
    default: Any,
    help: str,  # noqa: A002 - the word for it on the command line
    *,
    flag: str = "",
    short: str = "",
    metavar: str = "",
    common: bool = False,
    examples: Sequence[Any] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    read: Callable[[Any], Any] | None = None,
    env: str = "",
    hidden: bool = False,
    choices: Sequence[str] = (),
) -> Any:
    """Declare an option of a request; `...` as the default makes it required."""
    face = Face(flag, short, metavar, common, read=read, env=env, hidden=hidden, choices=choices)
    return _declared(default, help, face, examples, ge=ge, gt=gt, le=le, lt=lt)


def argument(
    help: str,  # noqa: A002 - the word for it on the command line
    *,
    default: Any = ...,
    metavar: str = "",
    read: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare what stands on the command line without a flag; of a tuple, there may be several."""
    return _declared(default, help, Face(metavar=metavar, is_argument=True, read=read), ())


def _declared(default: Any, description: str, face: Face, examples: Sequence[Any], **bounds: float | None) -> Any:
    made: Any = Field(default, description=description, examples=list(examples) or None, **cast(Any, bounds))
    made.metadata.append(face)
    return made


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
    `presets` may name others (`core/presets.py`). A rule between fields is a validator that raises PlanError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    presets: ClassVar[Presets] = Presets()
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
            check_names(f"preset of the {owner}", presets, str(name))
            values = {**{key: each for key, each in presets[name].items() if key in cls.model_fields}, **values}
        check_names(f"option of the {owner}", [*cls.model_fields, *([PRESET] if presets else [])], *values)
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


class Request(Options):
    """What a command or a public function is asked for; fields that were given are in `model_fields_set`."""

    # Built at first use: most classes are only the bases of others.
    model_config = ConfigDict(strict=False, arbitrary_types_allowed=True, protected_namespaces=(), defer_build=True)
    command: ClassVar[str] = ""
    """The words of its command, e.g. `data hard`; `evenhand resume` finds by them how a stored request goes on."""
    section: ClassVar[str] = "Options"
    """The heading of the fields that a class declares; its subclasses have their own."""
    fixed: ClassVar[Sequence[str]] = ()
    """Fields that the command decides itself."""
    session: ClassVar[Sequence[str]] = ()
    """Fields of this one call, which are not kept for `evenhand resume`."""

    @classmethod
    def offered(cls) -> dict[str, FieldInfo]:
        """Return the fields that can be given, those of the command itself first."""
        names = sorted(cls.model_fields, key=lambda name: cls.owner(name) is not cls)
        return {name: cls.model_fields[name] for name in names if name not in cls.fixed}

    @classmethod
    def owner(cls, name: str) -> type[Request]:
        """Return the class whose declaration of a field holds."""
        return next(each for each in cls.__mro__ if name in inspect.get_annotations(each))

    @classmethod
    def heading(cls) -> str:
        """Return the heading of the fields that this very class declares."""
        return cls.__dict__.get("section", "Options")

    @classmethod
    def face(cls, name: str) -> Face:
        """Return how a field is named and shown."""
        found = next((each for each in cls.model_fields[name].metadata if isinstance(each, Face)), Face())
        return found if found.flag else replace(found, flag=f"--{name.replace('_', '-')}")

    def given(self, *groups: type[Request]) -> dict[str, Any]:
        """Return the values that were given; of the fields of these classes only, if any are named."""
        names = {name for group in groups for name in group.model_fields} if groups else set(type(self).model_fields)
        return {name: getattr(self, name) for name in type(self).model_fields if name in names & self.model_fields_set}

    def changed(self, **values: Any) -> Self:
        return self.model_copy(update=values)

    def record(self) -> dict[str, Any]:
        """Return the command and what was given as plain JSON values, to be kept with what it made."""
        left_out = {name for owner in type(self).__mro__ for name in owner.__dict__.get("session", ())}
        return {"command": self.command, "asked": self.model_dump(mode="json", exclude_unset=True, exclude=left_out)}

    @classmethod
    def signature(cls) -> inspect.Signature:
        """Return the parameters of a function that takes this request: by name, or in place if `kw_only=False`."""
        hints = get_type_hints(cls, include_extras=True)
        places = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        parameters: list[inspect.Parameter] = []
        for name, field in cls.offered().items():
            place = places[0] if field.kw_only is False else places[1]
            default = inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
            parameters.append(inspect.Parameter(name, place, default=default, annotation=hints[name]))
        return inspect.Signature(sorted(parameters, key=lambda each: (each.kind, each.default is not each.empty)))


R = TypeVar("R", bound=Request)
T = TypeVar("T")
P = ParamSpec("P")


def taking(request: Callable[P, R]) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Decorator: a function whose parameters are the fields of a request, for editors and type checkers, too."""

    def decorate(function: Callable[[R], T]) -> Callable[P, T]:
        kind = cast("type[R]", request)
        signature = kind.signature()

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            check_names(f"parameter of {function.__name__}", signature.parameters, *kwargs)
            return function(kind.parse(function.__name__, signature.bind(*args, **kwargs).arguments))

        made: Any = call
        made.__signature__ = signature.replace(return_annotation=function.__annotations__.get("return"))
        return cast("Callable[P, T]", made)

    return decorate


def spelling_out(*requests: type[Request]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: the signature names the fields of these requests in place of `**options`.

    A field that not all of them have, or that has another default in each, shows None: the one of the stage counts.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        found = inspect.signature(function)
        own = [each for each in found.parameters.values() if each.kind is not each.VAR_KEYWORD]
        fields: dict[str, list[inspect.Parameter]] = {}
        for request in requests:
            for name, parameter in request.signature().parameters.items():
                if name not in found.parameters:
                    fields.setdefault(name, []).append(parameter)
        for several in fields.values():
            same = len(several) == len(requests) and all(each.default == several[0].default for each in several)
            default = several[0].default if same and several[0].default is not inspect.Parameter.empty else None
            own.append(several[0].replace(kind=inspect.Parameter.KEYWORD_ONLY, default=default))
        made: Any = function
        made.__signature__ = found.replace(parameters=own)
        return function

    return decorate


def bare_type(annotation: Any) -> Any:
    """Return a field's type without what is added to it: None as an alternative, and validators."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
            rest = [each for each in get_args(annotation) if each is not NoneType]
            if len(rest) > 1:
                return annotation
            annotation = rest[0]
        else:
            return annotation


def _kind(field: FieldInfo) -> str:
    """Describe the type and bounds of a field in words."""
    annotation = bare_type(field.annotation)
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if annotation in (int, float):
        return ("a whole number" if annotation is int else "a number") + _span(field)
    if get_origin(annotation) in (tuple, list) and any(isinstance(each, Face) for each in field.metadata):
        single = bare_type(get_args(annotation)[0])
        one = "a whole number" if single is int else "a path" if single is Path else "a text"
        return f"{one}, or a list of them"
    if get_origin(annotation) in (Union, UnionType):
        forms = [each.metavar for each in field.metadata if isinstance(each, Face)]
        return "a path" if Path in get_args(annotation) else (forms or [""])[0] or "one of several forms"
    words = {
        datetime: "a date, e.g. 2026-11-01",
        bool: "true or false",
        str: "a text",
        Path: "a path",
        dict: "KEY=VALUE",
    }
    return words.get(get_origin(annotation) or annotation, "a list of names")


def bounds_of(field: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a field: ge, gt, le, lt."""
    return {key: getattr(each, key) for each in field.metadata for key in _BOUNDS if hasattr(each, key)}


def _span(field: FieldInfo) -> str:
    bounds = bounds_of(field)
    if bounds.keys() == {"ge", "le"}:
        return f" from {bounds['ge']} to {bounds['le']}"
    return " and".join(f" {word} {bounds[key]}" for key, word in _BOUNDS.items() if key in bounds)
