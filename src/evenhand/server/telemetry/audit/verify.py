"""Verification of an audit file with all its rotated files, as one chain."""

from __future__ import annotations

import heapq
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson

from evenhand.core.errors import UsageError
from evenhand.server.telemetry.audit.file import (
    NOTE,
    REQUEST,
    START,
    UNCHAINED,
    VERSION,
    Hasher,
    Link,
    open_to_read,
    rotated_files,
    state_of,
    version_of,
)

MOST_PROBLEMS = 20
"""How many problems are described; the others are only counted."""
_NOT_OURS = (ValueError, TypeError, KeyError, AttributeError)
_ROTATED = re.compile(r"(?<=.)-[0-9]+T[0-9.]+$")


@dataclass(slots=True)
class ChainState:
    """What the verification of one chain found."""

    problems: list[str] = field(default_factory=list[str])
    """What is wrong, first row first; empty if the chain is intact."""
    more_problems: int = 0
    actions: Counter[str] = field(default_factory=Counter[str])
    """How many requests ended with each action."""
    files: int = 0
    unchained: list[str] = field(default_factory=list[str])
    """Files of an older version, without a chain: they can be read, but changes cannot be noticed."""
    last: Link = Link()
    deleted: int = 0
    """The last row that was deleted by age."""
    crashes: int = 0
    lost: int = 0
    """Rows that the server recorded as lost."""
    unproved: str = ""
    """The file before the first one, if the newest file of the chain is not there to say what became of it."""
    signed: bool = False
    expected_seen: bool = False

    def problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)
        else:
            self.more_problems += 1


class _Row(NamedTuple):
    number: int
    table: str
    values: tuple[Any, ...]
    hash: bytes


def newest_file(file: Path) -> Path:
    """Return the file that the server writes to, for a rotated file of its chain; otherwise the file itself."""
    newest = file.with_stem(_ROTATED.sub("", file.stem))
    return newest if newest.is_file() else file


def verify_audit(file: Path, keys: Sequence[bytes] = (), expected: bytes = b"") -> ChainState:
    """Check every row of a file and of its rotated files.

    With keys, the newest file must be signed; one row must have the `expected` hash, if any.
    """
    hashers = {hasher.key_id: hasher for hasher in map(Hasher, keys)}
    state = ChainState()
    with ExitStack() as stack:
        parts: list[tuple[int, Path, sqlite3.Connection]] = []
        for path in (file, *rotated_files(file)):
            state.files += 1
            db = stack.enter_context(closing(open_to_read(path)))
            try:
                db.execute("BEGIN")  # one view of the file, even if the server is writing
                if problem := _unreadable(db):
                    state.problem(f"{path.name}: {problem}")
                elif version_of(db) == UNCHAINED:
                    state.unchained.append(path.name)
                    state.actions += Counter(dict(db.execute("SELECT action, count(*) FROM requests GROUP BY action")))
                else:
                    parts.append((_first_number(db), path, db))
            except sqlite3.Error as error:
                state.problem(f"{path.name}: SQLite says: {error}")
        parts.sort(key=lambda part: (part[0], part[1] == file))
        chain = _Chain(state, file, hashers, [db for *_, db in parts])
        for _, path, db in parts:
            try:
                chain.check(path, db, expected)
            except sqlite3.Error as error:
                state.problem(f"{path.name}: SQLite says: {error}")
            except _NOT_OURS:
                state.problem(f"{path.name}: it has values that the server never writes")
    if keys and not state.signed:
        state.problem("it is not signed, although a key is given")
    if expected and not state.expected_seen:
        state.problem(f"no row has the hash {expected.hex()}")
    return state


