"""The runner: takes a plan through its samples, many at a time, and stores all that happens; spans and logs show it.

One bad sample never ends a run; what ends one is the budget, the user, a store that cannot be written, an endpoint that
has never worked, or a scorer that cannot work. Each of these leaves a run that can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import Benchmark, Selection, load_benchmark
from evenhand.core import otel
from evenhand.core.errors import BudgetExhausted, ModelError, StoreError, UsageError
from evenhand.core.events import counted_activity, event, log, set_place
from evenhand.core.options import Options
from evenhand.core.progress import Observer, Progress
from evenhand.core.tracing import Span, Value, active, span
from evenhand.core.types import (
    Generation,
    Message,
    Outcome,
    Params,
    Sample,
    Status,
    Turn,
)
from evenhand.core.version import versions
from evenhand.judging.card import card_caveats
from evenhand.judging.certificate import certificate_of
from evenhand.judging.judge import JUDGE
from evenhand.methods.base import Method
from evenhand.models.base import HOPELESS, Model, close_all
from evenhand.models.budget import Budget
from evenhand.models.cache import ResponseCache
from evenhand.models.ray.connect import set_address
from evenhand.models.request import request_key, stored_params
from evenhand.runs import own
from evenhand.runs.controls import certify, due_before, off_caveat, steering_caveats
from evenhand.runs.parts import (
    WAVE,
    LoadedArm,
    Settings,
    check_batches,
    check_plan,
    load_arm,
    load_models,
    loaded_model,
    more_than,
    opened_cache,
    scorer_id,
    session_settings,
    side_by_side,
)
from evenhand.runs.plan import Arm, Plan, identity
from evenhand.runs.pools import MILD, ScorerPool, SearchPool, about_scorer, check_scorers, graded, results_of, scores_of
from evenhand.runs.shards import code_hash, numbered
from evenhand.runs.store import FINAL, Finished, Scored, Store, unreadable
from evenhand.runs.stored import opened, rare_collections
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.session import BASE, Session


class Runner:
    """One execution of one plan in one directory."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        settings: Settings,
        observer: Observer | None = None,
        make_store: Callable[..., Store] = Store,
        check: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.plan = plan
        self.directory = directory
        self.settings = settings
        self.progress = Progress()
        self._observer = observer
        self._make_store = make_store
        self._check = check
        """Gets the facts of the plan before anything is stored or called; what it raises ends the run."""
        self._benchmark: Benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
        self._graded_by = scorer_id(self._benchmark)
        self._pool: ScorerPool | None = None
        self._searches = SearchPool(settings.cache)
        self._scorers: list[Scorer] = []
        self._replay = False
        self._judged: set[int] = set()
        """The arms in which a judge was asked."""
        self._calls_succeeded = 0
        self._reported: set[tuple[str, str]] = set()
        """(model, what its endpoint reported about itself)."""
        self._endpoint_failures = 0
        self._cache: ResponseCache | None = None
        self._models: list[Model] = []
        self._learned: list[Mapping[str, Any]] = []
        self._stop = asyncio.Event()
        self._fatal: Exception | None = None
        self._budget = Budget(settings.budget)

    async def run(self) -> Progress:
        """Run all pending samples; raise only errors that the user must fix."""
        with self.plan.prompts().used():
            async with traced_run(self.plan, self.directory, wanted=self.settings.otel):
                return await self._run()

    async def describe(self) -> dict[str, Any]:
        """What would be stored with the plan, and the hash of the code; models are loaded, but not called."""
        with self.plan.prompts().used():
            async with self._loaded() as (_, _, facts):
                return {**facts, "code": code_hash()}

    async def _run(self) -> Progress:
        self.progress.activity = counted_activity()
        budget = self._budget
        try:
            async with self._loaded() as (arms, models, facts):
                if self._check is not None:
                    self._check(facts)
                with opened(self.directory, self.settings, facts, self._samples, self._make_store) as store:
                    self._replay = store.has_answers()
                    if self._cache is not None:
                        self._cache.scope = store.get("scope") or self._cache.scope
                    self._models = list(models.values())
                    self._learned = store.get("learned") or []
                    for model, learned in zip(self._models, self._learned, strict=False):
                        model.recall(learned)
                    budget.spent = sum(store.usage().values(), store.scoring())
                    loaded = [load_arm(arm, method, options, models) for arm, method, options in arms]
                    self._scores_in(store)
                    if await self._checked(store, loaded):
                        await self._work(store, loaded, budget)
                    if self._fatal is not None:
                        raise self._fatal
        except sqlite3.Error as error:
            raise unreadable(self.directory, error) from error
        return self.progress

    async def _checked(self, store: Store, arms: Sequence[LoadedArm]) -> bool:
        """Check by controls what the metrics rest on, and store the certificates; False if the budget ends there.

        Workers of a cluster leave this to the run that they belong to.
        """
        if self._make_store is not Store or store.get("certificates") is not None:
            return True
        due = due_before(self.plan, self._benchmark, self._scorers, arms, recorded=self._pool and self._pool.recorded)
        if not due:
            return True
        self._begin("checking judges and scorers with controls")
        try:
            found = await certify(due)
        except BudgetExhausted as error:
            self.progress.stopped = str(error)
            return False
        store.put(certificates=[each.note() for each in found])
        return True

    @contextlib.asynccontextmanager
    async def _loaded(
        self,
    ) -> AsyncGenerator[tuple[list[tuple[Arm, Method, Options]], dict[str, Model], dict[str, Any]]]:
        """The arms, the models by key, and the facts of the plan; models and scorers are closed at the end."""
        if self.settings.on is not None:
            set_address(self.settings.on)
        arms = check_plan(self.plan, self._benchmark)
        resolved = {str(arm.number): options.model_dump(mode="json") for arm, _, options in arms}
        cache = self._cache = opened_cache(self.settings)
        models: dict[str, Model] = {}
        try:
            specs = dict.fromkeys(model.spec for assigned in self.plan.models for model in assigned.values())
            self._begin(f"loading {', '.join(specs)}")
            check_batches(self.plan, self.settings)
            models = load_models(self.plan, self.settings, cache, self._budget, self.directory)
            self._pool = ScorerPool(
                self.plan,
                models,
                lambda model: loaded_model(model, self.settings, cache, self._budget, self.directory),
            )
            specs = self._benchmark.scorers if self.plan.scorers is None else self.plan.scorers
            self._scorers = [self._pool.get(spec) for spec in specs]
            check_scorers(self._scorers, self._benchmark.kind)
            for _, _, options in arms:
                self._pool.load_for(options)
                self._searches.load_for(options)
            self._begin(f"reading {self.plan.benchmark}")
            yield arms, models, self._facts(models, resolved)
        finally:
            if self._pool is not None:
                await self._pool.aclose()
            await self._searches.aclose()
            await close_all(list(models.values()))
            if cache is not None:
                cache.close()

    def _facts(self, models: Mapping[str, Model], options: Mapping[str, Any]) -> dict[str, Any]:
        """What identifies the plan and is stored with it; `options` are those of every arm, defaults included."""
        fingerprints = {key: model.fingerprint() for key, model in models.items()}
        searched = self._searches.fingerprints()
        benchmark = self._benchmark.fingerprint()
        return {
            "identity": identity(self.plan, benchmark, fingerprints, searched),
            "plan": self.plan.model_dump(),
            "options": options,
            "benchmark": dict(benchmark),
            "models": [dict(value) for value in fingerprints.values()],
            "searches": searched,
            "files": self.plan.files(),
            "versions": versions(),
            **({} if self.settings.shard is None else {"code": code_hash()}),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "scope": self.settings.scope or uuid.uuid4().hex,
            "scorer": self._graded_by,
            "scorers": {scorer.id: about_scorer(scorer, planned=True) for scorer in self._scorers},
            "arms": {str(arm.number): arm.label for arm in self.plan.arms()},
            "summaries": own.method_summaries([each.name for each in self.plan.methods]),
            **({"described": own.described(self._benchmark)} if own.is_own(self._benchmark) else {}),
        }

    def _samples(self) -> Iterator[tuple[int, Sample]]:
        return numbered(self._benchmark.samples(Selection(self.plan.limit, self.plan.seeds[0])), self.settings.shard)

    async def _work(self, store: Store, arms: Sequence[LoadedArm], budget: Budget) -> None:
        by_number = {each.arm.number: each for each in arms}
        self.progress.go_on_from(map(store.counts, by_number), store.get("samples") * len(arms))
        todo = store.pending(list(by_number))
        started = time.perf_counter()
        self.progress.stage = ""
        self._tell(budget)
        many = WAVE if self.settings.in_batches else side_by_side(arms, self.settings.concurrency)
        workers = min(many, max(1, self.progress.total - self.progress.done))
        try:
            with rare_collections():
                async with asyncio.TaskGroup() as group:
                    for _ in range(workers):
                        group.create_task(self._worker(store, by_number, todo, budget))
        finally:
            earlier = store.get("seconds") or 0.0
            with contextlib.suppress(StoreError):
                caveats = {each for arm in arms for model in arm.models.values() for each in model.caveats()}
                caveats.update(self._searches.caveats())
                caveats.update(self._about_judges(arms))
                caveats.update(off_caveat(self.plan, self._benchmark))
                caveats.update(steering_caveats([certificate_of(each) for each in store.get("certificates") or ()]))
                caveats.update(each.caveat for each in self.plan.fitted() if each.caveat)
                caveats.update([] if self.settings.shard is None else [self.settings.shard.caveat])
                caveats.update(store.get("caveats") or ())
                notes = {each for arm in arms for model in arm.models.values() for each in model.notes()}
                notes.update(f"{spec} reported the fingerprint {name}" for spec, name in self._reported)
                notes.update(store.get("notes") or ())
                caveats.update(filter(None, [store.damage()]))
                store.put(
                    seconds=earlier + time.perf_counter() - started,
                    caveats=sorted(caveats),
                    notes=sorted(notes),
                )

    async def _worker(
        self,
        store: Store,
        arms: Mapping[int, LoadedArm],
        todo: Iterator[tuple[int, int, Sample]],
        budget: Budget,
    ) -> None:
        while not self._stop.is_set():
            try:
                task = next(todo, None)
                if task is None:
                    return
                number, sample_number, sample = task
                about: dict[str, Value] = {"evenhand.sample.id": sample.id, "evenhand.arm": arms[number].arm.label}
                with span("sample", about) as traced:
                    finished = await self._one(store, arms[number], sample_number, sample)
                    told(traced, self.plan.benchmark, finished)
                finished = await _stored(store, finished)
            except BudgetExhausted as error:
                self.progress.stopped = str(error)
                event("stop", f"the run stops: {error}", reason=str(error))
                self._stop.set()
                return
            except (UsageError, StoreError, ModelError) as error:
                self._fatal = self._fatal or error
                self._stop.set()
                return
            except sqlite3.Error as error:
                self._fatal = self._fatal or unreadable(self.directory, error)
                self._stop.set()
                return
            self.progress.done += 1
            self.progress.statuses[finished.status] += 1
            self._tell(budget)

    def _scores_in(self, store: Store) -> None:
        """Have the calls of scorers and controls recorded; as many are under way at once as calls of samples."""
        assert self._pool is not None
        calls = self.settings.concurrency * max(model.endpoints for model in self._models)
        at_once = WAVE if self.settings.in_batches else more_than(calls)
        self._pool.record_in(store, at_once, lambda: self._remember(store), resume=self._replay)

    def _remember(self, store: Store) -> None:
        """Store what calls have shown about the models before any of them, so that a resumed run asks as this one."""
        learned = [model.learned() for model in self._models]
        if any(learned) and learned != self._learned:
            self._learned = learned
            store.put(learned=learned)

    async def _one(self, store: Store, arm: LoadedArm, number: int, sample: Sample) -> Finished:
        """Run one sample under one arm, from the question to the grade."""
        started = time.perf_counter()
        set_place(run=str(self.directory), arm=arm.arm.label, sample=sample.id)
        session = self._session(store, arm, number, sample)
        outcome: Outcome | None = None
        scores: list[Scored] = []
        try:
            outcome = await self._answered(arm, sample, session)
            scores = await self._graded(sample, outcome)
            status, reason = scores[0].status, scores[0].reason
        except (BudgetExhausted, UsageError, StoreError):
            raise
        except ModelError as error:
            self._give_up_if_hopeless(error)
            status, reason = "failed", str(error)
        except (Exception, asyncio.CancelledError) as error:
            # A method's or grader's own fault on one sample is that sample's failure, not the run's; so is a
            # cancellation that nobody asked this task for (some libraries time out that way).
            if _is_cancelled(error):
                raise
            status, reason = "failed", f"{type(error).__name__} in {arm.method.name}: {error}"
        seconds = time.perf_counter() - started
        log_sample(status, reason, seconds)
        scores = [*scores, *own.counts(self._benchmark, sample, status, reason, scores)]
        return Finished(number, arm.arm.number, status, reason, seconds, outcome, scores, session.readings)

    async def _answered(self, arm: LoadedArm, sample: Sample, session: Session) -> Outcome:
        """Return the answer; imported ones are there already."""
        return await arm.method.run(sample, session)

    def _session(self, store: Store, arm: LoadedArm, number: int, sample: Sample) -> Session:
        made_already: dict[bytes, list[Generation]] = {}
        if self._replay:
            for key, turn in store.turns(number, arm.arm.number):
                if turn.generation is not None:
                    made_already.setdefault(key, []).append(turn.generation)

        def key_of(role: str, messages: Sequence[Message], params: Params) -> bytes:
            name = role if role in arm.models else BASE
            return request_key(arm.identities[name], messages, stored_params(arm.models[name], params))

        def look_up(role: str, messages: Sequence[Message], params: Params) -> Generation | None:
            found = made_already.get(key_of(role, messages, params))
            if not found and params.again:  # runs of older versions did not count repeated requests
                found = made_already.get(key_of(role, messages, replace(params, again=0)))
            return found.pop(0) if found else None

        async def on_turn(turn: Turn) -> None:
            if turn.generation is not None:
                self._calls_succeeded += 1
                if turn.generation.fingerprint:
                    self._reported.add((turn.generation.model, turn.generation.fingerprint))
            if turn.role == JUDGE:
                self._judged.add(arm.arm.number)
            self.progress.spent = self._budget.spent
            log_call(turn)
            key = key_of(turn.role, turn.messages, turn.params)
            self._remember(store)
            await store.record_turn(number, arm.arm.number, key, turn)

        return Session(
            sample,
            arm.models,
            arm.arm.seed,
            arm.options,
            on_turn=on_turn,
            look_up=look_up if made_already else None,
            scorers=self._pool.get if self._pool else load_scorer,
            searches=self._searches.get,
            **session_settings(self.plan),
        )

    def _about_judges(self, arms: Sequence[LoadedArm]) -> Iterator[str]:
        """Yield a caveat for each model that rates its own answers, and for each judge without a card that is fit."""
        for loaded in (each for each in arms if each.arm.number in self._judged):
            arm, judge = loaded.arm, loaded.arm.judge
            another = "name another model as judge"
            if judge.is_same(arm.models["base"]):
                yield f"The judge of {arm.method.name} is the audited model itself ({judge.spec}), {MILD}{another}"
            test = loaded.method.calibration
            yield from card_caveats(arm.method.name, loaded.options, judge.spec, test, self._benchmark.kind)
        if self._pool is not None:
            yield from self._pool.caveats()

    async def _graded(self, sample: Sample, outcome: Outcome) -> list[Scored]:
        """The benchmark's grade of the final result, first, and of each iteration's; then what the scorers say."""
        results = results_of(outcome)
        rows = [graded(self._benchmark, sample, outcome, *each) for each in results]
        for scorer in self._scorers:
            rows += await scores_of(scorer, sample, results, self._benchmark.scored_text)
        return rows

    def _give_up_if_hopeless(self, error: ModelError) -> None:
        """Stop the run if the endpoint has never answered: then the plan is wrong, not the samples."""
        if self._calls_succeeded == 0:
            self._endpoint_failures += 1
            if error.permanent:
                raise error
            if self._endpoint_failures >= HOPELESS:
                error.exit_code = 4
                raise error

    def _begin(self, stage: str) -> None:
        self.progress.stage = stage
        event("stage", stage, level=logging.DEBUG, run=str(self.directory))
        if self._observer is not None:
            self._observer(self.progress)

    def _tell(self, budget: Budget) -> None:
        self.progress.spent = budget.spent
        if self._observer is not None:
            self._observer(self.progress)


