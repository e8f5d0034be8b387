"""The registry of everything that can be added: models, methods, benchmarks, scorers, search providers.

An entry registers itself by decorator. The modules of one kind live in one package and are imported on first use;
third parties add theirs through entry points of the group `evenhand.<kind>s` (e.g. `evenhand.search_providers`).
A user can also name a file: `./mine.py`, or `./mine.py:NAME` if it registers several entries of a kind.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar, cast

from evenhand.core.errors import UsageError, check_names
from evenhand.core.events import held

T = TypeVar("T")
S = TypeVar("S")
Fault = Callable[[Any], str | None]
"""What is wrong with an entry to be registered, as a sentence; None if nothing is."""

_files: dict[Path, ModuleType] = {}
_contents: dict[bytes, tuple[ModuleType, bool]] = {}
"""What was loaded by its content, and whether it was the copy that a run has kept."""
_loading: list[Path] = []
_kept: ContextVar[Mapping[str, Path]] = ContextVar("kept", default=MappingProxyType({}))
_refused: ContextVar[str] = ContextVar("refused", default="")


class Registry(Generic[T]):
    """Name → entry of one kind; the built-in entries are the modules of `package`, and modules of other rooms."""

    def __init__(self, kind: str, package: str, fault: Fault = lambda _thing: None, others: Sequence[str] = ()) -> None:
        self.kind = kind
        self.package = package
        self.others = others
        self._fault = fault
        self._of_file: dict[Path, list[str]] = {}
        self._things: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[S], S]:
        """Return a decorator that adds an entry under `name`; a name can be used only once.

        A class that sets no `name` of its own gets this one.
        """

        def add(thing: S) -> S:
            if name in self._things:
                raise UsageError(f"The {self.kind} {name!r} is registered already; choose another name.")
            if inspect.isclass(thing) and "name" not in vars(thing):
                cast(Any, thing).name = name
            self._check(name, thing)
            self._things[name] = cast(T, thing)
            if _loading and _is_executed(_loading[-1]):
                self._of_file.setdefault(_loading[-1], []).append(name)
            return thing

        return add

    def _check(self, name: str, thing: object) -> None:
        if fault := self._fault(thing):
            raise UsageError(f"{place_of(thing)}the {self.kind} {name!r} {fault}")

    def get(self, name: str) -> T:
        """Return the entry `name`; the module of that name is tried before all others are imported."""
        if is_file(name):
            return self._from_file(name)
        if name not in self._things and name.isidentifier() and find_spec(f"{self.package}.{name}"):
            importlib.import_module(f"{self.package}.{name}")
        for module in self.others if name not in self._things else ():
            importlib.import_module(module)
        if name not in self._things:
            self._import_all()
        check_names(self.kind, self._things, name)
        return self._things[name]

    def _from_file(self, name: str) -> T:
        file, _, chosen = name.partition(":")
        names = self._of_file.get(Path(load_file(file).__file__ or ""), [])
        check_names(f"{self.kind} in {file}", names, *filter(None, [chosen]))
        if not names:
            raise UsageError(f"{file} registers no {self.kind}; see docs/extending.md.")
        if not chosen and len(names) > 1:
            raise UsageError(
                f"{file} registers several {self.kind}s; write {' or '.join(f'{file}:{n}' for n in names)}."
            )
        return self._things[chosen or names[0]]

    def names(self) -> list[str]:
        self._import_all()
        return sorted(self._things)

    def _import_all(self) -> None:
        if self._complete:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
            importlib.import_module(module.name)
        for module in self.others:
            importlib.import_module(module)
        for point in entry_points(group=f"evenhand.{self.kind.replace(' ', '_')}s"):
            if point.name in self._things:
                continue
            try:
                thing = point.load()
                # A decorator in the loaded module has registered it.
                if point.name not in self._things:
                    self._check(point.name, thing)
                    self._things[point.name] = thing
            except Exception as error:
                # A broken third-party package must not break Evenhand.
                warnings.warn(f"The {self.kind} {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
        self._complete = True


def is_file(name: str) -> bool:
    """Whether a name is that of a Python file, with or without the name of a thing in it."""
    return name.partition(":")[0].endswith(".py")


def files_kept(places: Mapping[str, Path]) -> held[Mapping[str, Path]]:
    """Names of files stand for copies here, and in tasks that are begun here: those that a stored run has kept."""
    return held(_kept, {**_kept.get(), **places})


def place_of_file(name: str) -> Path:
    """The file that a name refers to, with or without the name of an entry in it."""
    file = name.partition(":")[0]
    return _kept.get().get(file, Path(file)).resolve()


def name_in_file(name: str, decorator: str) -> str:
    """The name of a thing for people: of one in a file, the name in its decorator, or that of the file.

    The file is read and not run, since a stored run may be a stranger's.
    """
    if not is_file(name):
        return name
    file, _, chosen = name.partition(":")
    try:
        found = chosen or _decorated(place_of_file(file).read_text(encoding="utf-8"), decorator)
    except (OSError, ValueError, SyntaxError):  # e.g. the run was copied here without the file
        found = None
    return found or Path(file).stem


@lru_cache(maxsize=64)
def _decorated(source: str, decorator: str) -> str | None:
    """The first text given to a decorator of this name."""
    for node in ast.walk(ast.parse(source)):
        for each in getattr(node, "decorator_list", ()):
            match each:
                case ast.Call(
                    func=ast.Name(id=used) | ast.Attribute(attr=used), args=[ast.Constant(value=str(found)), *_]
                ) if used == decorator:
                    return found
                case _:
                    pass
    return None


def code_refused(why: str) -> held[str]:
    """No code is loaded here that is not loaded yet, whatever names it; `why` says so to the user."""
    return held(_refused, why)


def check_code() -> None:
    """Refuse to load code where none may be loaded."""
    if why := _refused.get():
        raise UsageError(why)


def loaded_file(file: str) -> ModuleType | None:
    """The module in a file, if it was loaded before; nothing is executed."""
    path, is_copy = place_of_file(file), file in _kept.get()
    if path in _files:
        return _files[path]
    if path.is_file() and (same := _contents.get(path.read_bytes())) is not None and (is_copy or same[1]):
        return same[0]  # the copy that a run kept and its original cannot both register their names
    return None


def _is_executed(file: Path) -> bool:
    """Whether this is called while the file is executed, and not a module that it imports."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == str(file)


