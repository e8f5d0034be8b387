"""The samples of a run in pages, with search and filters, quick for 100,000 of them.

A search index beside the index of runs holds one row per sample: its text in lower case, how every arm ended, whether
arms differ, and how far apart the judges are. It is made in the background, and brought up to date by what was added.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.errors import EvenhandError
from evenhand.core.registry import is_file
from evenhand.core.sqlite import connect, transaction
from evenhand.core.types import Sample
from evenhand.judging.judge import DISAGREED, FAR_APART
from evenhand.panels import votes_in
from evenhand.runs.store import FINAL, Store, json_list
from evenhand.studies.samples import result_text

PAGE = 50
SORTS = {"judges": "judges that disagree first", "arms": "arms that differ first", "plan": "as in the plan"}
_BATCH = 500
_LONGEST = 20_000
"""Characters of a sample that are searched."""
_GLANCE = 400
"""Characters of a sample in a list."""
_END = 60
"""Characters of an answer in a list."""
_SCHEMA = """
CREATE TABLE meta (identity TEXT, outcomes INTEGER, scores INTEGER, n_outcomes INTEGER, n_scores INTEGER);
CREATE TABLE rows (number INTEGER PRIMARY KEY, id TEXT NOT NULL, grp TEXT NOT NULL, glance TEXT NOT NULL,
    text TEXT NOT NULL, statuses TEXT NOT NULL, ends TEXT NOT NULL, differs INTEGER NOT NULL, apart REAL NOT NULL);
CREATE INDEX by_apart ON rows (apart DESC, differs DESC, number);
CREATE INDEX by_differs ON rows (differs DESC, number);
"""
_ORDERS = {"judges": "apart DESC, differs DESC, number", "arms": "differs DESC, number", "plan": "number"}


@dataclass(frozen=True, slots=True)
class End:
    """How one arm ended on a sample."""

    arm: int
    status: str
    answer: str
    """Its beginning."""
    digest: str
    """Of the whole answer."""


@dataclass(frozen=True, slots=True)
class SampleEntry:
    """A sample in a list."""

    number: int
    id: str
    group: str
    glance: str
    ends: tuple[End, ...]
    differs: bool
    apart: float
    """How far apart the judges are, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for."""

    text: str = ""
    group: str = ""
    status: str = ""
    arm: str = ""
    differs: bool = False
    sort: str = "judges"
    page: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether all samples are asked for."""
        return not (self.text or self.group or self.status or self.arm or self.differs)


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of what was found."""

    entries: list[SampleEntry]
    found: int
    groups: list[str]
    judged: bool = False
    """Whether there are judges that disagree."""


# --- the search index ---


def index_file(cache: Path, directory: Path) -> Path:
    return cache / "samples" / f"{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}.sqlite"


def update_index(directory: Path, file: Path) -> int:
    """Bring the search index of a run up to date; return how many samples were read."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with closing(Store(directory, skip_damaged=True)) as store, closing(_opened(file)) as db:
        now = _state(store)
        known = db.execute("SELECT * FROM meta").fetchone()
        changed: Collection[int] | None = None
        if known is not None and known[0] == now[0]:
            if known == now:
                return 0
            changed = _changed(store, known)
        numbers = [number for (number,) in store.select("SELECT number FROM samples ORDER BY number")]
        wanted = [number for number in numbers if changed is None or number in changed]
        with transaction(db):
            if changed is None:
                db.execute("DELETE FROM rows")
            for start in range(0, len(wanted), _BATCH):
                rows = [_row(entry, text) for entry, text in _entries(store, wanted[start : start + _BATCH])]
                db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            db.execute("DELETE FROM meta")
            db.execute("INSERT INTO meta VALUES (?, ?, ?, ?, ?)", now)
        return len(wanted)


def is_ready(directory: Path, file: Path) -> bool:
    """Whether the search index shows the run as it is."""
    if not file.is_file():
        return False
    with closing(Store(directory, skip_damaged=True)) as store, closing(_opened(file)) as db:
        return db.execute("SELECT * FROM meta").fetchone() == _state(store)


def _opened(file: Path) -> sqlite3.Connection:
    db = connect(file, synchronous="OFF", busy=60)
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'by_differs'").fetchone():
        db.executescript(f"DROP TABLE IF EXISTS meta; DROP TABLE IF EXISTS rows; {_SCHEMA}")
    return db


