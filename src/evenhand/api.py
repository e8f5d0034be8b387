"""The public functions: one synchronous façade over the async house."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict, Unpack, cast

from pydantic import Field, SkipValidation

from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.options import spelling_out, taking
from evenhand.core.progress import Count, Listener, Progress, ignore
from evenhand.core.prompts import read_templates
from evenhand.methods import GUARD_METHOD
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.passed import AnyModel, with_specs
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.request import PlanRequest, prompted_plan
from evenhand.show.notebook import Study, study_of, watching
from evenhand.studies.results import StudyResult
from evenhand.studies.samples import shown_samples
from evenhand.studies.study import study
from evenhand.training.debates import DebateRequest, run_debate
from evenhand.training.options import DPOOptions, PPOOptions, RewardOptions, SFTOptions
from evenhand.training.pairs import PairOptions

if TYPE_CHECKING:
    from evenhand.annotate.judges import JudgesAgainstPeople
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import GuardPolicy, InputPolicy
    from evenhand.judging.reliability import Reliability
    from evenhand.models.base import Model, ModelOptions
    from evenhand.models.budget import Price
    from evenhand.papers.base import PaperOptions
    from evenhand.papers.making import PaperResult
    from evenhand.runs.scores import Rescored
    from evenhand.training.launch import Stage, TrainingRecord


@aio.facade
def run(plan: Plan | Mapping[str, Any], out: str | Path, settings: Settings | None = None) -> Progress:
    """Run a plan (the fields of a plan file) and store it in the directory `out`.

    Its `models` may also be `Model` objects and functions (see `audit`).
    """
    settings = settings or Settings()
    if not isinstance(plan, Plan):
        models, settings = with_specs(plan.get("models", []), settings)
        plan = prompted_plan({**plan, "models": models} if "models" in plan else plan)
    return aio.run(run_plan(plan, Path(out), settings, watching()))


class AuditRequest(PlanRequest):
    """The parameters of `audit`: those of a plan and of its calls, and what only Python can pass."""

    fixed: ClassVar[Sequence[str]] = ("no_cache", "profile")

    model: Annotated[AnyModel | Sequence[AnyModel], SkipValidation] = Field(
        kw_only=False, description="A model, or several."
    )
    out: str | Path = Field(description="The folder of the run.")  # pyright: ignore[reportIncompatibleVariableOverride]
    settings: Annotated[Settings | None, SkipValidation] = Field(
        default=None, description="How to call models; parameters override it."
    )


@aio.facade
@taking(AuditRequest)
def audit(request: AuditRequest) -> Study:
    """Measure a model: run it and return what the study found.

    `audit("openai/my-model", out="runs/first", limit=22)`, or `audit(my_function, …)` for a system of your own. The
    parameters are the options of `evenhand audit` (see the page of all options), and:

    Args:
        model: A spec, a `Model`, a function (see `ModelFunction`), a dict with fields of a plan (`{"spec": …,
            "base_url": …, "timeout": …}`), or one with a model for each role (`{"base": …, "judge": …}`).
            A list has several of these.
        out: The folder of the run. With `resume=True` an unfinished run in it goes on; a function must be the same as
            before.
        settings: How to call models, as an object.
    """
    model: Any = request.model
    models: list[Any] = [*model] if isinstance(model, list | tuple) else [model]
    named, settings = with_specs(models, request.settings or Settings())
    made = request.changed(out=Path(request.out)).planned(named, default_methods=("default",), allow_call=True)
    aio.run(run_plan(made.plan, made.out, request.over(settings), watching()))
    return compare(request.out)


_NO_SIZES: Mapping[str, float] = {}


@aio.facade
def compare(
    *runs: str | Path,
    baseline: str | None = None,
    correction: Literal["holm", "bh"] = "holm",
    scorers: Sequence[str] = (),
    iterations: bool = False,
    margins: Mapping[str, float] = _NO_SIZES,
    published: Mapping[str, float] = _NO_SIZES,
) -> Study:
    """Study stored runs side by side, sample by sample; no model is called.

    `scorers` count instead of the planned ones; `iterations` adds the answers as they stood after each iteration.
    `margins` says by metric (or for all: {"": 2}) up to which size a change does not matter, `published` which
    difference from the baseline others published; the findings say whether it is excluded.
    """
    folders = [Path(each) for each in runs]
    if not folders:
        raise UsageError("Name one run or more: compare('runs/first').")
    found = study(
        folders,
        baseline=baseline,
        correction=correction,
        scorers=scorers,
        iterations=iterations,
        margins=margins,
        published=published,
    )
    return study_of(found, folders, scorers)


@aio.facade
def write_report(result: StudyResult, runs: Sequence[str | Path], target: str | Path, *, samples: int = 300) -> None:
    """Write the HTML report of a study of `runs`."""
    from evenhand.show import report

    report.write_report(result, shown_samples([Path(each) for each in runs], samples), Path(target))


class PolicyFields(TypedDict, total=False):
    """The fields of a `GuardPolicy` that `guard` takes by name."""

    blocked_text: str
    latency: float | None
    evaluators: Sequence[str]
    thresholds: Mapping[str, Any]
    unchecked: Literal["block", "flag", "pass"] | None
    tool_arguments: Literal["check", "pass"]
    on_unrevised: Literal["block", "flag", "pass"] | None


@aio.facade
def guard(
    model: AnyModel,
    *,
    method: str = GUARD_METHOD,
    policy: str | GuardPolicy = "revise",
    judge: AnyModel | None = None,
    input: str | InputPolicy | None = None,  # noqa: A002 - the word for it in configs and records
    options: ModelOptions | None = None,
    judge_options: ModelOptions | None = None,
    prices: Mapping[str, Price] | None = None,
    seed: int = 0,
    templates: str | Path | None = None,
    system: str | None = None,
    history: str | Path | None = None,
    **fields: Unpack[PolicyFields],
) -> Guard:
    """A guard in front of a model: `await guard(messages)` or `guard.sync(messages)` answers through the method.

    `model` and `judge` are specs, `Model` objects, functions (see `ModelFunction`) or dicts, as in `audit`.
    `policy` is `revise`, `flag` or `block`; more fields of a `GuardPolicy` go in by name: `blocked_text`, `latency` (in
    seconds), `evaluators`, `thresholds`, `unchecked`, `tool_arguments`, `on_unrevised`.
    `guard.checks` and each record say which checks run. By default that is toxicity; a bias check asks a model:
    `evaluators=("toxicity", "bias"), judge=MODEL`.
    `input` checks requests too: `flag`, `block` or an `InputPolicy`.
    `prices` are by model spec; without one, the cost in the record is None.
    `judge_options` say how to reach the judge, where it is not at the model's endpoint.
    `templates` is a folder of prompt files of your own.
    `system` (a file or a text) and `history` (a file) stand before every conversation, as in `audit`.
    """
    from evenhand.core.preamble import read_preambles
    from evenhand.guards.guard import OPTIONS, Guard
    from evenhand.guards.policy import InputPolicy, make_policy

    made = make_policy(policy, {**fields})
    checked = InputPolicy(cast(Any, input)) if isinstance(input, str) else input
    roles: dict[str, Any] = {"base": model}
    if isinstance(model, Mapping) and "spec" not in model:
        roles = dict(cast("Mapping[str, Any]", model))
    if judge is not None:
        roles["judge"] = judge
    if unused := sorted(roles.keys() - {"base", "judge"}):
        raise UsageError(f"A guard has a base model and a judge, and does not use {', '.join(unused)}; remove it.")
    specs, settings = with_specs(roles, Settings(concurrency=OPTIONS.concurrency))
    models = make_plan({"models": [specs]}).models[0]

    def reached(role: str, given: ModelOptions | None) -> tuple[str | Model | None, ModelOptions | None]:
        """The model of a role, and its options: those of a dict win over `given`."""
        if (named := specs.get(role)) is None or isinstance(named, str):
            return settings.ready.get(named or "", named), given
        own = {name: getattr(models[role], name) for name in named if name != "spec"}
        return settings.ready.get(named["spec"], named["spec"]), replace(given or OPTIONS, **own)

    base, options = reached("base", options)
    judging, judge_options = reached("judge", judge_options)
    assert base is not None  # a plan without a base model is refused
    guarding = Guard(
        base,
        method=method,
        policy=made,
        judge=judging,
        input=checked,
        options=options,
        judge_options=judge_options,
        prices=prices,
        seed=seed,
        templates=templates,
        preamble=next(iter(read_preambles([system] if system else [], history)), None),
    )
    hint = ': evaluators=("toxicity", "bias"), judge=MODEL' if "bias" in guarding.checks.not_run else ""
    level = logging.WARNING if guarding.checks.not_run else logging.INFO
    logging.getLogger("evenhand.guards").log(level, "A guard of %s %s%s", guarding.upstream.spec, guarding.checks, hint)
    return guarding


@aio.facade
def import_run(
    *files: str | Path,
    out: str | Path,
    columns: Mapping[str, str] | None = None,
    benchmark: str | None = None,
    data: str | Path | None = None,
    model: str | None = None,
) -> Progress:
    """Make a run of answers that another tool has collected; no model is called.

    `import_run("logs/bbq.eval", out="runs/bbq")` reads logs of Inspect, samples of lm-evaluation-harness, results of
    promptfoo, traces of OpenTelemetry and tables. Each model becomes an arm. Answers to questions of BBQ become a run
    of `bbq`, with its scores.

    Args:
        columns: Of a table, field → column: `{"answer": "reply"}`; the fields are those of `--map`.
        benchmark: Which benchmark was asked; by default BBQ, if the file names its questions. `imported`: none of ours.
        data: The folder of the benchmark's data.
        model: The model that answered; by default as the file says.
    """
    from evenhand.runs.imported import import_files

    options = {} if data is None else {"data": str(data)}
    paths = [Path(file) for file in files]
    return aio.run(import_files(paths, Path(out), columns=columns, benchmark=benchmark, options=options, model=model))


@aio.facade
def rescore(
    run: str | Path,
    scorers: Sequence[str],
    *,
    settings: Settings | None = None,
    progress: Count = ignore,
    templates: str | Path | None = None,
) -> list[Rescored]:
    """Score the stored answers of a run with other scorers; the models that answered are not asked again.

    Answers after each iteration are scored too. What has a score by a scorer already keeps it, so the same call goes
    on where it was stopped. `compare(run, scorers=…)` then reads the new scores.

    Args:
        scorers: Specs such as `builtin` or `judge:openai/gpt-4o-mini`.
        progress: Called with how many answers are done, and of how many.
        templates: A folder of prompt files of your own, for scorers that ask a model.
    """
    from evenhand.runs.scores import rescore as score_again

    with read_templates(templates).used():
        return aio.run(score_again(Path(run), scorers, settings, progress))


@aio.facade
def judges_against_people(
    folder: str | Path,
    *runs: str | Path,
    scorers: Sequence[str] = (),
    scales: Mapping[str, str] | None = None,
    threshold: float = 50.0,
) -> JudgesAgainstPeople:
    """Compare the judges of stored runs with people's ratings, and correct the runs' numbers by these.

    `judges_against_people("ratings", "runs/opinions")` reads the filled sheets of `evenhand annotate export`. Each of
    its `agreements` is a judge on a scale; each of its `estimates` has an arm's mean, difference from the baseline and
    share of ratings from `threshold` on: by the judge, by people and corrected. No model is called.

    Args:
        folder: The exported folder with the filled sheets.
        runs: The rated runs, in the order in which they were exported.
        scorers: Some of the stored scorers; by default all that rate these scales.
        scales: What is compared with people's scales, e.g. `{"BS": "toxicity"}`.
    """
    from evenhand.annotate.judges import judges_against_people as compared

    return compared(Path(folder), [Path(run) for run in runs], scorers=scorers, scales=scales, threshold=threshold)


@aio.facade
def judge_reliability(
    model: AnyModel,
    *,
    metrics: Sequence[str] = (),
    probes: Sequence[str] | None = None,
    runs: Sequence[str | Path] = (),
    others: Sequence[AnyModel] = (),
    limit: int | None = None,
    repeats: int = 2,
    seed: int = 0,
    settings: Settings | None = None,
    progress: Count = ignore,
) -> Reliability:
    """Have a judge rate and compare texts again with things changed that should not matter, and count the flips.

    `judge_reliability("openai/a", metrics=["opinion.bias"])` returns the share of verdicts that flip by what was
    changed, with intervals; `sentences` says which are faults.

    Args:
        metrics: Scorers or ratings, e.g. `opinion` or `opinion.bias`; by default all that a model can be behind.
        probes: Some of repeat, rubric, length, style, author, own, detail, order; None: all.
        runs: Compare the answers of these runs (see `pairs`), in place of answers of known value and the judge's own.
        others: Judges of the same pairs, which show how good the judge's own answers are.
        limit: This many texts of each value, or questions of the runs, drawn by the seed.
        progress: Called with how many calls are done, and of about how many.
    """
    from evenhand.judging.reliability import PROBES
    from evenhand.studies.agreement import ReliabilityTest
    from evenhand.studies.agreement import judge_reliability as tested

    specs, settings = with_specs([model, *others], settings or Settings())
    plan, *rest = [each["base"] for each in make_plan({"models": specs}).models]
    chosen = tuple(PROBES if probes is None else probes)
    test = ReliabilityTest(metrics, chosen, limit, repeats, [Path(run) for run in runs], seed)
    return aio.run(tested(plan, test, settings, rest, progress))


@aio.facade
def paper(
    name: str,
    options: PaperOptions | None = None,
    *,
    models: Sequence[AnyModel] = (),
    settings: Settings | None = None,
    listener: Listener | None = None,
    **given: Any,
) -> PaperResult:
    """Make a paper's tables and figures with your models, beside the published numbers.

    `paper("NAME", models=["openai/my-model"], limit=20, out="made")` runs what the paper ran and writes
    `made/index.html` with a CSV file for each table. Without `models`, the page is made again from the runs in `out`,
    without a call. `evenhand papers` lists the papers, and `evenhand papers NAME --help-all` the options of one.

    Args:
        options: The paper's options as an object (`Paper.Options`, with completion in editors) instead of by name.
        models: As in a plan: specs, or maps such as `{"base": "openai/a", "judge": "openai/b"}`.
        settings: Concurrency, budget, prices, cache, and whether to resume; options by name override it.
        listener: Hears of runs and stages as they begin and end.
        given: The paper's options by name, e.g. `out`, `limit`, `builtin`, `seed`, `temperature` or `templates`, and
            its own; one that the paper would ignore is refused.
    """
    from evenhand.papers.base import PAPERS
    from evenhand.papers.making import options_of, plan_paper, write_page

    wanted = PAPERS.get(name)
    if options is not None and given:
        raise UsageError(f"The options are given as an object and by name ({next(iter(given))}); choose one.")
    chosen = options or options_of(wanted, {each: value for each, value in given.items() if value is not None})
    specs, settings = with_specs(list(models or chosen.models), settings or Settings())
    chosen, settings = chosen.changed(models=tuple(specs)), chosen.over(settings)
    if not specs and chosen.out is not None:
        return write_page(wanted, chosen.out, chosen.scorers_of_page, skip_damaged=settings.skip_damaged)
    return plan_paper(name, chosen, chosen.out).make(settings, listener or Listener())


class DebateCall(DebateRequest):
    """The parameters of `debate`: those of debates, of a plan and of its calls, and what only Python can pass."""

    fixed: ClassVar[Sequence[str]] = (*DebateRequest.fixed, "no_cache")

    model: Annotated[AnyModel, SkipValidation] = Field(kw_only=False, description="The model that debates.")
    settings: Annotated[Settings | None, SkipValidation] = Field(
        default=None, description="How to call models; parameters override it."
    )
    listener: Annotated[Listener | None, SkipValidation] = Field(
        default=None, description="Hears of runs and stages as they begin and end."
    )


@aio.facade
@taking(DebateCall)
def debate(request: DebateCall) -> Study:
    """Have roles debate topics over rounds while a referee scores their bias: data for training.

    `debate("hf/PATH", bias="age", topics=60, out="debates")` takes rounds × (roles + 1) calls for each topic.
    `by_iteration` of the result has the scores after each round; `pairs("debates")` makes training data of them. The
    parameters are the options of `evenhand train debate`; `model`, `teacher` and `referee` may be specs, `Model`
    objects or functions, as in `audit`.
    """
    roles = {"base": request.model, "teacher": request.teacher, "referee": request.referee}
    named, settings = with_specs(
        {role: each for role, each in roles.items() if each is not None}, request.settings or Settings()
    )
    missing = request.missing_topics()
    made = request.planned_debates([named], missing)
    settings = request.over(settings)
    done = aio.run(run_debate(made.plan, made.out, settings, request.listener or Listener(), missing))
    if done is None and missing is not None:
        there = f"{missing.path} has {missing.written():,} topics"
        raise UsageError(f"The model has no further ideas; {there}. Pass it as `data` to debate these.")
    return compare(made.out)


@aio.facade
@spelling_out(PairOptions)
def pairs(
    *runs: str | Path, out: str | Path | None = None, data: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Make preference pairs and low-bias answers of stored debates, split by topic; returns what pairs.json says.

    `pairs("debates", out="pairs/age", margin=1)` writes files that `train` reads, and that `datasets` and TRL read too.

    Args:
        out: A new folder; by default `pairs` in the first run.
        data: The folder of the public data sets: statements that repeat questions of BBQ are dropped.
        options: Those of `PairOptions`, e.g. `threshold` (a score, "median" or "topic") or `margin`.
    """
    from evenhand.core.files import check_new_folder
    from evenhand.training.pairs.cleaning import load_check
    from evenhand.training.pairs.folder import write_pairs

    if not runs:
        raise UsageError("Name one run of debates or more.")
    folders = [Path(run) for run in runs]
    target = folders[0] / "pairs" if out is None else Path(out)
    chosen = PairOptions.parse("training data", options)
    check_new_folder(target)
    return write_pairs(folders, target, chosen, load_check(data))