async def _stored(store: Store, finished: Finished) -> Finished:
    """Store the outcome; one that cannot be stored is recorded as a failure of its method."""
    try:
        await store.record_outcome(finished)
    except TypeError as error:
        reason = f"the outcome cannot be stored: {error}"
        finished = replace(finished, status="failed", reason=reason, outcome=None, scores=())
        await store.record_outcome(finished)
    return finished


def _is_cancelled(error: BaseException) -> bool:
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


RESULT = "gen_ai.evaluation.result"
"""The event of OpenTelemetry's conventions for generative AI."""


@asynccontextmanager
async def traced_run(plan: Plan, directory: Path, *, wanted: bool) -> AsyncGenerator[None]:
    """The span of a run, exported if that is wanted or the environment names a collector."""
    telemetry = otel.load_telemetry(wanted=wanted)
    if telemetry is None:
        yield
        return
    models = sorted({model.spec for model in plan.every_model()})
    root = telemetry.root(
        f"evaluate {plan.benchmark}",
        "internal",
        {
            "evenhand.benchmark": plan.benchmark,
            "evenhand.run": directory.name,
            "evenhand.models": models,
            "evenhand.methods": [method.name for method in plan.methods],
        },
    )
    try:
        with active(root):
            yield
    except BaseException as error:
        root.fail(type(error).__name__)
        raise
    finally:
        root.end()
        await asyncio.to_thread(telemetry.close)


