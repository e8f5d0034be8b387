"""Stored runs: read with all samples and the records of every arm, and the store of a plan, opened new or resumed."""

from __future__ import annotations

import contextlib
import gc
import heapq
import shlex
import shutil
import sqlite3
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import orjson

from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Metric, load_benchmark, mean_of, ratio
from evenhand.core.errors import EvenhandError, PlanError, StoreError, UnknownNameError, UsageError
from evenhand.core.registry import code_refused, fault_in_files, file_hash, files_kept, is_file
from evenhand.core.specs import model_spec, spec_parts
from evenhand.core.types import Record, Sample
from evenhand.judging.certificate import Certificate, certificate_of, untold
from evenhand.methods.base import METHODS
from evenhand.models.request import unpack
from evenhand.runs import own, trust
from evenhand.runs.file import LOCK_NAME, locked
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Arm, MethodPlan, Plan, arm_labels, make_plan, option_files
from evenhand.runs.store import FILE_NAME, FINAL, Store, no_plan, sample_from, unreadable
from evenhand.scorers.base import SCORERS


@dataclass(frozen=True, slots=True)
class ArmSource:
    """One arm and its store; the final results, or those after one iteration."""

    id: str
    label: str
    store: Store
    arm: Arm
    scorers: tuple[str, ...]
    """The ids of the grades that count: the benchmark's, then the scorers'."""
    iteration: int = FINAL
    counted: bool = False
    """Whether grades hold what their benchmark has counted, for a study without its code."""

    def record(self, number: int, sample: Sample) -> Record | None:
        return self.store.record(number, self.arm.number, sample, self._read, self.iteration)

    def results(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row of every sample by id, for the store's `record_of`."""
        return self.store.results(self.arm.number, self._read, self.iteration)

    @property
    def _read(self) -> tuple[str, ...]:
        return (*self.scorers, own.COUNTS) if self.counted else self.scorers


_METRICS_FAILED = "metrics_failed"
"""The fact that code of a benchmark of the user's own raised an error in a study."""
_MARKED = ("plan", "files", "kept", "settings")
"""The facts that say what a run would have a machine do."""


@dataclass(slots=True)
class StoredRun:
    """A run directory opened for reading.

    A run of this machine, by its mark, may act: its Python is executed and its models are reached as it says. Any other
    one is data.
    """

    directory: Path
    store: Store
    plan: Plan
    is_own: bool
    """Whether it was made on this machine, or is trusted here."""

    @classmethod
    def open(cls, directory: Path, *, skip_damaged: bool = False) -> StoredRun:
        store = Store(directory, skip_damaged=skip_damaged)
        try:
            stored = store.get("plan")
            if stored is None:
                raise PlanError(no_plan(directory))
            return cls(directory, store, make_plan(stored), trust.is_marked(_acts(store), store.get(trust.MARKS)))
        except BaseException:
            store.close()
            raise

    # --- what it may do ---

    def demands(self) -> trust.Demands:
        """What it would have this machine do beyond what the machine knows."""
        with files_kept(self.kept_files()):
            return trust.demands(self.plan, self.store.get("plan"), self.store.get("settings") or {}, self.directory)

    def trust(self) -> None:
        """Mark the run as one that may act on this machine, until its plan, files or settings change."""
        mark_run(self.store)
        self.is_own = True

    def acting(self) -> tuple[Plan, Settings]:
        """The plan and the settings with which it may go on; refused if it needs what the user has not seen."""
        kept = self.store.get("settings")
        if self.is_own:
            return self._found(), trust.settings_here(None) if kept is None else Settings.restored(kept)
        if needed := self.demands().needed:
            raise PlanError(
                f"{self.directory} was not made on this machine, and to go on it {needed[0]}"
                f"{f' (and {len(needed) - 1} more)' if needed[1:] else ''}; look at what it would do, and trust it: "
                f"evenhand run trust {self.directory}"
            )
        return self._reached_here(strict=True), trust.settings_here(kept)

    def _found(self) -> Plan:
        """The plan, with the templates that the run has kept if those of the plan are gone."""
        templates = self.plan.templates
        kept = None if templates is None else self.kept_files().get(templates.folder)
        if templates is None or kept is None:
            return self.plan
        return self.plan.model_copy(update={"templates": templates.model_copy(update={"folder": str(kept)})})

    def plan_here(self) -> Plan:
        """The plan for scorers that name its models: those of another machine's run are reached as this one says."""
        return self.plan if self.is_own else self._reached_here(strict=False)

    def _reached_here(self, *, strict: bool) -> Plan:
        reach = trust.known_here if strict else trust.here
        models = [{role: reach(model) or model for role, model in each.items()} for each in self.plan.models]
        judges = {spec: reach(model) or model for spec, model in self.plan.judges.items()}
        return self._found().model_copy(update={"models": models, "judges": judges})

    # --- its code ---

    def code_fault(self, *names: str) -> str | None:
        """Why the Python of the plan is not executed; None if it may be. Only that of `names`, if there are any."""
        if (found := [name for name in self._code() if not names or name in names]) and not self.is_own:
            return self._foreign(f"its Python code {found[0]}")
        for name in sorted(self.changed_files()):
            if not names or name in names:
                return (
                    f"{name} is not the file that the run in {self.directory} was made with, so it is not executed; "
                    "restore it, or run again."
                )
        return None

    def check_files(self, *names: str) -> None:
        """Refuse to go on if Python of the plan is not to be executed; only that of `names`, if there are any."""
        if fault := self.code_fault(*names):
            raise PlanError(fault)

    def changed_files(self) -> set[str]:
        """The Python files and weights of the plan that are not those the run was made with; not to be used."""
        known: dict[str, str] = self.store.get("files") or {}
        with files_kept(self.kept_files()):
            return {name for name, digest in self.plan.files().items() if known.get(name) != digest}

    def not_executed(self) -> set[str]:
        """The Python files of the plan that are not executed."""
        return self.changed_files() if self.is_own else {*self._code(), *self.changed_files()}

    @contextlib.contextmanager
    def code(self) -> Generator[None]:
        """The code of the plan, here: its files, or the copies that the run has kept of them; refused if foreign."""
        self.check_files()
        with files_kept(self.kept_files()):
            yield

    def only_its_code(self) -> contextlib.AbstractContextManager[None]:
        """No code is loaded here, if the run was made elsewhere and is not trusted."""
        return contextlib.nullcontext() if self.is_own else code_refused(self._foreign("its Python code"))

    def _foreign(self, what: str) -> str:
        return (
            f"{self.directory} was not made on this machine, so {what} is not executed; look at it, and trust it: "
            f"evenhand run trust {self.directory}"
        )

    def _code(self) -> list[str]:
        stored: Mapping[str, Any] = self.store.get("plan")
        return [
            *(name for name in (self.plan.benchmark, *(each.name for each in self.plan.methods)) if is_file(name)),
            *trust.code_in(stored),
        ]

    def kept_files(self) -> dict[str, Path]:
        """The copies to use: of files that are not here, or not as they were."""
        known: dict[str, str] = self.store.get("files") or {}
        sums = {name.partition(":")[0]: digest for name, digest in known.items()}
        found: dict[str, Path] = {}
        kept: dict[str, str] = self.store.get("kept") or {}
        for name, place in kept.items():
            changed = file_hash(name) != sums[name] if name in sums else not Path(name).exists()
            if changed and name != self.mended() and (path := own.kept_place(self.directory, str(place))) is not None:
                found[name] = path
        return found

    def mended(self) -> str:
        """The benchmark's file if it has changed since its metrics failed in a study: then the changed one counts."""
        file, known = self.plan.benchmark.partition(":")[0], dict[str, str](self.store.get("files") or {})
        failed = self.is_own and self.store.get(_METRICS_FAILED)
        return file if failed and file_hash(file) not in (None, known.get(self.plan.benchmark)) else ""

    def scorers(self, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """The ids of the scorers that count: those of the plan, with `wanted` in place of what they replace."""
        known: dict[str, Any] = self.store.get("scorers") or {}
        active: list[str] = [scorer for scorer, about in known.items() if about["planned"]]
        for spec in wanted:
            chosen = self._scorer(spec, known)
            replaced: set[str] = set(known[chosen]["attributes"])
            active = [each for each in active if each != chosen and not replaced & set(known[each]["attributes"])]
            active.append(chosen)
        return (self._grader(), *active)

    def _grader(self) -> str:
        """The id of the benchmark's grades."""
        grader = self.store.get("scorer")
        [(graded, found)] = self.store.select(
            "SELECT EXISTS(SELECT 1 FROM outcomes WHERE status = 'graded'), "
            "EXISTS(SELECT 1 FROM scores WHERE scorer = ?)",
            grader,
        )
        if (graded and not found) or grader in (self.store.get("scorers") or {}):
            raise unreadable(self.directory, "its fact scorer names no grades of its benchmark")
        return grader

    def check_texts(self) -> None:
        """Refuse to look for scores, or to make them, where answers are choices."""
        if self.benchmark().kind == "choice":
            name = self.plan.benchmark
            raise PlanError(f"Scorers rate texts, but the answers of {name} are choices; there is nothing to rescore.")

    def _scorer(self, given: str, known: Mapping[str, Any]) -> str:
        """Return the newest scorer id for a spec; for scorers with a model, the name alone is enough."""
        spec = model_spec(given)[0]  # stored without the options of its model
        exact = [scorer for scorer, about in known.items() if spec in (scorer, about["spec"])]
        found = exact or [scorer for scorer, about in known.items() if spec_parts(about["spec"])[0] == spec]
        if not found:
            self.check_texts()
            if not is_file(spec):
                SCORERS.get(spec_parts(spec)[0])
            command = shlex.join(["evenhand", "run", "rescore", str(self.directory), "--scorer", given])
            raise PlanError(f"{self.directory} has no scores by {spec!r}; make them with `{command}`.")
        if not exact and len(found) > 1:
            raise PlanError(f"{spec!r} may be {' or '.join(found)}; name one of them.")
        return found[-1]

    def certificates(self) -> list[Certificate]:
        """What controls showed of the judges and scorers of the run; empty for runs without controls."""
        return [certificate_of(each) for each in self.store.get("certificates") or ()]

    def untold(self, scorers: Sequence[str], method: MethodPlan | None = None) -> dict[str, str]:
        """Rating → why numbers that rest on it cannot be determined; `scorers` are the ids of those whose scores count.

        With a method, of its judge alone; else of the judges of all methods.
        """
        certificates = self.certificates()
        known = {each.rating.rpartition(".")[0] for each in certificates}
        methods = [method] if method else self.plan.methods
        # Runs of earlier versions name the method alone.
        judges = [name if (name := self._judge_of(each)) in known else each.name for each in methods]
        return untold(certificates, {*scorers, *judges})

    def _judge_of(self, planned: MethodPlan) -> str:
        """The name of the instrument that the method's judge is."""
        if is_file(planned.name) or planned.name not in METHODS.names():
            return planned.name
        method = METHODS.get(planned.name)
        test = method.calibration
        return test.source(method.name, method.with_options(planned.options)) if test else method.name

    def benchmark(self) -> Benchmark:
        """The benchmark's metrics; its data is in the store and not needed again.

        Where its code is not to be executed, or not installed, what the run has stored of it takes its place.
        """
        name, described = self.plan.benchmark, self.store.get("described")
        fault = None if self.mended() else self.code_fault(name, name.partition(":")[0])
        if fault is None:
            kept, files = self.kept_files(), option_files(name, self.plan.benchmark_options)
            # Metrics do not take the code that an option names.
            left_out = {key for key, file in files.items() if self.code_fault(file)}
            options = {
                key: str(kept.get(value, value)) if isinstance(value, str) else value
                for key, value in self.plan.benchmark_options.items()
                if key not in left_out
            }
            try:
                with files_kept(kept), self.only_its_code():
                    return load_benchmark(name, **options)
            except UnknownNameError:
                if not described:
                    raise
        if not described:
            raise PlanError(fault or "")
        return own.StoredBenchmark.made(described, self.directory)

    def group_key(self) -> str:
        """The key of metadata by which samples are grouped; no code of the run's own is executed."""
        described: Mapping[str, Any] = self.store.get("described") or {}
        if "group_key" in described:
            return str(described["group_key"])
        name = self.plan.benchmark
        return Benchmark.group_key if is_file(name) else BENCHMARKS.get(name).group_key

    def summaries(self) -> dict[str, str]:
        """What each method of the plan does; of methods whose code is not executed, as the run has stored it."""
        stored: Mapping[str, str] = self.store.get("summaries") or {}
        left, names = self.not_executed(), [each.name for each in self.plan.methods]
        missing = [name for name in names if name not in stored and name not in left]
        with files_kept(self.kept_files()):
            own_words = own.method_summaries(missing)
        return {name: stored.get(name) or own_words.get(name, "its code is not executed here") for name in names}


def _acts(store: Store) -> dict[str, Any]:
    return {name: store.get(name) for name in _MARKED}


def mark_run(store: Store, before: Mapping[str, Any] | None = None) -> None:
    """Say that this machine has made the run, or trusts it; `before` is what it was marked for until now."""
    store.put(**{trust.MARKS: trust.with_mark(_acts(store), store.get(trust.MARKS), before)})


def told_metrics(
    runs: Sequence[StoredRun], scorers: Sequence[str], more: Sequence[Metric] = (), method: MethodPlan | None = None
) -> list[Metric]:
    """The metrics of runs of one benchmark, and `more`; one whose judge does not see what it rates has no value.

    What cannot be determined in one of the runs cannot be determined in all. With a method, only its own judge counts.
    """
    untold: dict[str, str] = {}
    for run in runs:
        untold |= run.untold(scorers, method)
    metrics = [*runs[0].benchmark().metrics(), *more]
    known: Mapping[str, Any] = runs[0].store.get("scorers") or {}
    criteria = [each for scorer in scorers for each in known.get(scorer, {}).get("criteria", ())]
    metrics += [
        _criterion(each["name"], each["title"], each["better"])
        for each in criteria
        if each["name"] not in {metric.name for metric in metrics}
    ]
    reasons = [next((untold[each] for each in metric.rests_on if each in untold), "") for metric in metrics]
    return [each.cannot_be_told(why) if why else each for each, why in zip(metrics, reasons, strict=True)]


def _criterion(name: str, title: str, better: Literal["lower", "higher"]) -> Metric:
    """The metric of a rubric's criterion: its mean rating, in points of 100."""
    return Metric(name, title, mean_of(name), ratio, better, scale=100.0, rests_on=(name,), rating=True)


@contextlib.contextmanager
def metric_faults(benchmark: Benchmark, runs: Sequence[StoredRun]) -> Generator[None]:
    """Tell an error of a user's benchmark in one sentence; its file, once mended, counts in the next study."""
    try:
        yield
    except Exception as error:
        fault = fault_in_files(error)
        if not fault and own.is_own(benchmark):
            fault = f"What a metric of {benchmark.name} returns cannot be used: {type(error).__name__}: {error}"
        if isinstance(error, EvenhandError) or not fault:
            raise
        for run in runs:
            with contextlib.suppress(EvenhandError):  # the folder may be read-only
                run.store.put(**{_METRICS_FAILED: True})
        again = shlex.join(["evenhand", "report", *(str(run.directory) for run in runs)])
        raise UsageError(f"{fault}. All answers are kept; mend the file, then: {again}") from error


@contextlib.contextmanager
def open_sources(
    directories: Sequence[Path],
    *,
    scorers: Sequence[str] = (),
    iterations: bool = False,
    skip_damaged: bool = False,
) -> Generator[tuple[list[StoredRun], list[ArmSource]]]:
    """Open run directories for reading; with `iterations`, also the results after each iteration."""
    with contextlib.ExitStack() as stack, _readable(directories):
        runs: list[StoredRun] = []
        for directory in directories:
            if any(directory.resolve() == run.directory.resolve() for run in runs):
                raise PlanError(f"{directory} is named twice; a run is not compared with itself.")
            run = StoredRun.open(directory, skip_damaged=skip_damaged)
            stack.callback(run.store.close)
            runs.append(run)
        if len({(run.plan.benchmark, run.store.get("scorer")) for run in runs}) > 1:
            raise PlanError("These runs are of different benchmarks, whose numbers cannot be compared.")
        for run in runs:
            stack.enter_context(files_kept(run.kept_files()))
        active = [run.scorers(scorers) for run in runs]
        if len(set(active)) > 1:
            raise PlanError(
                "These runs were scored by different scorers, whose scores cannot be compared; "
                "rescore them alike and name the scorer with --scorer."
            )
        yield runs, _sources(runs, active[0], iterations)


@contextlib.contextmanager
def _readable(directories: Sequence[Path]) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unreadable(directories[0], error) from error  # SQLite does not say which


def shared_samples(runs: Sequence[StoredRun]) -> list[Sequence[int]] | None:
    """Return by run the numbers of the samples that all runs have, or None if no run has others."""
    sizes: list[int] = [next(run.store.select("SELECT COUNT(*) FROM samples"))[0] for run in runs]
    if len(runs) == 1:
        return None
    cursors = [run.store.select("SELECT id, number FROM samples ORDER BY id") for run in runs]
    common: list[array[int]] = [array("q") for _ in runs]
    for _, group in groupby(heapq.merge(*map(_marked, cursors, count())), key=itemgetter(0)):
        held = list(group)
        if len(held) == len(runs):
            for _, place, number in held:
                common[place].append(number)
    if all(len(each) == size for each, size in zip(common, sizes, strict=True)):
        return None
    if not common[0]:
        raise PlanError(
            "These runs have no sample in common, so they cannot be compared; run them with the same --limit, --seed "
            "and options of the benchmark."
        )
    return list(common)


def _marked(rows: Iterator[tuple[Any, ...]], place: int) -> Iterator[tuple[str, int, int]]:
    return ((name, place, number) for name, number in rows)


@contextlib.contextmanager
def rare_collections() -> Generator[None]:
    """Look for cyclic garbage less often, where much that is young is in use: calls in the air, records to add up."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def walk(sources: Sequence[ArmSource], *, shared: bool = False) -> Iterator[tuple[dict[str, Any], dict[str, Record]]]:
    """Yield every sample with the records of all arms that finished it, from all stores, by sample id.

    A sample comes as its fields, for `sample_from`. With `shared`, samples that are not in all stores are left out.
    """
    stores = list({id(source.store): source.store for source in sources}.values())
    by_store = [[source for source in sources if source.store is store] for store in stores]
    cursors = [
        zip(store.stored_samples(), *(each.results() for each in own), strict=True)
        for store, own in zip(stores, by_store, strict=True)
    ]
    heads = [next(cursor, None) for cursor in cursors]
    while names := [head[0][0] for head in heads if head is not None]:
        name, known, held = min(names), None, 0
        sample: dict[str, Any] = {}
        records: dict[str, Record] = {}
        for index, head in enumerate(heads):
            if head is None or head[0][0] != name:
                continue
            heads[index] = next(cursors[index], None)
            store, ((_, number, body), *rows) = stores[index], head
            if body != known:
                if (own := store.sample_fields(body, number)) is None:
                    continue
                if sample and own != sample and sample_from(own) != sample_from(sample):
                    raise PlanError(f"The sample {name} differs between these runs; they used different data.")
                known, sample = body, own
            held += 1
            cluster, metadata = sample["cluster"], sample["metadata"]
            for source, row in zip(by_store[index], rows, strict=True):
                if (record := store.record_of(row, number, source.arm.number, name, cluster, metadata)) is not None:
                    records[source.id] = record
        if sample and (held == len(stores) or not shared):
            yield sample, records


def _sources(runs: Sequence[StoredRun], scorers: tuple[str, ...], iterations: bool) -> list[ArmSource]:
    arms = [(number, run, arm) for number, run in enumerate(runs, 1) for arm in run.plan.arms()]
    labels = arm_labels([(arm.models, arm.method, arm.seed) for _, _, arm in arms])
    names = names_of(runs)
    sources: list[ArmSource] = []
    for (number, run, arm), label in zip(arms, labels, strict=True):
        whole = label if labels.count(label) == 1 else f"{names[number - 1]}: {label}"
        if len(set(labels)) == 1 and len(runs) == len(labels) > 1:
            whole = names[number - 1]
        source = ArmSource(f"{number}.{arm.number}", whole, run.store, arm, scorers)
        # Without the first answer: it is the model's own, which the method `default` shows.
        sources += [*(steps_of(source)[1:] if iterations else ()), source]
    return sources


def steps_of(source: ArmSource) -> list[ArmSource]:
    """Return the arm after each of its iterations; none for methods that do not iterate."""
    last = source.store.most_iterations(source.arm.number)
    return [
        replace(source, id=f"{source.id}.{each}", label=f"{source.label} · iteration {each}", iteration=each)
        for each in range(last + 1 if last else 0)
    ]


def with_counts(benchmark: Benchmark, sources: Sequence[ArmSource]) -> list[ArmSource]:
    """Return the arms as a benchmark reads them; one without its code reads what was counted when it ran."""
    return [replace(each, counted=isinstance(benchmark, own.StoredBenchmark)) for each in sources]


def names_of(runs: Sequence[StoredRun]) -> list[str]:
    """Return short names of the directories, or full paths where short names are not unique."""
    short = [run.directory.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run.directory) for name, run in zip(short, runs, strict=True)]


def common_answers(sources: Sequence[ArmSource]) -> tuple[dict[str, tuple[Sample, list[str]]], int]:
    """Return the samples that every arm answered with the answers by arm, and the number of other samples."""
    by_arm: list[dict[str, str]] = []
    samples: dict[str, Sample] = {}
    for source in sources:
        answers: dict[str, str] = {}
        for number, sample in source.store.samples():
            if sample.kind == "choice":
                raise PlanError(
                    "This benchmark is multiple choice, but people rate texts. Export a run with text answers, such "
                    "as one of opinions."
                )
            samples[sample.id] = sample
            stored = source.store.outcome(number, source.arm.number)
            if stored is not None and stored[0] == "graded":
                answers[sample.id] = stored[3]["result"]["value"]["text"]
        by_arm.append(answers)
    common = [name for name in samples if all(name in answers for answers in by_arm)]
    if not common:
        raise PlanError(
            "No question was answered by all arms, so nothing can be compared. Resume the runs, or export fewer."
        )
    answered = {name: (samples[name], [answers[name] for answers in by_arm]) for name in common}
    return answered, len(samples) - len(common)


def prompts_used(store: Store) -> dict[str, str]:
    """Return the hash of every prompt that was used, by id."""
    turns = (unpack(body) for (body,) in store.select("SELECT body FROM turns WHERE arm > 0 ORDER BY id"))
    return dict(sorted({(turn["prompt_id"], turn["prompt_hash"]) for turn in turns}))


@contextlib.contextmanager
def opened(
    directory: Path,
    settings: Settings,
    facts: Mapping[str, Any],
    samples: Callable[[], Iterable[tuple[int, Sample]]],
    make: Callable[..., Store] = Store,
) -> Generator[Store]:
    """The store of a plan; a new one that got nowhere is removed again.

    Args:
        facts: What identifies the plan and is stored with it: `identity`, `plan`, `options` and more.
        samples: Returns the plan's samples with their numbers; called for a new store only.
        make: The class of the store.
    """
    folder_existed = check_directory(directory, settings)
    # Lock first, so that no other process opens or removes a store that is being created.
    with locked(directory):
        check_directory(directory, settings)
        new = not (directory / FILE_NAME).exists()
        worthless = new
        try:
            with contextlib.closing(make(directory, create=True, skip_damaged=settings.skip_damaged)) as store:
                worthless = False
                try:
                    if not new and store.get("identity") is None:
                        raise PlanError(no_plan(directory))
                    _check_identity(store, facts["identity"], directory)
                    _check_options(store, facts["options"], directory)
                    _check_shard(store, settings, directory)
                    before = _acts(store)
                    acted = trust.is_marked(before, store.get(trust.MARKS))
                    if new:
                        _fill(store, facts, samples, settings)
                    elif store.get("scope") is None:  # a run of an older version
                        store.put(scope=facts["scope"])
                    store.begin()
                    store.put(settings=settings.stored())
                    # A stored plan that differs from the one that was asked for may be a stranger's.
                    if new or acted or store.get("plan") == as_stored_json(facts["plan"]):
                        mark_run(store, before)
                    if settings.retry_failed:
                        store.forget("failed")
                    yield store
                except BaseException as error:
                    store.settle()
                    worthless = new and not store.has_answers()
                    if worthless and isinstance(error, StoreError):
                        reason = error.__cause__ or error
                        raise StoreError(
                            f"{directory} cannot be written ({reason}), and no answer was stored; free some space and "
                            "begin again."
                        ) from error
                    raise
        finally:
            if worthless:
                _remove(directory, keep_folder=folder_existed)


def check_directory(directory: Path, settings: Settings) -> bool:
    """Refuse a directory that holds something else, or a run that is not to be resumed; says if it exists."""
    try:
        found = {path.name for path in directory.iterdir()} - {LOCK_NAME}
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PlanError(f"{directory} cannot hold a run: {error.strerror}; choose another --out.") from error
    if FILE_NAME in found and not settings.resume:
        raise PlanError(f"{directory} holds a run already; pass --resume to go on with it, or another --out.")
    if found and FILE_NAME not in found:
        raise PlanError(f"{directory} is not empty and holds no run; choose another --out.")
    return True


def _fill(
    store: Store,
    facts: Mapping[str, Any],
    samples: Callable[[], Iterable[tuple[int, Sample]]],
    settings: Settings,
) -> None:
    count = store.add_numbered(samples())
    if count == 0 and settings.shard is not None:
        raise PlanError(f"Shard {settings.shard} has no sample, since clusters are not split; use fewer shards.")
    if count == 0:
        raise PlanError(f"The benchmark {facts['plan']['benchmark']} selected no sample; loosen its options.")
    if settings.shard is not None:
        facts = {**facts, "shard": str(settings.shard)}
    store.put(**facts, kept=own.keep_files(make_plan(facts["plan"]), store.directory))


def as_stored_json(value: Any) -> Any:
    """Return a value as it is read again from a store."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _check_identity(store: Store, wanted: str, directory: Path) -> None:
    found = store.get("identity")
    if found is not None and found != wanted:
        raise PlanError(
            f"{directory} holds a run of another plan (or of other data, weights or templates); choose another "
            "--out, or run the plan it was made with (`evenhand run show` prints it)."
        )


def _check_options(store: Store, options: Mapping[str, Mapping[str, Any]], directory: Path) -> None:
    """Refuse to go on under other defaults than the run began with; runs of older versions do not say theirs."""
    known: Mapping[str, Mapping[str, Any]] = store.get("options") or {}
    for arm, stored in known.items():
        for name, value in stored.items():
            if options[arm].get(name) != value:
                raise PlanError(
                    f"{directory} holds a run with {name}={value}, which a newer version has changed to "
                    f"{options[arm].get(name)}; choose another --out."
                )


def _check_shard(store: Store, settings: Settings, directory: Path) -> None:
    """Refuse to go on with another part of the plan than the run began with."""
    found, wanted = store.get("shard"), None if settings.shard is None else str(settings.shard)
    if store.get("identity") is not None and found != wanted:
        held = f"shard {found}" if found else "the whole plan"
        raise PlanError(
            f"{directory} holds {held}; {f'pass --shard {found}' if found else 'remove --shard'}, or choose "
            "another --out."
        )


def _remove(directory: Path, *, keep_folder: bool) -> None:
    """Remove a store that is still empty."""
    for file in directory.glob(f"{FILE_NAME}*"):
        file.unlink(missing_ok=True)
    shutil.rmtree(directory / own.FOLDER, ignore_errors=True)
    (directory / LOCK_NAME).unlink(missing_ok=True)
    if not keep_folder:
        with contextlib.suppress(OSError):
            directory.rmdir()
