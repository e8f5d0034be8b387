"""The error tree; each message says what to do next.

EvenhandError
├── UsageError            the request cannot be carried out: one sentence, exit code 2
│   ├── UnknownNameError  a name is not registered (with suggestions)
│   ├── MissingExtraError an optional package is not installed (with the pip command)
│   ├── DataError         a data file is missing, unreadable or invalid (with file and line)
│   └── PlanError         a plan is inconsistent, or does not match its run directory
├── StoreError            the run directory cannot be written (disk full, mount lost): exit code 2, nothing is lost
├── BudgetExhausted       the budget is used up: the run stops cleanly and can be resumed
├── SearchError           a search failed or found nothing usable: methods continue without evidence and record it
└── ModelError            a model call failed after all retries
    ├── EndpointError     the endpoint is unreachable, is no model endpoint, or rejects the request
    └── BadResponseError  the endpoint answered, but not with a usable completion
"""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
from collections.abc import Collection, Generator, Iterable
from pathlib import Path
from typing import Any


class EvenhandError(Exception):
    """The root of all errors that Evenhand raises on purpose; messages name options as flags of the command line."""

    exit_code = 2
    """Of the command that it ends; 4 if samples were run and none of them could be measured."""
    names_arguments = False
    """Whether the message names arguments in place of flags, because Python called."""
    spent: Any = None
    """The `Usage` that the failed call cost, if anything; whoever records it sets it to None."""

    def __str__(self) -> str:
        text = super().__str__()
        return in_python_words(text) if self.names_arguments else text


class UsageError(EvenhandError):
    """The request cannot be carried out; the message says what to do instead."""


class UnknownNameError(UsageError):
    """A name is not registered; the message suggests the closest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}."
        super().__init__(f"There is no {kind} named {name!r}; {hint}")


def check_names(kind: str, known: Collection[str], *names: str) -> None:
    """Raise UnknownNameError for the first name that is not known."""
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"For {what}, install the missing packages: {install_command(extra)}")


class needs_extra:  # noqa: N801 - reads as a statement: `with needs_extra("Excel files", "xlsx"):`
    """An import that fails in this block says which packages to install."""

    def __init__(self, what: str, extra: str) -> None:
        self._missing = MissingExtraError(what, extra)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, ImportError):
            raise self._missing from error


class DataError(UsageError):
    """A data file is missing, unreadable or invalid."""

    def __init__(self, message: str, *, file: Path | str | None = None, line: int | None = None) -> None:
        where = f"{file}, line {line}: " if file and line else f"{file}: " if file else ""
        super().__init__(where + message)


class PlanError(UsageError):
    """A plan is inconsistent, or does not match its run directory."""


class StoreError(EvenhandError):
    """The store of a run cannot be written; everything committed before is safe."""


class BudgetExhausted(EvenhandError):  # noqa: N818 - a normal end, not a fault
    """The next call would exceed the budget."""


class SearchError(EvenhandError):
    """A search failed after all retries; methods continue without evidence."""


class ModelError(EvenhandError):
    """A model call failed after all retries."""

    request_at_fault = False
    """Whether the endpoint rejects this very request, so that another one would, too."""
    permanent = False
    """Whether every other call would fail as well."""
    was_read = False
    """Whether the endpoint has read the prompt: it took too long, or sent a reply that cannot be used."""


class EndpointError(ModelError):
    """The endpoint cannot be reached or rejects the request; `permanent` if a retry cannot help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class BadResponseError(ModelError):
    """The endpoint answered with something that is not a completion."""

    was_read = True


@contextlib.contextmanager
def python_words() -> Generator[None]:
    """Errors that leave this block name arguments in place of flags."""
    try:
        yield
    except EvenhandError as error:
        error.names_arguments = True
        raise


_COMMAND = re.compile(r"(`[^`]*`)")
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?:[ =](?=[A-Z]{2}|[\w.-]+[/=]))?")
_ARGUMENTS = {
    "resume": "resume=True",
    "retry-failed": "retry_failed=True",
    "skip-damaged": "skip_damaged=True",
    "no-cache": "cache=None",
    "price": "prices",
    "set": "options",
    "model-option": "extra",
}
"""Flags whose argument is not called the same."""


def in_python_words(text: str) -> str:
    """Replace flags by the names of arguments, outside of whole commands, which are in backticks."""

    def argument(match: re.Match[str]) -> str:
        name = _ARGUMENTS.get(match.group(1), match.group(1).replace("-", "_"))
        return f"{name}=" if match.group().endswith((" ", "=")) else name

    parts = _COMMAND.split(text)
    return "".join(part if part.startswith("`") else _FLAG.sub(argument, part) for part in parts)


def install_command(extra: str) -> str:
    """The command that adds an extra to this very installation."""
    from urllib.parse import unquote, urlsplit

    wanted, place = f"evenhand[{extra}]", Path(sys.prefix).parts
    if "pipx" in place:
        return f"pipx install --force '{wanted}'"
    if "uv" in place and "tools" in place:
        return f"uv tool install --force '{wanted}'"
    source, installer = _installed_from()
    pip = "uv pip" if installer == "uv" else "pip"
    url = urlsplit(str(source.get("url", "")))
    if url.scheme == "file" and Path(unquote(url.path)).exists():
        editable = "-e " if source.get("dir_info", {}).get("editable") else ""
        return f"{pip} install {editable}'{unquote(url.path)}[{extra}]'"
    if vcs := source.get("vcs_info", {}).get("vcs"):
        return f"{pip} install '{wanted} @ {vcs}+{source['url']}'"
    return f"{pip} install '{wanted}'"


def _installed_from() -> tuple[dict[str, Any], str]:
    """Where the package was installed from (PEP 610), and by which installer."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    checkout = Path(__file__).parents[3]
    here = {"url": checkout.as_uri(), "dir_info": {"editable": True}} if (checkout / "pyproject.toml").is_file() else {}
    try:
        found = distribution("evenhand")
        source = json.loads(found.read_text("direct_url.json") or "null")
    except (PackageNotFoundError, ValueError):
        return here, ""
    return source or here, (found.read_text("INSTALLER") or "").strip()
