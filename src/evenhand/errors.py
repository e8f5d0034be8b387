"""Everything that can go wrong, as one tree; each message says what to do next.

EvenhandError
├── UsageError            the user asked for something impossible: one sentence, exit code 2
│   ├── UnknownNameError  a name that no registry knows (with suggestions)
│   ├── MissingExtraError an optional package is not installed (with the pip line)
│   ├── DataError         a data file is missing, unreadable or wrong (with file and line)
│   └── PlanError         a plan, a run directory or a combination that does not fit together
├── StoreError            the run directory cannot be written (a full disk, a lost mount): exit code 2, nothing is lost
├── BudgetExhausted       the budget is used up: the run stops cleanly and can be resumed
├── SearchError           a search failed or brought nothing usable: its user goes on without evidence, and says so
└── ModelError            one model call failed for good
    ├── EndpointError     the endpoint is not reachable, not an endpoint, or refuses the request
    └── BadResponseError  the endpoint answered, but not with a usable completion
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class EvenhandError(Exception):
    """The root of all errors that Evenhand raises on purpose."""


class UsageError(EvenhandError):
    """What was asked for cannot be done; the message says what can."""


class UnknownNameError(UsageError):
    """A name that is not registered, with the nearest ones that are."""

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
    """A data file is missing or wrong."""

    def __init__(self, message: str, *, file: Path | str | None = None, line: int | None = None) -> None:
        where = f"{file}, line {line}: " if file and line else f"{file}: " if file else ""
        super().__init__(where + message)


class PlanError(UsageError):
    """Parts of a plan, or a plan and a run directory, do not fit together."""


class StoreError(EvenhandError):
    """The run's store cannot be written; what was committed before is safe."""


class BudgetExhausted(EvenhandError):  # noqa: N818 - a normal end, not a fault
    """The next call would exceed the budget."""


class SearchError(EvenhandError):
    """A search failed for good, after its retries; methods go on without evidence."""


class ModelError(EvenhandError):
    """A model call failed for good, after its retries."""


class EndpointError(ModelError):
    """The endpoint cannot be reached or refuses the request; `permanent` when trying again cannot help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class BadResponseError(ModelError):
    """The endpoint answered with something that is not a completion."""