@aio.facade
@spelling_out(SFTOptions, RewardOptions, PPOOptions, DPOOptions)
def train(
    stage: Stage,
    *,
    model: str,
    data: str | Path | None = None,
    out: str | Path,
    algorithm: str = "ppo",
    stages: Mapping[str, Any] | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    on: str | None = None,
    workers: int | None = None,
    parallel: str = "several_gpus",
    **options: Any,
) -> dict[str, TrainingRecord]:
    """Train a less biased model from pairs; returns the record of each stage. Needs `pip install 'evenhand[train]'`.

    `train("recipe", model="local/builtin", data="pairs/age", out="models/age")` fine-tunes, trains a reward model and
    then runs PPO; the result is used as `hf/models/age/ppo`. A single stage is `sft`, `reward`, `ppo` or `dpo`.
    `train("verifiable", model="hf/OWNER/NAME", out="models/fair")` needs no data: it trains on generated questions
    whose answer is known; the result is used as `hf/models/fair/sft`.

    Args:
        model: A folder, a name on the hub, a .gguf file or `local/builtin`.
        data: A folder by `pairs`, or one of its files; for `verifiable`, rows of your own.
        algorithm: Of PPO and of the recipe's last stage: `ppo`, `rloo`, `grpo` or `remax`; for a recipe also `dpo`.
        stages: Of a recipe, options of single stages, e.g. `{"ppo": {"lr": 1e-5}}`; of `verifiable`, of `sft` and `rl`
            (`{"rl": {"steps": 40}}` adds RL).
        resume: Go on with what was interrupted, and keep what is finished.
        on: `ray` or `ray://HOST:PORT`: train on Ray.
        workers: With `on`, the number of processes (default: one for each GPU).
        parallel: With `on`, how they share the weights: `several_gpus`, `fsdp` or `fsdp_zero2`.
        options: Of the stage, e.g. `batch`, `lr`, `epochs`, `lora` (a rank), `device`; of a recipe, of all stages.
    """
    from evenhand.training.cluster import placed
    from evenhand.training.launch import make_recipe, make_verifiable, train_recipe, train_stage, train_verifiable

    how: dict[str, Any] = {"resume": resume, "listener": listener}
    how["workers"] = placed(on, workers, parallel, options.get("device"))
    given = {"model": model, "out": Path(out), **options}
    if data is not None:
        given["data"] = Path(data)
    if stage == "verifiable":
        return train_verifiable(make_verifiable(given, stages), **how)["stages"]
    if data is None:
        raise UsageError(f"{stage} needs data: a folder by `pairs`, or one of its files.")
    if stage == "recipe":
        return train_recipe(make_recipe(given, stages, algorithm), **how)
    if stages:
        raise UsageError("Options by stage are for a recipe; pass those of a single stage by name.")
    own = {"algorithm": algorithm} if stage == "ppo" else {}
    return {stage: train_stage(stage, {**given, **own}, **how)}
