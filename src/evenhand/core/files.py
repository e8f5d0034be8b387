"""Files: atomic writes, readers of JSON, JSON Lines, YAML and TOML, locks, scratch folders and the cache folder.

Nothing else renames a draft, locks a file or makes a temporary folder, so that all files are complete or absent.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import contextlib
import errno
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from functools import partial
from importlib.resources.abc import Traversable
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import orjson
from pydantic import BeforeValidator, StringConstraints, ValidationError

from evenhand.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

LONGEST_LINE = 256 << 20
"""Most bytes of a line; otherwise a compressed file of a few kilobytes could fill the memory."""
PARTIAL = ".partial"
"""The ending of an unfinished file or folder; its name begins with a dot."""
_CHUNK = 1 << 20
_LOCK_SECONDS = 0.2
_MODE = 0o666
_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)


def cache_folder() -> Path:
    """Return EVENHAND_CACHE, XDG_CACHE_HOME/evenhand or ~/.cache/evenhand; the folder may not exist yet."""
    named = os.environ.get("EVENHAND_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "evenhand"


def file_of(folder: str, spec: str) -> Path:
    """Return where what was measured of a model is stored, in a folder of the cache."""
    readable = re.sub(r"[^\w.-]+", "-", spec).strip("-.")[-60:]
    return cache_folder() / folder / f"{readable}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}.json"


def state_folder() -> Path:
    """Return XDG_STATE_HOME/evenhand or ~/.local/state/evenhand; the folder may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".local" / "state") / "evenhand"


def machine_key(*, make: bool) -> bytes | None:
    """Return this user's secret on this machine; None if it does not exist and cannot or must not be made."""
    file = state_folder() / "key"
    with contextlib.suppress(OSError):
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            unfinished = _unfinished(file)
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_bytes(32))
                with contextlib.suppress(FileExistsError):  # another process was first, and its key is the one
                    os.link(unfinished, file)
            finally:
                os.close(handle)
                unfinished.unlink()
        return file.read_bytes() or None
    return None


# Writing


@contextlib.contextmanager
def draft(path: Path, *, mode: int = _MODE, durable: bool = False, kept: Path | None = None) -> Generator[Path]:
    """Yield an empty file beside `path` that replaces it if the block succeeds, and is deleted otherwise.

    Args:
        mode: The permissions of the file, less the umask, e.g. 0o600 for secrets.
        durable: Wait until the content is on the disk, so that a power cut cannot lose it.
        kept: The draft's own name; a draft with one stays if the block fails, so that the work can go on from it.
    """
    unfinished = kept or _unfinished(path)
    if kept is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield unfinished
        if durable:
            _sync(unfinished)
        unfinished.replace(path)
        if durable:
            _sync(path.parent)
    finally:
        if kept is None:
            unfinished.unlink(missing_ok=True)