def _state(store: Store) -> tuple[Any, ...]:
    """Return what changes with every result."""
    newest = [
        next(store.select(f"SELECT COALESCE(MAX(rowid), 0), COUNT(*) FROM main.{table}"))  # noqa: S608 - ours
        for table in ("outcomes", "scores")
    ]
    return (str(store.get("identity")), newest[0][0], newest[1][0], newest[0][1], newest[1][1])


def _changed(store: Store, known: tuple[Any, ...]) -> set[int] | None:
    """Return the samples with new results; None if results were taken away since."""
    changed: set[int] = set()
    for table, last, count in (("outcomes", known[1], known[3]), ("scores", known[2], known[4])):
        before = next(store.select(f"SELECT COUNT(*) FROM main.{table} WHERE rowid <= ?", last))[0]  # noqa: S608
        if before != count:
            return None
        changed |= {number for (number,) in store.select(f"SELECT sample FROM main.{table} WHERE rowid > ?", last)}  # noqa: S608
    return changed


def _row(entry: SampleEntry, text: str) -> tuple[Any, ...]:
    statuses = "".join(f"|{end.arm}:{end.status}" for end in entry.ends) + "|"
    ends = orjson.dumps([[end.arm, end.status, end.answer, end.digest] for end in entry.ends]).decode()
    return (entry.number, entry.id, entry.group, entry.glance, text, statuses, ends, entry.differs, entry.apart)


# --- reading from the store ---


def _entries(store: Store, numbers: list[int]) -> Iterator[tuple[SampleEntry, str]]:
    """Yield samples with how all arms ended, and the text to search."""
    key = _group_key(store)
    wanted = json_list(numbers)
    within = "IN (SELECT value FROM json_each(?))"
    ends: dict[int, list[tuple[End, str]]] = {}
    judged: dict[int, float] = {}
    columns = "sample, arm, status, reason, reading, body"
    query = f"SELECT {columns} FROM outcomes WHERE sample {within} ORDER BY sample, arm"  # noqa: S608 - constants of ours
    for number, arm, status, reason, reading, body in store.select(query, wanted):
        outcome = None if body is None else store.unpacked(body, number, arm)
        answer = "" if outcome is None else result_text(outcome["result"])
        digest = hashlib.sha256(answer.encode("utf-8", "replace")).hexdigest()[:16]
        short = answer if len(answer) <= _END else f"{answer[: _END - 1]}…"
        ends.setdefault(number, []).append((End(arm, status, short, digest), f"{answer}\n{reason or ''}"))
        apart = 1.0 if DISAGREED in (reading or "") or _votes_differ(outcome) else 0.0
        judged[number] = max(judged.get(number, 0.0), apart)
    for number, apart in _scorers_apart(store, wanted):
        judged[number] = max(judged.get(number, 0.0), apart)
    samples = f"SELECT number, body FROM samples WHERE number {within} ORDER BY number"  # noqa: S608
    for number, body in store.select(samples, wanted):
        sample = store.decoded_sample(body, number)
        if sample is not None:
            found = ends.get(number, [])
            entry = _entry(number, sample, key, [end for end, _ in found], judged.get(number, 0.0))
            yield entry, _searched(sample, [text for _, text in found])


def _entry(number: int, sample: Sample, key: str, ends: list[End], apart: float) -> SampleEntry:
    glance = f"{sample.context} {sample.prompt}".strip()[:_GLANCE]
    group = str(sample.metadata.get(key, ""))
    differs = len({(end.status, end.digest) for end in ends}) > 1
    return SampleEntry(number, sample.id, group, glance, tuple(ends), differs, apart)


def _searched(sample: Sample, answers: Iterable[str]) -> str:
    parts = (sample.id, sample.context, sample.prompt, *sample.choices, *answers)
    return "\n".join(parts).lower()[:_LONGEST].encode("utf-8", "replace").decode()


def _group_key(store: Store) -> str:
    plan: Mapping[str, Any] = store.get("plan") or {}
    name = str(plan.get("benchmark", ""))
    try:
        return "" if is_file(name) else BENCHMARKS.get(name).group_key
    except EvenhandError:  # not installed here
        return ""


def _votes_differ(outcome: Any) -> bool:
    """Whether the members of a panel end with different votes."""
    votes = None if outcome is None else votes_in(outcome.get("notes") or {})
    return votes is not None and len(set(votes.choices(-1))) > 1


