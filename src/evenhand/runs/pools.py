"""The scorers and searches of a run: loaded once and shared by methods and grading; and how results are graded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.benchmarks.base import BENCHMARKS, Benchmark
from evenhand.core.errors import EndpointError, EvenhandError, PlanError, UsageError
from evenhand.core.language import UNREAD
from evenhand.core.options import Options
from evenhand.core.specs import spec_parts
from evenhand.core.types import (
    Answer,
    Cut,
    Generation,
    Grade,
    Message,
    Outcome,
    Params,
    Refusal,
    Result,
    Sample,
    Turn,
    Unscored,
)
from evenhand.judging.judge import JUDGE
from evenhand.judging.scorers import rubric_of
from evenhand.methods.base import METHODS
from evenhand.models.base import BorrowedModel, Model, close_all
from evenhand.models.request import model_identity, request_key, stored_params
from evenhand.runs.parts import model_key, scorer_id
from evenhand.runs.plan import ModelPlan, Plan
from evenhand.runs.store import FINAL, NO_SAMPLE, Scored, Store
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.scorers.pool import PooledScorer

if TYPE_CHECKING:
    from evenhand.search.searcher import Searcher


OPTIONS = ("search", "provider")
"""Options of methods that name a search."""
_SEARCHES = "searches.sqlite"
"""Of what was found, beside the cache of responses."""


class SearchPool:
    """Searches by spec; `responses` is the cache of responses, or None where nothing is to be remembered."""

    def __init__(self, responses: Path | None) -> None:
        self._cache = responses.with_name(_SEARCHES) if responses else None
        self._searches: dict[str, Searcher] = {}

    def get(self, spec: str) -> Searcher:
        """Return the search named by `spec`; load it on first use."""
        from evenhand.search.searcher import load_search

        if spec not in self._searches:
            self._searches[spec] = load_search(spec, self._cache)
        return self._searches[spec]

    def load_for(self, options: Options) -> None:
        """Load the searches that a method's options name, so that mistakes are reported before the first call."""
        for name in OPTIONS:
            if spec := getattr(options, name, None):
                self.get(str(spec))

    def fingerprints(self) -> dict[str, Mapping[str, Any]]:
        return {spec: dict(search.fingerprint()) for spec, search in sorted(self._searches.items())}

    def caveats(self) -> list[str]:
        return [caveat for search in self._searches.values() for caveat in search.caveats()]

    async def aclose(self) -> None:
        await asyncio.gather(*(search.aclose() for search in self._searches.values()), return_exceptions=True)


MILD = "which may be too mild with its own answers; "


class _Recorded(BorrowedModel):
    """A model of the run as scorers and controls ask it: a call belongs to no sample, and is recorded all the same."""

    def __init__(self, inner: Model, pool: ScorerPool) -> None:
        super().__init__(inner)
        self.preamble = inner.preamble
        self._pool = pool
        self._identity = model_identity(inner.fingerprint())

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if (made := self._pool.made(self._key(messages, params))) is not None:
            return made
        async with self._pool.at_once:
            request = ("scorer", "scorer", "", "", tuple(messages), params)
            try:
                generation = await self.inner.generate(messages, params)
            except EvenhandError as error:
                if error.spent:
                    spent, error.spent = error.spent, None
                    await self._pool.record(b"", Turn(*request, None, str(error), spent))
                raise
            await self._pool.record(self._key(messages, params), Turn(*request, generation))
        return generation

    def _key(self, messages: Sequence[Message], params: Params) -> bytes:
        return request_key(self._identity, messages, stored_params(self.inner, params))


def steered(plan: Plan) -> list[str]:
    """The methods of the plan that a judge steers, so that its own ratings would flatter them."""
    kind = BENCHMARKS.get(plan.benchmark).kind
    found: list[str] = []
    for each in plan.methods:
        method = METHODS.get(each.name)
        used = method.revision and method.revision.evaluators(kind, method.with_options(each.options))
        if JUDGE in method.roles and (not used or not all(evaluator.free for evaluator in used)):
            found.append(each.name)
    return list(dict.fromkeys(found))