def load_file(file: str) -> ModuleType:
    """The module in a file that the user names; it is executed once."""
    if (known := loaded_file(file)) is not None:
        return known
    check_code()
    path, is_copy = place_of_file(file), file in _kept.get()
    name = f"evenhand_file_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    spec = spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"There is no file {file}.")
    module = module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{file}, line {_line_in(path, error)}: {type(error).__name__}: {error}") from error
    finally:
        _loading.pop()
    _files[path] = module
    _contents[path.read_bytes()] = module, is_copy
    return module


def file_hash(name: str) -> str | None:
    """The hash of the file that a name refers to; None for other names."""
    path = place_of_file(name)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if is_file(name) and path.is_file() else None


def _line_in(path: Path, error: Exception) -> int:
    """The last line of the file that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return (lines[-1] if lines else None) or 1


def fault_in_files(error: Exception) -> str:
    """`FILE, line N, in NAME: KeyError: 'x'` of an error of code in a file that the user named; else empty."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename) in _files:
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {type(error).__name__}: {error}"
    return ""


def place_of(thing: Any) -> str:
    """`FILE, line N: ` of a function or class, or of the function that a method or an evaluator is."""
    source = getattr(thing, "run", None) or getattr(thing, "evaluate", None) or thing
    source = thing if inspect.isclass(thing) else source
    try:
        return f"{inspect.getsourcefile(source)}, line {inspect.getsourcelines(source)[1]}: "
    except (OSError, TypeError):
        return ""


def signature_fault(function: Callable[..., Any], *names: str) -> str | None:
    """What is wrong with a function that should be async and take these arguments."""
    expected = f"must be written `async def {getattr(function, '__name__', 'run')}({', '.join(names)})`."
    if not inspect.iscoroutinefunction(function):
        return expected
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        return f"{expected[:-1]}: {error}."
    return None


def class_fault(thing: Any, base: type, *attributes: str) -> str | None:
    """What is missing in a class that should be a whole subclass of `base`."""
    if not inspect.isclass(thing) or not issubclass(thing, base):
        return f"must be a subclass of evenhand.{base.__name__}."
    missing = [name for name in attributes if not hasattr(thing, name)]
    missing += [f"{name}()" for name in sorted(getattr(thing, "__abstractmethods__", ()))]
    return f"lacks {', '.join(missing)}." if missing else None