def check_new_folder(path: Path) -> None:
    """Raise UsageError if there is a file, or a folder that is not empty; nothing is overwritten."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; name a new folder with --out.")
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(f"The folder {path} is not empty, and nothing is overwritten; name a new one with --out.")


@contextlib.contextmanager
def draft_folder(path: Path, *, durable: bool = False) -> Generator[Path]:
    """Yield a new folder beside `path` that becomes it if the block succeeds, and is deleted otherwise.

    A folder that is there already is replaced; a caller who must not lose one refuses it before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    unfinished.mkdir()
    try:
        yield unfinished
        if durable:
            for each in unfinished.rglob("*"):
                _sync(each)
        if path.is_dir():
            shutil.rmtree(path)
        unfinished.rename(path)
        if durable:
            _sync(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files by their paths in it, complete or not at all."""
    with draft_folder(path) as folder:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def write_bytes(path: Path, content: bytes, *, mode: int = _MODE, durable: bool = False) -> None:
    """Write a file, complete or not at all."""
    with draft(path, mode=mode, durable=durable) as unfinished:
        unfinished.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a file as UTF-8, complete or not at all; a lone surrogate becomes a question mark."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON with a final newline, complete or not at all."""
    write_bytes(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines, complete or not at all."""
    with draft(path) as unfinished, unfinished.open("wb") as file:
        file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def append_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to JSON Lines in one write; they begin on a line of their own, also after a line that was cut short."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def _unfinished(path: Path) -> Path:
    """Return a name of its own for every writer, in any process."""
    return path.with_name(f".{path.name[:180]}.{secrets.token_hex(4)}{PARTIAL}")


def _sync(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Reading


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file, plain or gzipped, with line ends; errors name the line."""
    number = 0
    try:
        with _opened(path) as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise DataError(f"the line has more than {LONGEST_LINE:,} bytes.", file=path, line=number)
                yield number, line
    except _DAMAGE as error:
        raise _damaged(path, error, line=number + 1) from error
    except OSError as error:
        raise _unreadable(path, error, line=number or None) from error


def read_bytes(path: Path, hint: str = "") -> bytes:
    """Return the content of a file, plain or gzipped; the `hint` follows what is said of one that cannot be read."""
    return b"".join(_chunks(path, hint))


def read_text(path: Path, hint: str = "", newline: str | None = None) -> str:
    """Return the content of a file as text, without a byte order mark; `newline` as in `open`."""
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, hint)), "utf-8-sig", newline=newline).read()
    except UnicodeDecodeError as error:
        raise DataError(f"cannot be read: it is not UTF-8 ({error.reason}). {hint}".strip(), file=path) from error


def read_json(path: Path, hint: str = "") -> Any:
    try:
        return orjson.loads(read_bytes(path, hint))
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}). {hint}".strip(), file=path, line=error.lineno) from error


def read_yaml(file: Traversable, hint: str = "") -> Any:
    try:
        return parse_yaml(file.read_bytes(), file, hint)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}. {hint}".strip(), file=str(file)) from error


def parse_yaml(content: bytes, file: Traversable, hint: str = "") -> Any:
    import yaml

    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        """Refuses a key that is there twice, of which YAML keeps the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set[tuple[str, str]]()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
                seen.add((key.tag, str(key.value)))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content.decode("utf-8"), Loader=Loader)  # noqa: S506 - a safe loader
    except UnicodeDecodeError as error:
        raise DataError(f"cannot be read: it is not UTF-8 ({error.reason}). {hint}".strip(), file=str(file)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join(str(getattr(error, "problem", None) or "unreadable").split())
        said = f"not valid YAML ({problem}). {hint}".strip()
        raise DataError(said, file=str(file), line=None if mark is None else mark.line + 1) from error


@contextlib.contextmanager
def checked(what: str, file: Path | str, hint: str = "") -> Generator[None]:
    """Raise DataError, which names the field, if pydantic refuses in this block what should be `what`."""
    try:
        yield
    except ValidationError as error:
        raise DataError(f"this is not {what}: {in_words(error.errors()[0])}. {hint}".strip(), file=file) from error


def in_words(fault: ErrorDetails) -> str:
    """What pydantic found, without a full stop: `topics, entry 1: the field question is missing`."""
    *inside, last = path_of(fault) or ("the file",)
    if fault["type"] == "missing":
        said = f"{place_of([last]) if isinstance(last, int) else f'the field {last}'} is missing"
        return f"{place_of(inside)}: {said}" if inside else said
    ours = _FAULTS.get(fault["type"], "").format_map(fault.get("ctx", {}))
    said = ours or fault["msg"].removeprefix("Value error, ").replace("Input should", "it must", 1)
    return f"{place_of([*inside, last])}: {said[:1].lower()}{said[1:]}"


def path_of(fault: ErrorDetails) -> tuple[int | str, ...]:
    """The names and numbers that lead to a fault; of a wrong name in a mapping, that name."""
    *inside, last = fault["loc"] or ("",)
    return (*inside[:-1], str(inside[-1])) if last == "[key]" else fault["loc"]


def place_of(path: Iterable[int | str]) -> str:
    """`("topics", 0, "question")` → `topics, entry 1, question`: readers count from 1."""
    return ", ".join(
        ", ".join(f"entry {int(each) + 1}" for each in parts) if kind is int else ".".join(map(str, parts))
        for kind, parts in groupby(path, type)
    )


_FAULTS = {
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type"), "it must be a mapping (name: value)"),
    **dict.fromkeys(("list_type", "tuple_type"), "it must be a list"),
    **dict.fromkeys(("string_type", "string_too_short"), "there is no text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "it must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    "extra_forbidden": "there is no such field",
    "too_short": "it needs at least {min_length} (now {actual_length})",
}
"""What pydantic calls a fault → the same in words for those who write files."""


def _as_id(name: object) -> object:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is not a valid id; use lower-case letters, digits and underscores")
    return name


Id = Annotated[str, BeforeValidator(_as_id)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A text in a file that is `checked`; it has to say something."""


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Return the TOML value in a file, and its text."""
    text = read_text(path)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)", str(error))
        reason = str(error).replace(place[0], "") if place else str(error)
        line = int(place[1]) if place else None
        raise DataError(f"not valid TOML ({reason}).", file=path, line=line) from error


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON Lines, plain or gzipped, with their line numbers; empty lines are skipped."""
    for number, line in lines(path):
        if content := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip():
            yield number, json_object(content, path, number)