def _scorers_apart(store: Store, wanted: str | None) -> Iterator[tuple[int, float]]:
    """Yield the samples whose final answers got different scores by different scorers."""
    if len(store.get("scorers") or {}) < 2:
        return
    query = (
        "SELECT sample, arm, body FROM scores WHERE iteration = ? AND status = 'graded'"
        " AND sample IN (SELECT value FROM json_each(?)) ORDER BY sample, arm"
    )
    grades: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for number, arm, body in store.select(query, FINAL, wanted):
        if body is not None and (values := store.decoded_score(body, number, arm)) is not None:
            grades.setdefault((number, arm), []).append(values)
    for (number, _), found in grades.items():
        differences = [
            abs(one[name] - other[name])
            for one, other in combinations(found, 2)
            for name in one.keys() & other.keys()
            if isinstance(one[name], float) and isinstance(other[name], float)
        ]
        yield number, min(1.0, max(differences, default=0.0))


# --- lists ---


def plain_list(directory: Path, page: int) -> Listing:
    """Return a page of all samples in the order of the plan, without the search index."""
    with closing(Store(directory, skip_damaged=True)) as store:
        rows = store.select("SELECT number FROM samples ORDER BY number LIMIT ? OFFSET ?", PAGE, PAGE * (page - 1))
        entries = [entry for entry, _ in _entries(store, [number for (number,) in rows])]
        return Listing(entries, next(store.select("SELECT COUNT(*) FROM samples"))[0], [])


def listed(file: Path, query: Query) -> Listing:
    """Return a page of what the search index has."""
    where, values = _where(query)
    with closing(_opened(file)) as db:
        found = db.execute(f"SELECT COUNT(*) FROM rows WHERE {where}", values).fetchone()[0]  # noqa: S608 - ours
        order = _ORDERS.get(query.sort, _ORDERS["judges"])
        columns = "number, id, grp, glance, ends, differs, apart"
        page = f"SELECT {columns} FROM rows WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - ours
        rows = db.execute(page, (*values, PAGE, PAGE * (query.page - 1)))
        entries = [_entry_from(row) for row in rows]
        groups = [group for (group,) in db.execute("SELECT DISTINCT grp FROM rows ORDER BY grp LIMIT 500") if group]
        judged = db.execute("SELECT 1 FROM rows WHERE apart >= ? LIMIT 1", (FAR_APART,)).fetchone() is not None
    return Listing(entries, found, groups, judged)


def place_of(file: Path, query: Query, sample: str) -> int | None:
    """Return the page on which a sample is; None if it is on none."""
    where, values = _where(query)
    order = _ORDERS.get(query.sort, _ORDERS["judges"])
    with closing(_opened(file)) as db:
        ids = db.execute(f"SELECT id FROM rows WHERE {where} ORDER BY {order}", values)  # noqa: S608 - ours
        place = next((number for number, (found,) in enumerate(ids) if found == sample), None)
    return None if place is None else place // PAGE + 1


def differing(one: tuple[Path, int], other: tuple[Path, int]) -> tuple[list[str], int]:
    """Return the ids of the samples that two arms, (search index, number), ended differently, and how many both ran."""
    ends = [_ends(*each) for each in (one, other)]
    shared = [sample for sample in ends[0] if sample in ends[1]]
    return [sample for sample in shared if ends[0][sample] != ends[1][sample]], len(shared)


def shared(one: tuple[Path, int], other: tuple[Path, int]) -> list[str]:
    """Return the ids of the samples that both arms ran."""
    second = _ends(*other)
    return [sample for sample in _ends(*one) if sample in second]


def _ends(file: Path, arm: int) -> dict[str, tuple[str, str]]:
    with closing(_opened(file)) as db:
        rows = db.execute("SELECT id, ends FROM rows ORDER BY number").fetchall()
    found: dict[str, tuple[str, str]] = {}
    for sample, text in rows:
        for number, status, _, digest in orjson.loads(text):
            if number == arm:
                found[sample] = (status, digest)
    return found


def _where(query: Query) -> tuple[str, list[Any]]:
    parts, values = ["1"], list[Any]()
    if text := query.text.strip().lower():
        parts.append("instr(text, ?)")
        values.append(text.encode("utf-8", "replace").decode())
    if query.group:
        parts.append("grp = ?")
        values.append(query.group)
    if query.status or query.arm:
        parts.append("instr(statuses, ?)")
        values.append(f"|{query.arm}:{query.status}{'|' if query.status else ''}" if query.arm else f":{query.status}|")
    if query.differs:
        parts.append("differs")
    return " AND ".join(parts), values


def _entry_from(row: tuple[Any, ...]) -> SampleEntry:
    number, sample, group, glance, ends, differs, apart = row
    return SampleEntry(
        number, sample, group, glance, tuple(End(*each) for each in orjson.loads(ends)), bool(differs), apart
    )
