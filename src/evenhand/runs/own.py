"""What a run keeps of the user's own, so that a copy of it can be read, and repeated, elsewhere.

The files that its plan names (Python, prompts, small data files) are copied into its folder under their hashes. Of a
benchmark that is no part of the package, what a study needs is stored as data: its metrics, and what each outcome adds
to their sums. So a study of a copied run executes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import getdoc
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, cast

from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Meaning, Metric, Selection
from evenhand.core.errors import PlanError
from evenhand.core.files import sha256
from evenhand.core.registry import is_file, place_of_file
from evenhand.core.types import Grade, Outcome, Record, Sample, Status, Unscored
from evenhand.data.sets import SETS
from evenhand.methods.base import METHODS
from evenhand.runs.plan import Plan
from evenhand.runs.store import FINAL, Scored
from evenhand.runs.trust import python_in
from evenhand.stats import ratio

FOLDER = "own"
"""The folder in a run's own with copies of the user's files."""
COUNTS = "counts"
"""The scorer under whose name is stored what an outcome adds to the sums of each metric."""
LARGEST = 32 << 20
"""Data files of more bytes are not copied."""
_MEANING = ("above", "below", "undefined")
_DECLARED = ("name", "version", "kind", "headline", "guardrails", "followed", "group_key", "position_advice")


# --- files ---


def keep_files(plan: Plan, directory: Path) -> dict[str, str]:
    """Copy the files that a plan names into the run's folder; return name → place in it.

    Folders of data are not copied, except that of templates; nor are files of public sets, which have licences.
    """
    public = {file.name for each in SETS.values() for file in each.files}
    kept: dict[str, str] = {}
    for name, path in _named(plan):
        if path.name not in public and path.is_file() and path.stat().st_size <= LARGEST:
            kept[name] = _copied(path, path.name, directory)
    if plan.templates is not None:
        root = Path(plan.templates.folder)
        place = PurePosixPath(FOLDER, plan.templates.hash)
        for path in root.rglob("*.md"):
            target = directory / place / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        kept[plan.templates.folder] = str(place)
    return kept


def _named(plan: Plan) -> Iterator[tuple[str, Path]]:
    stored = plan.model_dump()
    for name in python_in([stored["benchmark"], stored["methods"], stored["scorers"], stored["models"]]):
        bare = name.removeprefix("call/")
        yield bare, place_of_file(bare)
    secret = not is_file(plan.benchmark) and not BENCHMARKS.get(plan.benchmark).keeps_data
    for value in () if secret else plan.benchmark_options.values():
        if isinstance(value, str | Path):
            with suppress(OSError, ValueError):
                yield str(value), Path(value)


def _copied(path: Path, name: str, directory: Path) -> str:
    place = PurePosixPath(FOLDER, sha256(path)[:16], name)
    (directory / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, directory / place)
    return str(place)


def copy_kept(kept: Mapping[str, str], directory: Path, target: Path) -> list[Path]:
    """Copy what a run has kept to another folder; return the copies."""
    copies: list[Path] = []
    for place in dict.fromkeys(kept.values()):
        found = kept_place(directory, place)
        for path in [] if found is None else [found] if found.is_file() else found.rglob("*.md"):
            if path.is_file() and not path.is_symlink():
                copies.append(target / path.relative_to(directory))
                copies[-1].parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copies[-1])
    return copies


def kept_place(directory: Path, place: str) -> Path | None:
    """The stored copy, if it is inside the run's folder (links followed) and its hash matches."""
    parts = PurePosixPath(place).parts
    path = directory.joinpath(*parts)
    if len(parts) < 2 or parts[0] != FOLDER or ".." in parts or not path.exists():
        return None
    if path.resolve() != directory.resolve().joinpath(*parts):
        return None
    if path.is_file() and sha256(path)[:16] != parts[1]:
        return None
    return path


# --- a benchmark as data ---


def is_own(benchmark: Benchmark) -> bool:
    """Whether a benchmark is no part of the package, so that others may not have its code."""
    return not type(benchmark).__module__.startswith("evenhand.")


def described(benchmark: Benchmark) -> dict[str, Any]:
    """What a study needs of a benchmark of the user's own, as data."""
    metrics = list(benchmark.metrics())
    return {
        **{name: getattr(benchmark, name) for name in _DECLARED},
        "about": (getdoc(type(benchmark)) or "").partition("\n")[0],
        "caveats": list(benchmark.caveats()),
        "metrics": [_metric_data(each) for each in metrics if _is_data(each)],
        "left_out": [each.name for each in metrics if not _is_data(each)],
        "audited": type(benchmark).audit is not Benchmark.audit,
    }


def _is_data(metric: Metric) -> bool:
    """Whether sums are all that its value needs; a statistic of the user's own is code."""
    return metric.statistic is ratio and metric.gather is None


def _metric_data(metric: Metric) -> dict[str, Any]:
    names = ("name", "title", "better", "share", "bounds", "scale", "chance", "comparable", "rests_on", "rating")
    meaning = {name: getattr(metric.meaning, name) for name in _MEANING}
    return {**{name: getattr(metric, name) for name in names}, "meaning": meaning}


