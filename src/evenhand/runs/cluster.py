"""A run on Ray: workers on any node share the samples, and the driver stores what they have done in one run.

The driver is the only writer of the run. It deals the samples that are not done yet to the workers, whole clusters to
each, and takes in their rows as they are made. A worker is an actor that runs a shard of the plan on a store of its
own; one that dies is replaced by one that begins with its rows. A row counts as committed when the driver has it, so a
call is repeated only if it was in flight when its worker died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import EndpointError, EvenhandError, PlanError, UsageError
from evenhand.core.events import Activity, event
from evenhand.core.files import scratch
from evenhand.core.progress import Observer, Progress
from evenhand.core.types import Sample, Usage
from evenhand.models.budget import Limits
from evenhand.models.ray.connect import check_resources, connect, end, enter, is_lost, set_address
from evenhand.models.ray.replica import Failure
from evenhand.runs.parts import Settings, check_plan
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.shards import code_hash, dealt
from evenhand.runs.store import FILE_NAME, NO_SAMPLE, Rows, Store
from evenhand.runs.stored import check_directory, opened

_SHARED = ("learned", "caveats", "notes")
"""Facts of a shard that belong to the run."""


@dataclass(slots=True)
class Page:
    """What a worker has done since its last page."""

    number: int
    rows: Rows = field(default_factory=Rows)
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class News:
    """The pages that the driver does not have yet, and how the worker is doing."""

    pages: list[Page]
    activity: tuple[int, int, int]
    """Calls, calls that are held, and retries."""
    ended: bool = False
    stopped: str | None = None
    """Why it ended early."""
    failure: Failure | None = None


class _Outbox:
    """Pages that wait for the driver to say that it has them."""

    def __init__(self) -> None:
        self._pages: deque[tuple[Page, asyncio.Future[None]]] = deque()
        self._count = 0
        self._news = asyncio.Event()

    def add(self, rows: Rows | None = None, facts: dict[str, Any] | None = None) -> asyncio.Future[None]:
        """Add a page; return once the driver has received it."""
        self._count += 1
        taken = asyncio.get_running_loop().create_future()
        self._pages.append((Page(self._count, rows or Rows(), facts or {}), taken))
        self._news.set()
        return taken

    async def pages(self, acknowledged: int, *, wait: bool) -> list[Page]:
        """Drop what the driver has, and return all other pages; if there are none, `wait` for news."""
        while self._pages and self._pages[0][0].number <= acknowledged:
            taken = self._pages.popleft()[1]
            if not taken.done():
                taken.set_result(None)
        if not self._pages and wait:
            self._news.clear()
            await self._news.wait()
        return [page for page, _ in self._pages]

    def wake(self) -> None:
        self._news.set()


class _MirroredStore(Store):
    """A store whose rows count as committed when the driver has them, too."""

    def __init__(self, directory: Path, *, outbox: _Outbox, **options: Any) -> None:
        super().__init__(directory, **options)
        self._outbox = outbox

    def put(self, **facts: Any) -> None:
        super().put(**facts)
        if shared := {name: value for name, value in facts.items() if name in _SHARED}:
            self._outbox.add(facts=shared)

    async def _sent(self, rows: Rows) -> None:
        await self._outbox.add(rows)


class Worker:
    """The actor. Its methods are called in this order: `describe`, `seed` for each piece of a file, `begin`, `news`."""

    def __init__(self, plan: Mapping[str, Any], settings: Settings, folder: str) -> None:
        enter(folder)
        self._plan = plan
        self._settings = settings
        self._scratch = ExitStack()
        self._directory = self._scratch.enter_context(scratch())
        self._progress = Progress()
        self._outbox: _Outbox | None = None
        self._work: asyncio.Task[None] | None = None
        self._ended: tuple[str | None, Failure | None] | None = None

    async def describe(self) -> dict[str, Any] | Failure:
        """The facts of the plan as this machine sees them: data, models, versions and code."""
        try:
            return await Runner(make_plan(self._plan), self._directory, self._settings).describe()
        except Exception as error:
            return Failure.of(error)

    async def seed(self, piece: bytes) -> None:
        """Take the next piece of the shard's store, which holds its samples and what was done of them."""
        with (self._directory / FILE_NAME).open("ab") as file:
            file.write(piece)

    async def begin(self, settings: Settings) -> None:
        """Run the shard, in the background."""
        self._outbox = _Outbox()
        self._work = asyncio.ensure_future(self._run(settings, self._outbox))

    async def news(self, acknowledged: int) -> News:
        """Wait for pages after the acknowledged one, or for the end."""
        assert self._outbox is not None
        pages = await self._outbox.pages(acknowledged, wait=self._ended is None)
        stopped, failure = self._ended or (None, None)
        ended = self._ended is not None and not pages
        activity: Activity = self._progress.activity
        if ended:
            self._scratch.close()
        return News(pages, (activity.calls, activity.held, activity.retries), ended, stopped, failure)

    async def _run(self, settings: Settings, outbox: _Outbox) -> None:
        runner = Runner(
            make_plan(self._plan), self._directory, settings, self._observe, partial(_MirroredStore, outbox=outbox)
        )
        stopped: str | None = None
        failure: Failure | None = None
        try:
            stopped = (await runner.run()).stopped
        except Exception as error:
            failure = Failure.of(error)
        finally:
            self._ended = (stopped, failure)
            with contextlib.suppress(RuntimeError):
                outbox.wake()

    def _observe(self, progress: Progress) -> None:
        self._progress = progress


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
                end(self._ray, each)
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
        self.progress.go_on_from(map(store.counts, arms), store.get("samples") * len(arms))
        spent = sum(store.usage().values(), store.scoring())
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
            store.put(seconds=(store.get("seconds") or 0.0) + time.perf_counter() - started)
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
                end(self._ray, place.actor)
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
                seed.copy_rows(store, [NO_SAMPLE, *(number for number in place.samples if number not in done)])
                kept = ("identity", "plan", "options", "scorer", "arms", "learned", "scope")
                samples = next(seed.select("SELECT COUNT(*) FROM samples"))[0]
                facts = {name: store.get(name) for name in kept}
                seed.put(**{name: value for name, value in facts.items() if value is not None}, samples=samples)
                used = sum(seed.usage().values(), seed.scoring())
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
            self._keep(store, facts)
            self._count(place, places, rows, news)
            if news.failure is not None and news.ended:
                raise news.failure.error()
            if news.ended:
                place.stopped = news.stopped
                return

    def _keep(self, store: Store, facts: dict[str, Any]) -> None:
        """Store what a shard has found out for the whole run."""
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
