"""Evenhand measures and reduces social bias and toxicity of language models and of systems made of them.

The public API; each name is imported when it is first used, so that `import evenhand` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.api import audit, compare, debate, guard, pairs, paper, rescore, run, train, write_report
    from evenhand.asking.choice import choose
    from evenhand.asking.completion import complete
    from evenhand.benchmarks.base import BENCHMARKS, Audit, Benchmark, Metric, Selection, load_benchmark
    from evenhand.errors import EvenhandError
    from evenhand.evaluators.base import EVALUATORS, Thresholds, Verdict, evaluator
    from evenhand.evaluators.calibration import Calibration, Contrast, JudgeTest
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import GuardPolicy
    from evenhand.guards.types import Guarded
    from evenhand.methods.base import METHODS, Method, Revision, method
    from evenhand.models.base import PROVIDERS, Model, ModelOptions, load_model
    from evenhand.models.budget import Limits, Price
    from evenhand.models.fake import FunctionModel, ScriptedModel
    from evenhand.options import Options
    from evenhand.prompts import Prompt, load_prompt
    from evenhand.reports.sections.base import Section, add_section
    from evenhand.runs.parts import Settings
    from evenhand.scorers.base import SCORERS, Scorer, load_scorer
    from evenhand.session import Session
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
    from evenhand.workflows.listener import Listener

_HOME = {
    "evenhand.asking.choice": ("choose",),
    "evenhand.asking.completion": ("complete",),
    "evenhand.session": ("Session",),
    "evenhand.api": (
        "audit",
        "compare",
        "debate",
        "guard",
        "pairs",
        "paper",
        "rescore",
        "run",
        "train",
        "write_report",
    ),
    "evenhand.benchmarks.base": ("BENCHMARKS", "Audit", "Benchmark", "Metric", "Selection", "load_benchmark"),
    "evenhand.errors": ("EvenhandError",),
    "evenhand.guards.guard": ("Guard",),
    "evenhand.guards.policy": ("GuardPolicy",),
    "evenhand.guards.types": ("Guarded",),
    "evenhand.methods.base": ("METHODS", "Method", "Revision", "method"),
    "evenhand.evaluators.base": ("EVALUATORS", "Thresholds", "Verdict", "evaluator"),
    "evenhand.evaluators.calibration": ("Calibration", "Contrast", "JudgeTest"),
    "evenhand.models.base": ("PROVIDERS", "Model", "ModelOptions", "load_model"),
    "evenhand.models.budget": ("Limits", "Price"),
    "evenhand.models.fake": ("FunctionModel", "ScriptedModel"),
    "evenhand.options": ("Options",),
    "evenhand.prompts": ("Prompt", "load_prompt"),
    "evenhand.reports.sections.base": ("Section", "add_section"),
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
    "evenhand.workflows.listener": ("Listener",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BENCHMARKS",
    "EVALUATORS",
    "METHODS",
    "PROVIDERS",
    "SCORERS",
    "Answer",
    "Audit",
    "Benchmark",
    "Calibration",
    "Completion",
    "Contrast",
    "EvenhandError",
    "FunctionModel",
    "Generation",
    "Grade",
    "Guard",
    "GuardPolicy",
    "Guarded",
    "JudgeTest",
    "Limits",
    "Listener",
    "Message",
    "Method",
    "Metric",
    "Model",
    "ModelOptions",
    "Options",
    "Outcome",
    "Params",
    "Price",
    "Prompt",
    "Record",
    "Refusal",
    "Revision",
    "Sample",
    "Scorer",
    "ScriptedModel",
    "Section",
    "Selection",
    "Session",
    "Settings",
    "Snapshot",
    "Thresholds",
    "Unscored",
    "Usage",
    "Verdict",
    "add_section",
    "audit",
    "choose",
    "compare",
    "complete",
    "debate",
    "evaluator",
    "guard",
    "load_benchmark",
    "load_model",
    "load_prompt",
    "load_scorer",
    "method",
    "pairs",
    "paper",
    "rescore",
    "run",
    "train",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