def rater(plan: Plan) -> ModelPlan:
    """The model of scorers that name none: the judge, unless it steers a method; else the base model."""
    first = plan.models[0]
    return first["base"] if steered(plan) else first.get(JUDGE, first["base"])


class ScorerPool:
    """Scorers by spec. Those that need a model use the run's own if it has it; `load` loads others."""

    def __init__(self, plan: Plan, models: Mapping[str, Model], load: Callable[[ModelPlan], Model]) -> None:
        """`models` are the run's own, by `model_key`."""
        self._default = rater(plan).spec
        """The model of scorers whose spec names none: one for all arms, so that their scores are comparable."""
        self._plan = plan
        self._shared = dict(models)
        self._load = load
        self.judges: dict[str, ModelPlan] = {}
        """Scorer → the model that it asks."""
        self._scorers: dict[str, Scorer] = {}
        self._own: list[Model] = []
        self.at_once: AbstractAsyncContextManager[None] = nullcontext()
        self._store: Store | None = None
        self._remember: Callable[[], None] | None = None
        self._made: dict[bytes, list[int]] = {}
        """The calls that an interrupted run already made."""
        self.earlier: Counter[str] = Counter()
        """Day → how many answers to these calls were recorded then, in earlier runs."""

    def record_in(
        self, store: Store, at_once: int, remember: Callable[[], None] | None = None, *, resume: bool = False
    ) -> None:
        """Record all calls in a run; if it is resumed, those that it has are not repeated.

        `at_once` calls are under way or being stored; `remember` is called before each one is stored.
        """
        self._store = store
        self._remember = remember
        self.at_once = asyncio.Semaphore(at_once)
        self._made = store.calls_of_scorers() if resume else {}

    def made(self, key: bytes) -> Generation | None:
        """The stored answer to a call, once for each time that it was made."""
        turn = self._store.turn(self._made[key].pop()) if self._store and self._made.get(key) else None
        return turn and turn.generation

    async def record(self, key: bytes, turn: Turn) -> None:
        if turn.generation and turn.generation.recorded is not None:
            self.earlier[time.strftime("%Y-%m-%d", time.gmtime(turn.generation.recorded))] += 1
        if self._remember is not None:
            self._remember()
        if self._store is not None:
            await self._store.record_turn(NO_SAMPLE, NO_SAMPLE, key, turn)

    def recorded(self, model: Model) -> Model:
        """The model with its calls recorded outside of samples."""
        return _Recorded(model, self)

    def get(self, spec: str) -> Scorer:
        """Return the scorer named by `spec`; load it on first use."""
        if spec not in self._scorers:
            load = partial(self._model, spec)
            self._scorers[spec] = PooledScorer(load_scorer(spec, load, self._default))
        return self._scorers[spec]

    def load_for(self, options: Options) -> None:
        """Load the scorer that a method's options name, so that mistakes are reported before the first call."""
        if spec := getattr(options, "scorer", None):
            self.get(spec)

    def caveats(self) -> list[str]:
        """Return what to know of scorers that ask the audited model itself, or a judge that steers a method."""
        assignments = self._plan.models
        found: list[str] = []
        for scorer, judge in self.judges.items():
            name = spec_parts(scorer)[0]
            who, another = (
                f"The judge behind the scorer {name}:{judge.spec}",
                f"name another, as in --scorer {name}:SPEC",
            )
            if any(judge.is_same(models["base"]) for models in assignments):
                found.append(f"{who} is the audited model itself, {MILD}{another}")
            if any(judge.is_same(models.get(JUDGE, models["base"])) for models in assignments):
                found += [f"{who} also steers {method}; {another}" for method in steered(self._plan)]
        if self.earlier:
            days = " and ".join(f"{n:,} on {day}" for day, n in sorted(self.earlier.items()))
            found.append(f"Answers to scorers that were recorded in earlier runs: {days}")
        return found

    def _model(self, scorer: str, spec: str) -> Model:
        plan = self._plan.model_named(spec)
        key = model_key(plan)
        if key not in self._shared:
            self._shared[key] = self._load(plan)
            self._own.append(self._shared[key])
        self.judges[scorer] = plan
        return self.recorded(self._shared[key])

    async def aclose(self) -> None:
        await asyncio.gather(*(scorer.aclose() for scorer in self._scorers.values()), return_exceptions=True)
        await close_all(self._own)


