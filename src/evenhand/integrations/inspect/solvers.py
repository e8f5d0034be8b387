"""Methods as solvers of Inspect, for our tasks and for any other task with choices or a conversation of text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from inspect_ai.solver import Generate, Solver, TaskState, solver

from evenhand.core.errors import PlanError
from evenhand.integrations.inspect.models import Tools, inspect_models
from evenhand.integrations.inspect.samples import keep_outcome, plain_errors, sample_of
from evenhand.methods.base import METHODS, Method, check_fit
from evenhand.session import Answering, Session


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
