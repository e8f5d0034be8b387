"""The public API: each name, and the module that it is in."""

# ruff: noqa: I001 - the names of a module stay together

from evenhand.api import (
    audit as audit,
    compare as compare,
    debate as debate,
    guard as guard,
    import_run as import_run,
    judge_reliability as judge_reliability,
    judges_against_people as judges_against_people,
    pairs as pairs,
    paper as paper,
    rescore as rescore,
    run as run,
    train as train,
    write_report as write_report,
)
from evenhand.asking.answer import answer as answer
from evenhand.asking.chat import reply as reply
from evenhand.asking.choice import choose as choose
from evenhand.asking.completion import complete as complete
from evenhand.asking.reply import ask_json as ask_json, object_schema as object_schema
from evenhand.benchmarks.base import (
    Audit as Audit,
    BENCHMARKS as BENCHMARKS,
    Benchmark as Benchmark,
    Metric as Metric,
    Selection as Selection,
    load_benchmark as load_benchmark,
    ratio as ratio,
    share_metric as share_metric,
)
from evenhand.core.errors import (
    BadResponseError as BadResponseError,
    BudgetExhausted as BudgetExhausted,
    DataError as DataError,
    EndpointError as EndpointError,
    EvenhandError as EvenhandError,
    MissingExtraError as MissingExtraError,
    ModelError as ModelError,
    PlanError as PlanError,
    SearchError as SearchError,
    StoreError as StoreError,
    UnknownNameError as UnknownNameError,
    UsageError as UsageError,
)
from evenhand.core.options import Options as Options
from evenhand.core.progress import Listener as Listener
from evenhand.core.prompts import Prompt as Prompt, load_prompt as load_prompt, parse_prompt as parse_prompt
from evenhand.core.types import (
    Answer as Answer,
    Completion as Completion,
    Cut as Cut,
    Generation as Generation,
    Grade as Grade,
    Message as Message,
    Outcome as Outcome,
    Params as Params,
    Record as Record,
    Refusal as Refusal,
    Sample as Sample,
    Snapshot as Snapshot,
    ToolCall as ToolCall,
    Turn as Turn,
    Unscored as Unscored,
    Usage as Usage,
)
from evenhand.core.untrusted import fenced as fenced
from evenhand.evaluators.base import (
    EVALUATORS as EVALUATORS,
    Evaluator as Evaluator,
    Thresholds as Thresholds,
    Verdict as Verdict,
    evaluator as evaluator,
)
from evenhand.guards.guard import Guard as Guard
from evenhand.guards.policy import GuardPolicy as GuardPolicy, InputPolicy as InputPolicy
from evenhand.guards.types import Guarded as Guarded
from evenhand.judging.card import Calibration as Calibration, Contrast as Contrast, JudgeTest as JudgeTest
from evenhand.judging.judge import judge as judge, yes_probability as yes_probability
from evenhand.judging.rubric import Ratings as Ratings, Rubric as Rubric
from evenhand.methods.base import METHODS as METHODS, Method as Method, Revision as Revision, method as method
from evenhand.models.base import Model as Model, ModelOptions as ModelOptions, PROVIDERS as PROVIDERS
from evenhand.models.budget import Limits as Limits, Price as Price
from evenhand.models.call import ModelFunction as ModelFunction
from evenhand.models.fake import FunctionModel as FunctionModel, ScriptedModel as ScriptedModel
from evenhand.models.load import load_model as load_model
from evenhand.runs.parts import Settings as Settings
from evenhand.scorers.base import SCORERS as SCORERS, Scorer as Scorer, load_scorer as load_scorer
from evenhand.search.base import (
    Hit as Hit,
    SEARCHES as SEARCHES,
    SearchProvider as SearchProvider,
    SearchResult as SearchResult,
)
from evenhand.session import Session as Session
from evenhand.show.notebook import Study as Study
from evenhand.show.sections import Section as Section, add_section as add_section