class _Chain:
    """Follows the chain through its files."""

    def __init__(
        self, state: ChainState, newest: Path, hashers: dict[str, Hasher], files: Sequence[sqlite3.Connection]
    ) -> None:
        self._state, self._hashers = state, hashers
        self._alone = bool(_ROTATED.search(newest.stem))
        self._deletions = {number: body for db in files for number, body in _deletions(db)}
        state.deleted = max(self._deletions, default=0)
        self._end: tuple[str, Link] | None = None
        """Of the file before."""

    def check(self, path: Path, db: sqlite3.Connection, expected: bytes) -> None:
        state = self._state
        hasher = self._hasher(path, state_of(db, "key") or "")
        last: Link | None = None
        before = len(state.problems)
        for row in _rows(db):
            if last is None:
                last = self._beginning(path, row)
            if row.number != last.number + 1:
                state.problem(f"{path.name}: {_span(last.number + 1, row.number - 1)} missing")
            elif last.hash and hasher.row(last.hash, row.table, (row.number, *row.values)) != row.hash:
                state.problem(f"{path.name}: row {row.number:,} was changed")
            last = Link(row.number, row.hash)
            state.expected_seen |= row.hash == expected
            self._count(path, row)
        if last is None:
            state.problem(f"{path.name}: all rows are missing")
            return
        if state_of(db, "head") != hasher.head(last.hash) and len(state.problems) == before:
            state.problem(f"{path.name}: rows after {last.number:,} are missing")
        self._end = path.name, last
        state.last = last
        state.signed = bool(hasher.key_id)

    def _hasher(self, path: Path, key_id: str) -> Hasher:
        if not key_id:
            return Hasher()
        if key_id not in self._hashers:
            which = "another key than the given" if self._hashers else "a key"
            raise UsageError(f"{path.name} is signed with {which}. Name its environment variable with --key-env.")
        return self._hashers[key_id]

    def _beginning(self, path: Path, first: _Row) -> Link:
        """Return the hash that the first row of a file continues from."""
        number = first.number - 1
        opened = _body(first) if first.table == "note" and first.values[1] == "opened" else {}
        deletion = self._deletions.get(number)
        known = Link(number, bytes.fromhex((deletion or opened).get("hash", "")) if number else START)
        if self._end is not None and self._end[1].number == number:
            if self._end[1] != known:
                self._state.problem(f"{path.name} does not continue {self._end[0]}, whose end was changed")
        elif not deletion and (number or self._end):
            if self._end is None and self._alone:
                self._state.unproved = opened.get("file", "")
            elif "file" in opened:
                self._state.problem(f"{path.name}: the file before it, {opened['file']}, is missing")
            else:
                self._state.problem(f"{path.name}: rows before {first.number:,} are missing")
        return known

    def _count(self, path: Path, row: _Row) -> None:
        state = self._state
        try:
            body = _body(row)
        except (orjson.JSONDecodeError, TypeError):
            state.problem(f"{path.name}: row {row.number:,} cannot be read")
            return
        if row.table == "request":
            state.actions[row.values[REQUEST.index("action")]] += 1
        elif row.values[1] == "opened":
            state.crashes += bool(body.get("crashed"))
        elif row.values[1] == "lost":
            state.lost += body["rows"]


def _unreadable(db: sqlite3.Connection) -> str:
    (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        return f"SQLite says: {result}"
    version = version_of(db)
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(requests)")]
    if version not in (UNCHAINED, VERSION):
        return f"its schema has version {version}, and this Evenhand knows {VERSION}"
    if columns != (["number", *REQUEST, "hash"] if version == VERSION else ["number", *REQUEST]):
        return "it has no table of requests as the server writes it"
    return ""


def _rows(db: sqlite3.Connection) -> Iterator[_Row]:
    """Yield requests and notes in the order of their numbers."""

    def read(table: str, kind: str, columns: Sequence[str]) -> Iterator[_Row]:
        for number, *values, hashed in db.execute(
            f"SELECT number, {', '.join(columns)}, hash FROM {table} ORDER BY number"  # noqa: S608
        ):
            yield _Row(number, kind, tuple(values), hashed)

    return heapq.merge(read("requests", "request", REQUEST), read("notes", "note", NOTE), key=lambda row: row.number)


def _first_number(db: sqlite3.Connection) -> int:
    return next((row.number for row in _rows(db)), 0)


def _deletions(db: sqlite3.Connection) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what was deleted by age, by its last number; notes that were changed are reported with their rows."""
    for (body,) in db.execute("SELECT body FROM notes WHERE kind = 'deleted'"):
        with suppress(*_NOT_OURS):
            deletion = orjson.loads(body)
            yield int(deletion["number"]), deletion


def _body(row: _Row) -> dict[str, Any]:
    body = orjson.loads(row.values[-1])
    if not isinstance(body, dict):
        raise TypeError
    return cast(dict[str, Any], body)


def _span(first: int, last: int) -> str:
    return f"row {first:,} is" if first == last else f"rows {first:,} to {last:,} are"
