"""Inspect AI (extra `inspect`): benchmarks as its tasks, methods as its solvers, scorers as its scorers.

Its entry point `inspect_ai` loads this module, so that `inspect eval evenhand/bbq_builtin --solver evenhand/stardtox`
works without an import. Every call goes through Inspect's model: its limits, cache, retries and log apply.
"""

from __future__ import annotations

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.integrations.inspect.scorers import benchmark_task, grade, text_scorer
from evenhand.integrations.inspect.solvers import method_solver
from evenhand.integrations.inspect.worlds import world_tools
from evenhand.methods.base import METHODS
from evenhand.scorers.base import SCORERS

TASKS = {name: benchmark_task(name) for name in BENCHMARKS.names()}
SOLVERS = {name: method_solver(name) for name in METHODS.names()}
SCORERS_OF_TEXTS = {name: text_scorer(name) for name in SCORERS.names()}

__all__ = ["SCORERS_OF_TEXTS", "SOLVERS", "TASKS", "grade", "world_tools"]
