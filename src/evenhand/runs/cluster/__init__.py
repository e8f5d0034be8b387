"""A run on Ray: workers on any node share the samples, and the driver stores what they have done in one run.

The driver is the only writer of the run. It deals the samples that are not done yet to the workers, whole clusters to
each, and takes in their rows as they are made. A worker that dies is replaced by one that begins with its rows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import EndpointError, EvenhandError, PlanError, UsageError
from evenhand.core.events import event
from evenhand.core.files import scratch
from evenhand.core.progress import Observer, Progress
from evenhand.core.types import Sample, Usage
from evenhand.models.budget import Limits
from evenhand.models.ray.connect import check_resources, connect, is_lost, set_address
from evenhand.models.ray.replica import Failure
from evenhand.runs.cluster.worker import News, Worker
from evenhand.runs.opening import check_directory, opened
from evenhand.runs.parts import Settings, check_plan
from evenhand.runs.plan import Plan
from evenhand.runs.shards import code_hash, dealt
from evenhand.runs.store import FILE_NAME, Rows, Store

_PIECE = 8 << 20
"""Bytes of a shard's store that are sent at a time."""
_MOST_DEATHS = 5
"""A worker that dies this often without a new row ends the run."""


@dataclass(slots=True, eq=False)
class _Place:
    """A shard and the worker that runs it."""

    index: int
    samples: array[int]
    limits: Limits
    actor: Any = None
    deaths: int = 0
    """Since its last row."""
    spent: Usage = Usage()
    """In this session."""
    scoring: Usage = Usage()
    activity: tuple[int, int, int] = (0, 0, 0)
    stopped: str | None = None


