"""Evenhand measures and reduces social bias and toxicity of language models and of systems made of them.

The public API; each name is imported when it is first used, so that `import evenhand` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.agents.choice import choose
    from evenhand.agents.completion import complete
    from evenhand.agents.session import Session
    from evenhand.api import audit, compare, guard, run, write_report
    from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Metric, Selection, load_benchmark
    from evenhand.errors import EvenhandError
    from evenhand.guarding.guard import Guard
    from evenhand.guarding.policy import GuardPolicy
    from evenhand.guarding.types import Guarded
    from evenhand.methods.base import METHODS, Method, method
    from evenhand.methods.stardtox.verdict import EVALUATORS, Verdict, evaluator
    from evenhand.models.base import PROVIDERS, Model, ModelOptions, load_model
    from evenhand.models.budget import Limits, Price
    from evenhand.models.fake import FunctionModel, ScriptedModel
    from evenhand.prompts import Prompt, load_prompt
    from evenhand.runs.parts import Settings
    from evenhand.scorers.base import SCORERS, Scorer, load_scorer
    from evenhand.types import (
        Answer,
        Completion,
        Generation,
        Grade,
        Message,
        Outcome,
        Params,
        Record,
        Refusal,
        Sample,
        Snapshot,
        Unscored,
        Usage,
    )

_HOME = {
    "evenhand.agents.choice": ("choose",),
    "evenhand.agents.completion": ("complete",),
    "evenhand.agents.session": ("Session",),
    "evenhand.api": ("audit", "compare", "guard", "run", "write_report"),
    "evenhand.benchmarks.base": ("BENCHMARKS", "Benchmark", "Metric", "Selection", "load_benchmark"),
    "evenhand.errors": ("EvenhandError",),
    "evenhand.guarding.guard": ("Guard",),
    "evenhand.guarding.policy": ("GuardPolicy",),
    "evenhand.guarding.types": ("Guarded",),
    "evenhand.methods.base": ("METHODS", "Method", "method"),
    "evenhand.methods.stardtox.verdict": ("EVALUATORS", "Verdict", "evaluator"),
    "evenhand.models.base": ("PROVIDERS", "Model", "ModelOptions", "load_model"),
    "evenhand.models.budget": ("Limits", "Price"),
    "evenhand.models.fake": ("FunctionModel", "ScriptedModel"),
    "evenhand.prompts": ("Prompt", "load_prompt"),
    "evenhand.runs.parts": ("Settings",),
    "evenhand.scorers.base": ("SCORERS", "Scorer", "load_scorer"),
    "evenhand.types": (
        "Answer",
        "Completion",
        "Generation",
        "Grade",
        "Message",
        "Outcome",
        "Params",
        "Record",
        "Refusal",
        "Sample",
        "Snapshot",
        "Unscored",
        "Usage",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BENCHMARKS",
    "EVALUATORS",
    "METHODS",
    "PROVIDERS",
    "SCORERS",
    "Answer",
    "Benchmark",
    "Completion",
    "EvenhandError",
    "FunctionModel",
    "Generation",
    "Grade",
    "Guard",
    "GuardPolicy",
    "Guarded",
    "Limits",
    "Message",
    "Method",
    "Metric",
    "Model",
    "ModelOptions",
    "Outcome",
    "Params",
    "Price",
    "Prompt",
    "Record",
    "Refusal",
    "Sample",
    "Scorer",
    "ScriptedModel",
    "Selection",
    "Session",
    "Settings",
    "Snapshot",
    "Unscored",
    "Usage",
    "Verdict",
    "audit",
    "choose",
    "compare",
    "complete",
    "evaluator",
    "guard",
    "load_benchmark",
    "load_model",
    "load_prompt",
    "load_scorer",
    "method",
    "run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