def told(span: Span | None, benchmark: str, finished: Finished) -> None:
    """Tell a sample's span how it ended, with an event for each score, or one with the status if there is no grade."""
    if span is None:
        return
    span.set({"evenhand.status": finished.status})
    if finished.status == "failed":
        span.fail("failed")
    final = [row for row in finished.scores if row.iteration == FINAL]
    if finished.status != "graded":
        span.event(RESULT, {"gen_ai.evaluation.name": benchmark, "gen_ai.evaluation.score.label": finished.status})
    for name, value in _scores(benchmark, final):
        label: dict[str, Value] = {}
        if isinstance(value, bool):
            label = {"gen_ai.evaluation.score.label": "yes" if value else "no"}
        span.event(
            RESULT,
            {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(value), **label},
        )


def _scores(benchmark: str, rows: Sequence[Scored]) -> list[tuple[str, float | bool]]:
    """`BENCHMARK/VALUE` of a grade's yes-or-no values and fractions, `SCORER/ATTRIBUTE` of scores of texts."""
    found: list[tuple[str, float | bool]] = []
    for row in rows:
        scorer = row.scorer.partition("@")[0]
        found += [
            (f"{benchmark if row is rows[0] else scorer}/{name}", value)
            for name, value in (row.values or {}).items()
            if isinstance(value, bool | float)
        ]
    return found


_UNGRADED: Mapping[Status, str] = {"failed": "failure", "unscored": "unscored", "cut": "cut"}
"""The names of the events of samples that are neither graded nor refused."""


def log_sample(status: Status, reason: str | None, seconds: float) -> None:
    name = _UNGRADED.get(status, "sample")
    level = logging.INFO if status in _UNGRADED else logging.DEBUG
    event(name, f"{status}: {reason}" if reason else status, level=level, status=status, seconds=round(seconds, 3))


def log_call(turn: Turn) -> None:
    """Log a call with its texts, at the level DEBUG."""
    if not log.isEnabledFor(logging.DEBUG):  # the texts of every call cost as much as storing it
        return
    generation = turn.generation
    fields: dict[str, Any] = {"agent": turn.agent, "role": turn.role, "prompt": turn.prompt_id, "error": turn.error}
    if generation is not None:
        fields |= {
            "model": generation.model,
            "tokens": generation.usage.tokens,
            "seconds": round(generation.latency, 3),
        }
        fields["cached"] = generation.cached
    texts = {"messages": [asdict(each) for each in turn.messages], "reply": generation.text if generation else None}
    event("call", turn.error or "answered", level=logging.DEBUG, texts=texts, **fields)