def counts(
    benchmark: Benchmark, sample: Sample, status: Status, reason: str | None, scores: Sequence[Scored]
) -> list[Scored]:
    """What an outcome adds to the metrics of a benchmark of the user's own, at its end and after each iteration."""
    if not is_own(benchmark):
        return []
    metrics = [metric for metric in benchmark.metrics() if _is_data(metric)]
    found: list[Scored] = []
    for iteration in dict.fromkeys([FINAL, *(each.iteration for each in scores)]):
        rows = [each for each in scores if each.iteration == iteration]
        state = (status, reason) if iteration == FINAL else (rows[0].status, rows[0].reason)
        grade: dict[str, Any] = {}
        for row in rows:
            grade |= row.values or {}
        record = Record(sample.id, sample.cluster, state[0], sample.metadata, grade or None, state[1])
        added = {metric.name: sums for metric in metrics if (sums := _added(metric, record)) is not None}
        found.append(Scored(COUNTS, iteration, "graded", None, {COUNTS: added}))
    return found


def _added(metric: Metric, record: Record) -> list[float] | None:
    try:
        sums = metric.count(record)
        return None if sums is None else [float(each) for each in sums]
    except Exception:  # a fault of a metric is told by the study, not by the run
        return None


class StoredBenchmark(Benchmark):
    """A benchmark of the user's own from what its run has stored: metrics without their code; it has no samples."""

    name: ClassVar[str] = ""
    version: ClassVar[str] = ""
    kind: ClassVar[Any] = "answer"
    headline: ClassVar[str] = ""

    @classmethod
    def made(cls, stored: Mapping[str, Any], directory: Path) -> StoredBenchmark:
        """Return the benchmark that a run in `directory` describes; a description that is no such is refused."""
        try:
            declared: dict[str, Any] = {name: str(stored[name]) for name in _DECLARED}
            metrics = [_metric(each) for each in stored["metrics"]]
            names = [each.name for each in metrics]
            for kind in ("guardrails", "followed"):
                declared[kind] = tuple(each for each in stored[kind] if each in names)
            note = [*map(str, stored["caveats"]), *_missing(stored, directory)]
            doc = str(stored["about"])
        except (LookupError, TypeError, ValueError) as error:
            raise PlanError(f"The run in {directory} describes its benchmark in a way that cannot be read.") from error
        if not names:
            raise PlanError(
                f"All metrics of {declared['name']} take code of its own, which is not executed; look at it, and trust "
                f"it: evenhand run trust {directory}"
            )
        if declared["headline"] not in names:
            declared["headline"] = names[0]
        own: Any = type("StoredBenchmark", (cls,), {**declared, "__doc__": doc, "__module__": __name__})
        made: StoredBenchmark = own()
        made._metrics, made._caveats = metrics, note
        return made

    _metrics: Sequence[Metric] = ()
    _caveats: Sequence[str] = ()

    def samples(self, selection: Selection) -> Iterator[Sample]:
        del selection
        return iter(())

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        del sample, outcome
        return Unscored("the benchmark's code is not executed")

    def metrics(self) -> Sequence[Metric]:
        return self._metrics

    def caveats(self) -> Sequence[str]:
        return self._caveats


def _missing(stored: Mapping[str, Any], directory: Path) -> list[str]:
    """Say what a study without the benchmark's code leaves out."""
    parts = [*map(str, stored["left_out"]), *(["its audit"] if stored["audited"] else [])]
    how = f"`evenhand run trust {directory}` shows what it would run"
    return [f"Left out, because it takes the benchmark's own code: {', '.join(parts)}; {how}"] if parts else []


def _metric(stored: Mapping[str, Any]) -> Metric:
    name, chance, meaning = str(stored["name"]), stored["chance"], dict(stored["meaning"])
    above, below, undefined = (str(meaning.get(each) or "") for each in _MEANING)
    return Metric(
        name,
        str(stored["title"]),
        partial(_stored_sums, name),
        ratio,
        stored["better"] if stored["better"] in ("higher", "lower", "zero") else None,
        share=bool(stored["share"]),
        bounds=_pair(stored["bounds"]),
        scale=float(stored["scale"]),
        chance=None if chance is None else float(chance),
        meaning=Meaning(above, below, undefined, harmless=meaning.get("harmless") is True),
        comparable=_pair(stored["comparable"]),
        rests_on=tuple(map(str, stored.get("rests_on") or ())),
        rating=stored.get("rating") is True,
    )


def _pair(stored: Any) -> tuple[float, float] | None:
    return None if stored is None else (float(stored[0]), float(stored[1]))


def _stored_sums(name: str, record: Record) -> Sequence[float] | None:
    found: Any = (record.grade or {}).get(COUNTS)
    sums = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    return None if sums is None else [float(each) for each in sums]


def method_summaries(names: Sequence[str]) -> dict[str, str]:
    return {name: METHODS.get(name).summary for name in names}
