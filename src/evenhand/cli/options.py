"""Makes the options of a command out of a declared request, and hands the request to the command's function.

    class ListRequest(OutputFields):
        folder: Path = argument("Where the runs are.", default=Path("runs"))
        limit: int | None = option(None, "At most this many.", short="-n", ge=1, common=True)

    @command(ListRequest)
    def runs(request: ListRequest) -> int:
        "List the runs in FOLDER. …"

The types say what click does: a bool is a flag (with --no-NAME if it may be None or is True), a Literal a choice, a
tuple or list an option that is repeated, a number has its range, `read=` of a field turns its texts into its value.
Only what was given is set: `request.model_fields_set`, `request.given()`. Requests that extend `OutputFields` get -v,
--log, --quiet and --json. `goes_on` makes a command resumable: see `cli/resume.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, cast, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo
from typing_extensions import TypeVar

from evenhand.cli.groups import Command
from evenhand.cli.output import OutputFields, with_output
from evenhand.core.errors import UsageError
from evenhand.core.options import Request, bare_type, bounds_of

R = TypeVar("R", bound=Request)
_DECLARATION = "__declaration__"
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Declaration(Generic[R]):
    """What a command is made of."""

    request: type[R]
    body: Callable[[R], Any]
    goes_on: Callable[[R, Any], int] | None
    """Ends a run that the command began, of the request that is stored with it and the `PlannedRun`."""


def declared(
    request: type[R], *, goes_on: Callable[[R, Any], int] | None = None
) -> Callable[[Callable[[R], Any]], Callable[..., Any]]:
    """Decorator, under click's: the options are the fields of the request, which the function gets."""

    def decorate(function: Callable[[R], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def body(**values: Any) -> Any:
            made = _request(request, values)
            context = click.get_current_context()
            if isinstance(context.command, click.Group) and context.invoked_subcommand is not None:
                return None
            return with_output(made, function) if isinstance(made, OutputFields) else function(made)

        wrapped: Any = body
        wrapped.__click_params__ = list(reversed(parameters(request)))
        setattr(wrapped, _DECLARATION, Declaration(request, function, goes_on))
        return wrapped

    return decorate


def command(
    request: type[R],
    group: click.Group | None = None,
    name: str | None = None,
    *,
    goes_on: Callable[[R, Any], int] | None = None,
    **how: Any,
) -> Callable[[Callable[[R], Any]], click.Command]:
    """Decorator: a command, of a group if one is named, whose options are the fields of the request."""

    def decorate(function: Callable[[R], Any]) -> click.Command:
        made = click.command(name, **{"cls": Command, **how})(declared(request, goes_on=goes_on)(function))
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def declaration_of(command: click.Command) -> Declaration[Any] | None:
    """Return what a command is made of; None if it takes nothing."""
    return getattr(command.callback, _DECLARATION, None)


def parameters(request: type[Request]) -> list[click.Parameter]:
    return [_parameter(request, name, field) for name, field in request.offered().items()]


def _request(kind: type[R], values: dict[str, Any]) -> R:
    """Return the request with what was given on the command line or by environment variables."""
    context = click.get_current_context()
    given: dict[str, Any] = {}
    for name, value in values.items():
        if context.get_parameter_source(name) in _GIVEN:
            read = kind.face(name).read
            given[name] = value if read is None else read(value)
    return kind.parse(f"command {context.info_name}", given)


def _parameter(request: type[Request], name: str, field: FieldInfo) -> click.Parameter:
    face, kind = request.face(name), bare_type(field.annotation)
    several = get_origin(kind) in (tuple, list) or (face.read is not None and get_origin(kind) is not None)
    single = bare_type(get_args(kind)[0]) if get_origin(kind) in (tuple, list) else kind
    shared: dict[str, Any] = {
        "type": click.Choice(face.choices) if face.choices else _type(single, field),
        "metavar": face.metavar or None,
    }
    if face.is_argument:
        required = field.is_required()
        return click.Argument([name], nargs=-1 if several else 1, required=required, **shared)
    shared |= {"help": field.description, "required": field.is_required(), "hidden": face.hidden}
    shared |= {"envvar": face.env or None}
    flags = [face.flag, *([face.short] if face.short else [])]
    if kind is bool:
        both = field.default is not False
        flags[0] = f"{face.flag}/--no-{face.flag.removeprefix('--')}" if both else face.flag
        return DeclaredOption([*flags, name], request=request, is_flag=True, **{**shared, "type": bool})
    if face.flag == "--model":
        shared["callback"] = _no_method
    default = field.get_default(call_default_factory=True)
    if default not in (None, (), [], {}, "") and not field.is_required() and "default" not in (field.description or ""):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else str(default)  # pyright: ignore
        shared["help"] = f"{(field.description or '').removesuffix('.')} (default {shown})."
    return DeclaredOption([*flags, name], request=request, multiple=several, **shared)


class DeclaredOption(click.Option):
    """An option that knows its request."""

    def __init__(self, *args: Any, request: type[Request], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = request.owner(self.name or "").heading()
        self.common = request.face(self.name or "").common or request.owner(self.name or "") is request


def _type(kind: Any, field: FieldInfo) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice([str(each) for each in get_args(kind)])
    if kind in (int, float):
        bounds = bounds_of(field)
        if not bounds:
            return kind
        least, most = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
        made = (click.IntRange if kind is int else click.FloatRange)(
            least, most, min_open="gt" in bounds, max_open="lt" in bounds
        )
        made.name = "integer" if kind is int else "float"  # not "integer range", in messages and help
        return made
    return click.Path(path_type=Path) if kind is Path else str


def _no_method(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Refuse the name of a method where a model is meant: -m was the letter of --method."""
    for text in value if isinstance(value, tuple) else (value,):  # pyright: ignore[reportUnknownVariableType]
        if isinstance(text, str) and "/" not in text:
            from evenhand.core.specs import spec_parts
            from evenhand.methods.base import METHODS

            name = spec_parts(text)[0]
            if name in METHODS.names():
                raise UsageError(f"{name} is a method; -m and --model name a model: pass --method {text}.")
    return cast(Any, value)