class ClusterRun:
    """One execution of one plan in one directory by `settings.workers` workers."""

    def __init__(self, plan: Plan, directory: Path, settings: Settings, observer: Observer | None = None) -> None:
        self.plan = plan
        self.directory = directory
        self.settings = settings
        self.progress = Progress()
        self._observer = observer
        self._workers = settings.workers or 1
        self._ray: Any = None
        self._actor: Any = None

    async def run(self) -> Progress:
        """Run all pending samples; raise only errors that the user must fix."""
        self._check()
        self._begin("starting Ray")
        set_address(self.settings.on or "ray")
        self._ray = connect()
        gpus = float(self._uses_gpus())
        check_resources(self._ray, "A worker", CPU=1, GPU=gpus)
        actor = self._ray.remote(Worker)
        self._actor = actor.options(num_cpus=1, num_gpus=gpus, max_concurrency=100, scheduling_strategy="SPREAD")
        self._begin(f"starting {self._workers:,} {'worker' if self._workers == 1 else 'workers'}")
        actors = [self._start() for _ in range(self._workers)]
        try:
            facts = await self._facts(actors)
            with opened(self.directory, self.settings, facts, self._samples) as store:
                await self._work(store, actors)
        finally:
            for each in actors:
                self._end(each)
        return self.progress

    def _check(self) -> None:
        """Refuse, before Ray is started, what cannot run on workers."""
        if self.settings.shard is not None:
            raise UsageError("--workers makes shards of its own; remove --shard.")
        if self.settings.ready:
            raise UsageError(
                "Workers load models by their specs; models and functions passed as objects cannot be sent."
            )
        if any(model.provider == "ray" for model in self.plan.every_model()):
            raise UsageError("Use either --workers, or ray/ models with --replicas; both would wait for each other.")
        check_plan(self.plan, load_benchmark(self.plan.benchmark, **self.plan.benchmark_options))
        check_directory(self.directory, self.settings)

    def _uses_gpus(self) -> bool:
        own = any(model.provider == "hf" for model in self.plan.every_model())
        return own and self._ray.cluster_resources().get("GPU", 0) >= 1

    def _start(self) -> Any:
        settings = replace(self.settings, resume=True, retry_failed=False, workers=None, on=None, origin={})
        return self._actor.remote(self.plan.model_dump(), settings, str(Path.cwd()))

    def _end(self, actor: Any) -> None:
        with suppress(Exception):  # it may be gone already
            self._ray.kill(actor, no_restart=True)

    async def _facts(self, actors: Sequence[Any]) -> dict[str, Any]:
        """The facts of the plan, which all workers must agree on."""
        found: list[dict[str, Any] | Failure] = await asyncio.gather(*(each.describe.remote() for each in actors))
        for each in found:
            if isinstance(each, Failure):
                raise each.error()
        facts = cast("list[dict[str, Any]]", found)
        names = {"identity": "data or models", "versions": "versions of packages", "code": "code of Evenhand"}
        for name, words in names.items():
            if any(each[name] != facts[0][name] for each in facts):
                raise PlanError(f"The nodes of this Ray differ in their {words}; install the same on all of them.")
        if facts[0].pop("code") != code_hash():
            raise PlanError("The nodes of this Ray have other code of Evenhand than this machine; install the same.")
        return facts[0]

    def _samples(self) -> Iterator[tuple[int, Sample]]:
        self._begin(f"reading {self.plan.benchmark}")
        benchmark = load_benchmark(self.plan.benchmark, **self.plan.benchmark_options)
        return enumerate(benchmark.samples(Selection(self.plan.limit, self.plan.seeds[0])), 1)

    async def _work(self, store: Store, actors: list[Any]) -> None:
        arms = [arm.number for arm in self.plan.arms()]
        before = [store.counts(number) for number in arms]
        self.progress.total = store.get("samples") * len(arms)
        self.progress.already = self.progress.done = sum(sum(each.values()) for each in before)
        for each in before:
            self.progress.statuses.update(each)
        scoring = store.scoring()
        spent = sum(store.usage().values(), scoring)
        self.progress.spent = spent
        places = self._places(store, arms, self.settings.budget.less(spent))
        started = time.perf_counter()
        self._begin("")
        try:
            async with asyncio.TaskGroup() as group:
                for place, actor in zip(places, actors, strict=False):
                    place.actor = actor
                    group.create_task(self._drive(store, place, places, actors))
        except BaseExceptionGroup as errors:
            raise next((each for each in errors.exceptions if isinstance(each, EvenhandError)), errors.exceptions[0])  # noqa: B904 - the group says no more
        finally:
            store.put(
                seconds=(store.get("seconds") or 0.0) + time.perf_counter() - started,
                scoring=asdict(sum((place.scoring for place in places), scoring)),
            )
        if any(place.stopped for place in places):
            self.progress.stopped = "the workers have used up their shares of the budget"

    def _places(self, store: Store, arms: Sequence[int], left: Limits) -> list[_Place]:
        """Deal the samples that are not done yet; workers that would get none are not needed."""
        shards = [array("q") for _ in range(self._workers)]
        number = 0

        def pending() -> Iterator[Sample]:
            nonlocal number
            last = 0
            for _, number, sample in store.pending(arms):
                if number != last:
                    last = number
                    yield sample

        for home, _ in dealt(pending(), self._workers):
            shards[home - 1].append(number)
        busy = [shard for shard in shards if shard]
        return [_Place(index, shard, left.shared(len(busy))) for index, shard in enumerate(busy, 1)]

    async def _drive(self, store: Store, place: _Place, places: Sequence[_Place], actors: list[Any]) -> None:
        """Have a shard run to its end, by as many workers as it takes."""
        while True:
            try:
                await self._seed(store, place)
                await self._take_in(store, place, places)
                return
            except Exception as error:
                if not is_lost(error):
                    raise
                place.deaths += 1
                reason = str(error).strip().partition("\n")[0]
                event("worker", f"worker {place.index} died: {reason}", level=logging.WARNING, worker=place.index)
                self._end(place.actor)
                if place.deaths >= _MOST_DEATHS:
                    text = f"Worker {place.index} died {place.deaths} times without a result: {reason}"
                    raise EndpointError(text, permanent=True) from error
                await asyncio.sleep(min(5.0, 0.1 * 2**place.deaths))
                place.actor = self._start()
                actors.append(place.actor)

    async def _seed(self, store: Store, place: _Place) -> None:
        """Send a worker its shard: samples that are not done, what was called for them, and what is known of models."""
        with scratch() as folder:
            with closing(Store(folder, create=True)) as seed:
                done = {
                    number
                    for (number,) in store.select(
                        "SELECT sample FROM outcomes GROUP BY sample HAVING COUNT(*) >= ?", len(self.plan.arms())
                    )
                }
                seed.copy_rows(store, [number for number in place.samples if number not in done])
                kept = ("identity", "plan", "options", "scorer", "arms", "learned")
                samples = next(seed.select("SELECT COUNT(*) FROM samples"))[0]
                facts = {name: store.get(name) for name in kept}
                seed.put(**{name: value for name, value in facts.items() if value is not None}, samples=samples)
                used = sum(seed.usage().values(), Usage())
                next(seed.select("PRAGMA wal_checkpoint(TRUNCATE)"))
            with (folder / FILE_NAME).open("rb") as file:
                while piece := file.read(_PIECE):
                    await place.actor.seed.remote(piece)
        limits = place.limits.less(place.spent).more(used)
        settings = replace(
            self.settings, resume=True, retry_failed=False, workers=None, on=None, origin={}, budget=limits
        )
        await place.actor.begin.remote(settings)

    async def _take_in(self, store: Store, place: _Place, places: Sequence[_Place]) -> None:
        """Store the worker's rows as they come; it goes on when it hears that they are stored."""
        taken = 0
        while True:
            news: News = await place.actor.news.remote(taken)
            rows, facts = Rows(), dict[str, Any]()
            for page in news.pages:
                rows += page.rows
                facts |= page.facts
                taken = page.number
            if rows.turns or rows.outcomes:
                await store.record_rows(rows)
                place.deaths = 0
            self._keep(store, place, facts)
            self._count(place, places, rows, news)
            if news.failure is not None and news.ended:
                raise news.failure.error()
            if news.ended:
                place.stopped = news.stopped
                return

    def _keep(self, store: Store, place: _Place, facts: dict[str, Any]) -> None:
        """Store what a shard has found out for the whole run."""
        if scoring := facts.pop("scoring", None):
            place.scoring = Usage(**scoring)
        for name in ("caveats", "notes"):
            if name in facts:
                facts[name] = sorted({*facts[name], *(store.get(name) or ())})
        if facts:
            store.put(**facts)

    def _count(self, place: _Place, places: Sequence[_Place], rows: Rows, news: News) -> None:
        used = sum(map(_usage, rows.turns), Usage())
        place.spent += used
        place.activity = news.activity
        progress = self.progress
        progress.spent += used
        progress.done += len(rows.outcomes)
        progress.statuses.update(row[2] for row in rows.outcomes)
        activity = progress.activity
        activity.calls, activity.held, activity.retries = (
            sum(each.activity[part] for each in places) for part in range(3)
        )
        self._tell()

    def _begin(self, stage: str) -> None:
        self.progress.stage = stage
        self._tell()

    def _tell(self) -> None:
        if self._observer is not None:
            self._observer(self.progress)


def _usage(turn: tuple[Any, ...]) -> Usage:
    """The usage of a row of the table of turns."""
    calls, cached, prompt, completion, thought, retries, cost = turn[4:11]
    return Usage(calls, prompt, completion, cached, retries, cost, thought)
