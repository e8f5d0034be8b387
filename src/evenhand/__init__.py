"""Evenhand measures and reduces social bias and toxicity of language models and of systems made of them.

The public API; each name is imported when it is first used, so that `import evenhand` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.api import (
        audit,
        check_judges,
        compare,
        debate,
        guard,
        import_run,
        judge_reliability,
        judges_against_people,
        pairs,
        paper,
        rescore,
        run,
        train,
        write_report,
    )
    from evenhand.asking.answer import answer
    from evenhand.asking.chat import reply
    from evenhand.asking.choice import choose
    from evenhand.asking.completion import complete
    from evenhand.asking.reply import ask_json, object_schema
    from evenhand.benchmarks.base import (
        BENCHMARKS,
        Audit,
        Benchmark,
        Metric,
        Selection,
        load_benchmark,
        ratio,
        share_metric,
    )
    from evenhand.core.errors import (
        BadResponseError,
        BudgetExhausted,
        DataError,
        EndpointError,
        EvenhandError,
        MissingExtraError,
        ModelError,
        PlanError,
        SearchError,
        StoreError,
        UnknownNameError,
        UsageError,
    )
    from evenhand.core.options import Options
    from evenhand.core.progress import Listener
    from evenhand.core.prompts import Prompt, load_prompt, parse_prompt
    from evenhand.core.types import (
        Answer,
        Completion,
        Cut,
        Generation,
        Grade,
        Message,
        Outcome,
        Params,
        Record,
        Refusal,
        Sample,
        Snapshot,
        ToolCall,
        Turn,
        Unscored,
        Usage,
    )
    from evenhand.core.untrusted import fenced
    from evenhand.evaluators.base import EVALUATORS, Evaluator, Thresholds, Verdict, evaluator
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import GuardPolicy, InputPolicy
    from evenhand.guards.types import Guarded
    from evenhand.judging.card import Calibration, Contrast, JudgeTest
    from evenhand.judging.judge import judge, yes_probability
    from evenhand.judging.rubric import Ratings, Rubric
    from evenhand.methods.base import METHODS, Method, Revision, method
    from evenhand.models.base import PROVIDERS, Model, ModelOptions
    from evenhand.models.budget import Limits, Price
    from evenhand.models.call import ModelFunction
    from evenhand.models.fake import FunctionModel, ScriptedModel
    from evenhand.models.load import load_model
    from evenhand.runs.parts import Settings
    from evenhand.scorers.base import SCORERS, Scorer, load_scorer
    from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult
    from evenhand.session import Session
    from evenhand.show.notebook import Study
    from evenhand.show.sections import Section, add_section

_HOME = {
    "evenhand.api": (
        "audit check_judges compare debate guard import_run judge_reliability judges_against_people pairs paper "
        "rescore run train write_report"
    ),
    "evenhand.asking.answer": "answer",
    "evenhand.asking.chat": "reply",
    "evenhand.asking.choice": "choose",
    "evenhand.asking.completion": "complete",
    "evenhand.asking.reply": "ask_json object_schema",
    "evenhand.judging.judge": "judge yes_probability",
    "evenhand.benchmarks.base": "BENCHMARKS Audit Benchmark Metric Selection load_benchmark ratio share_metric",
    "evenhand.core.errors": (
        "BadResponseError BudgetExhausted DataError EndpointError EvenhandError MissingExtraError ModelError "
        "PlanError SearchError StoreError UnknownNameError UsageError"
    ),
    "evenhand.evaluators.base": "EVALUATORS Evaluator Thresholds Verdict evaluator",
    "evenhand.judging.card": "Calibration Contrast JudgeTest",
    "evenhand.guards.guard": "Guard",
    "evenhand.guards.policy": "GuardPolicy InputPolicy",
    "evenhand.guards.types": "Guarded",
    "evenhand.methods.base": "METHODS Method Revision method",
    "evenhand.models.base": "PROVIDERS Model ModelOptions",
    "evenhand.models.budget": "Limits Price",
    "evenhand.models.call": "ModelFunction",
    "evenhand.models.fake": "FunctionModel ScriptedModel",
    "evenhand.models.load": "load_model",
    "evenhand.core.options": "Options",
    "evenhand.core.prompts": "Prompt load_prompt parse_prompt",
    "evenhand.show.notebook": "Study",
    "evenhand.show.sections": "Section add_section",
    "evenhand.runs.parts": "Settings",
    "evenhand.scorers.base": "SCORERS Scorer load_scorer",
    "evenhand.judging.rubric": "Ratings Rubric",
    "evenhand.search.base": "SEARCHES Hit SearchProvider SearchResult",
    "evenhand.session": "Session",
    "evenhand.core.types": (
        "Answer Completion Cut Generation Grade Message Outcome Params Record Refusal Sample Snapshot ToolCall Turn "
        "Unscored Usage"
    ),
    "evenhand.core.untrusted": "fenced",
    "evenhand.core.progress": "Listener",
}
"""Module → the public names in it."""
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "BENCHMARKS",
    "EVALUATORS",
    "METHODS",
    "PROVIDERS",
    "SCORERS",
    "SEARCHES",
    "Answer",
    "Audit",
    "BadResponseError",
    "Benchmark",
    "BudgetExhausted",
    "Calibration",
    "Completion",
    "Contrast",
    "Cut",
    "DataError",
    "EndpointError",
    "Evaluator",
    "EvenhandError",
    "FunctionModel",
    "Generation",
    "Grade",
    "Guard",
    "GuardPolicy",
    "Guarded",
    "Hit",
    "InputPolicy",
    "JudgeTest",
    "Limits",
    "Listener",
    "Message",
    "Method",
    "Metric",
    "MissingExtraError",
    "Model",
    "ModelError",
    "ModelFunction",
    "ModelOptions",
    "Options",
    "Outcome",
    "Params",
    "PlanError",
    "Price",
    "Prompt",
    "Ratings",
    "Record",
    "Refusal",
    "Revision",
    "Rubric",
    "Sample",
    "Scorer",
    "ScriptedModel",
    "SearchError",
    "SearchProvider",
    "SearchResult",
    "Section",
    "Selection",
    "Session",
    "Settings",
    "Snapshot",
    "StoreError",
    "Study",
    "Thresholds",
    "ToolCall",
    "Turn",
    "UnknownNameError",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "add_section",
    "answer",
    "ask_json",
    "audit",
    "check_judges",
    "choose",
    "compare",
    "complete",
    "debate",
    "evaluator",
    "fenced",
    "guard",
    "import_run",
    "judge",
    "judge_reliability",
    "judges_against_people",
    "load_benchmark",
    "load_model",
    "load_prompt",
    "load_scorer",
    "method",
    "object_schema",
    "pairs",
    "paper",
    "parse_prompt",
    "ratio",
    "reply",
    "rescore",
    "run",
    "share_metric",
    "train",
    "write_report",
    "yes_probability",
]


def __dir__() -> list[str]:
    """What `evenhand.<TAB>` offers: the public names, not the modules they live in."""
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