def check_scorers(scorers: Sequence[Scorer], kind: str) -> None:
    """Refuse scorers that score the same attribute, or that have no text to score."""
    if scorers and kind == "choice":
        raise PlanError("Scorers rate texts, but the answers of this benchmark are choices; remove --scorer.")
    given: dict[str, str] = {}
    for scorer in scorers:
        for attribute in scorer.attributes:
            if attribute in given:
                raise PlanError(
                    f"{given[attribute]} and {scorer.spec} both score {attribute}; name one, and add the other's "
                    "scores later with `evenhand run rescore`."
                )
            given[attribute] = scorer.spec


def about_scorer(scorer: Scorer, *, planned: bool) -> dict[str, Any]:
    """Return the facts that a run stores about a scorer, by its id."""
    about: dict[str, Any] = {
        "spec": scorer.spec,
        "attributes": list(scorer.attributes),
        "languages": list(scorer.languages),
    }
    if (rubric := rubric_of(scorer)) is not None:
        about["criteria"] = [
            {"name": each.name, "title": each.title, "better": each.better} for each in rubric.criteria
        ]
    return {**about, "planned": planned, "fingerprint": dict(scorer.fingerprint())}


def results_of(outcome: Outcome) -> list[tuple[int, Result]]:
    """The results that are graded: the final one, and the one after each iteration."""
    return [(FINAL, outcome.result), *((each.iteration, each.result) for each in outcome.snapshots)]


def graded(benchmark: Benchmark, sample: Sample, outcome: Outcome, iteration: int, result: Result) -> Scored:
    """The benchmark's grade of the final result, or of the one after an iteration; only an answer is graded."""
    grader = scorer_id(benchmark)
    if isinstance(result, Refusal):
        return Scored(grader, iteration, "refused", "the model declined to answer")
    if isinstance(result, Answer):
        if (unread := result.details.get(UNREAD)) and not benchmark.judges_refusals:
            return Scored(grader, iteration, "unscored", unread)
        notes = next((each.notes for each in outcome.snapshots if each.iteration == iteration), outcome.notes)
        grade = benchmark.grade(sample, outcome if iteration == FINAL else Outcome(result, notes=notes))
        if isinstance(grade, Grade):
            return Scored(grader, iteration, "graded", None, grade.values)
        return Scored(grader, iteration, "unscored", grade.reason)
    return Scored(grader, iteration, "cut" if isinstance(result, Cut) else "unscored", result.reason)


async def scores_of(
    scorer: Scorer,
    sample: Sample,
    results: Sequence[tuple[int, Result]],
    shown: Callable[[Sample, str], str],
) -> list[Scored]:
    """The scorer's rows for those of the results that are texts; a scorer that fails leaves its reason, no number.

    `shown` is the benchmark's `scored_text`.
    """
    texts = [(iteration, shown(sample, result.text)) for iteration, result in results if isinstance(result, Answer)]
    if not texts:
        return []
    prompt = scorer.context_of(sample, shown(sample, sample.prompt))
    try:
        found = await scorer.score([text for _, text in texts], [prompt] * len(texts))
    except EndpointError as error:
        if error.permanent:
            # The error concerns every text; going on would spend calls on answers that cannot be scored.
            raise UsageError(f"The scorer {scorer.spec} does not work: {error}") from error
        found: Sequence[Scores | Unscored] = [Unscored(str(error))] * len(texts)
    return [
        Scored(scorer.id, iteration, "unscored", each.reason)
        if isinstance(each, Unscored)
        else Scored(scorer.id, iteration, "graded", None, each)
        for (iteration, _), each in zip(texts, found, strict=True)
    ]