def json_object(line: bytes, path: Path | str, number: int | None) -> dict[str, Any]:
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error.msg}, column {error.colno}).", file=path, line=number) from error
    if not isinstance(row, dict):
        raise DataError("not a JSON object; every line must be one.", file=path, line=number)
    return cast("dict[str, Any]", row)


def seekable(path: Path) -> IO[bytes]:
    """Open a file for reading at any offset; a compressed file is unpacked into a temporary one."""
    if path.suffix != ".gz":
        return path.open("rb")
    plain = scratch_file()
    plain.writelines(_chunks(path))
    return plain


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_hash(content: Any) -> str:
    """Return the SHA-256 of values and dataclasses, independent of how their file is formatted."""
    return hashlib.sha256(orjson.dumps(content)).hexdigest()


def content_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, without the compression of a .gz file."""
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, hint: str = "") -> Iterator[bytes]:
    try:
        with _opened(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise _unreadable(path, error, hint=hint) from error


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _unreadable(path: Path, error: OSError, line: int | None = None, hint: str = "") -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"There is no such file. {hint}".strip(), file=path)
    return DataError(f"cannot be read: {error.strerror}. {hint}".strip(), file=path, line=line)


def _damaged(path: Path, error: Exception, line: int | None = None) -> DataError:
    message = f"the compressed file is cut off or damaged here ({error}); download or copy it again."
    return DataError(message, file=path, line=line)


# Locks


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a file, which is made if it is missing; the system releases it if the process dies.

    A folder that is made for it is for its user only: it is that of a run.

    Raises:
        BlockingIOError: Another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        yield
        return
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have deleted the file; its lock is then of no use.
            if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path))
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                raise
        yield
    finally:
        os.close(handle)


@contextlib.asynccontextmanager
async def waiting_lock(path: Path) -> AsyncGenerator[None]:
    """Hold the lock of a file, as soon as no other process holds it."""
    while True:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(path))
            except BlockingIOError:
                await asyncio.sleep(_LOCK_SECONDS)
                continue
            yield
            return


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    try:
        import fcntl

        handle = os.open(path, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


# Scratch


@contextlib.contextmanager
def scratch(beside: Path | None = None) -> Generator[Path]:
    """Yield a temporary folder that is deleted afterwards.

    Args:
        beside: Where it lies, e.g. so that its files can be renamed into place; None: the system's temporary folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="evenhand-", dir=beside))
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remove)  # for a process that ends while the folder is in use
    try:
        yield folder
    finally:
        remove()
        atexit.unregister(remove)


def scratch_file() -> IO[bytes]:
    """Open a temporary file without a name, which is gone when it is closed."""
    return tempfile.TemporaryFile()
