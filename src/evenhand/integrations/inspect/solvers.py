"""Methods as solvers of Inspect, for our tasks and for any other task with choices or a conversation of text.

Inspect's models become ours, by role; the scorers and searches are shared by the samples of an evaluation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from inspect_ai.model import get_model, model_roles
from inspect_ai.solver import Generate, Solver, TaskState, solver

from evenhand.core.errors import PlanError
from evenhand.integrations.inspect.samples import keep_outcome, plain_errors, sample_of
from evenhand.judging.judge import JUDGE
from evenhand.methods.base import METHODS, Method, check_fit
from evenhand.models.base import Model, ModelOptions
from evenhand.models.inspect import InspectModel
from evenhand.models.load import load_model
from evenhand.runs.pools import SearchPool
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.session import BASE, Answering, Session


def inspect_models() -> dict[str, Model]:
    """The model under evaluation as `base`, and those of `--model-role`; several judges are judge, judge_2, …"""
    found = {BASE: _ours(get_model())}
    for role, given in model_roles().items():
        models: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
        found |= {role if number == 1 else f"{role}_{number}": _ours(each) for number, each in enumerate(models, 1)}
    return found


def _ours(model: Any) -> Model:
    return load_model(InspectModel(str(model), ModelOptions(), model))


def _judge(models: Mapping[str, Model], spec: str) -> Model:
    """The model of a scorer: one that it names, as Inspect names it, or the judge."""
    return models.get(spec) or models[BASE] if spec == JUDGE else _ours(get_model(spec))


class Tools:
    """Scorers and searches: loaded on first use, closed when no sample uses them any more."""

    def __init__(self) -> None:
        self._users = 0
        self._scorers: dict[str, Scorer] = {}
        self._searches = SearchPool(None)

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                scorers, searches = list(self._scorers.values()), self._searches
                self._scorers, self._searches = {}, SearchPool(None)
                await asyncio.gather(*(each.aclose() for each in scorers), return_exceptions=True)
                await searches.aclose()

    def scorer(self, spec: str) -> Scorer:
        if spec not in self._scorers:
            models = inspect_models()
            self._scorers[spec] = load_scorer(spec, lambda named: _judge(models, named), JUDGE)
        return self._scorers[spec]

    def search(self, spec: str) -> Any:
        return self._searches.get(spec)


@cache
def method_solver(name: str) -> Callable[..., Solver]:
    """The solver `evenhand/NAME`; its arguments are the method's options, `seed`, `orders` and `reading`."""

    @solver(name=name)
    def make(seed: int = 0, orders: int = 1, reading: str = "auto", **options: Any) -> Solver:
        with plain_errors():
            chosen = METHODS.get(name)
            parsed = chosen.with_options(options)
        tools = Tools()

        async def solve(state: TaskState, generate: Generate) -> TaskState:
            del generate  # methods ask the model themselves, several times
            sample = sample_of(state)
            check_fit(chosen, sample.kind, "this task")
            if chosen.check is not None:
                chosen.check(sample.kind, parsed)
            models = inspect_models()
            _check_features(chosen, models)
            async with tools.used():
                session = Session(
                    sample,
                    models,
                    seed,
                    parsed,
                    Answering(orders, reading),
                    scorers=tools.scorer,
                    searches=tools.search,
                )
                keep_outcome(state, sample, await chosen.run(sample, session))
            return state

        return solve

    return make


def _check_features(chosen: Method, models: dict[str, Any]) -> None:
    for role in chosen.roles:
        model = models.get(role, models["base"])
        if missing := chosen.needs - model.features:
            needs = ", ".join(sorted(missing))
            raise PlanError(f"The method {chosen.name} needs {needs}, which Inspect's {model.spec} does not give.")
