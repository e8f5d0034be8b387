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

import difflib
from collections.abc import Iterable
from pathlib import Path


class EvenhandError(Exception):
    """The root of all errors that Evenhand raises on purpose."""

    exit_code = 2
    """Of the command that it ends; 4 if samples were run and none of them could be measured."""


class UsageError(EvenhandError):
    """The request cannot be carried out; the message says what to do instead."""


class UnknownNameError(UsageError):
    """A name is not registered; the message suggests the closest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}."
        super().__init__(f"There is no {kind} named {name!r}; {hint}")


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed: pip install 'evenhand[{extra}]'")


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


class EndpointError(ModelError):
    """The endpoint cannot be reached or rejects the request; `permanent` if a retry cannot help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class BadResponseError(ModelError):
    """The endpoint answered with something that is not a completion."""
