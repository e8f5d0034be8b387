"""The public functions: one synchronous façade over the async house."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict, Unpack, cast

from pydantic import Field, SkipValidation

from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.options import taking
from evenhand.core.progress import Count, Progress, ignore
from evenhand.core.prompts import read_templates
from evenhand.methods import GUARD_METHOD
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.passed import AnyModel, with_specs
from evenhand.runs.plan import Plan, default_folder, make_plan
from evenhand.runs.request import PlanRequest
from evenhand.show.notebook import Study, study_of
from evenhand.studies.results import StudyResult
from evenhand.studies.show import shown_samples
from evenhand.studies.study import study

if TYPE_CHECKING:
    from evenhand.annotate.judges import JudgesAgainstPeople
    from evenhand.core.progress import Listener
    from evenhand.guards.guard import Guard
    from evenhand.guards.policy import GuardPolicy, InputPolicy
    from evenhand.judging.pairs import PairFindings
    from evenhand.models.base import Model, ModelOptions
    from evenhand.models.budget import Price
    from evenhand.papers.making import PaperResult
    from evenhand.runs.rescore import Rescored
    from evenhand.training.launch import Stage, TrainingRecord


@aio.facade
def run(plan: Plan | Mapping[str, Any], out: str | Path, settings: Settings | None = None) -> Progress:
    """Run a plan (the fields of a plan file) and store it in the directory `out`.

    Its `models` may also be `Model` objects and functions (see `audit`).
    """
    settings = settings or Settings()
    if not isinstance(plan, Plan):
        models, settings = with_specs(plan.get("models", []), settings)
        plan = make_plan({**plan, "models": models} if "models" in plan else plan)
    return aio.run(run_plan(plan, Path(out), settings))


class AuditRequest(PlanRequest):
    """The parameters of `audit`: those of a plan and of its calls, and what only Python can pass."""

    fixed: ClassVar[Sequence[str]] = ("no_cache",)

    model: Annotated[AnyModel | Sequence[AnyModel], SkipValidation] = Field(
        kw_only=False, description="A model, or several."
    )
    out: str | Path = Field(description="The folder of the run.")  # pyright: ignore[reportIncompatibleVariableOverride]
    settings: Annotated[Settings | None, SkipValidation] = Field(
        default=None, description="How to call models; parameters win over it."
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
    aio.run(run_plan(made.plan, made.out, request.over(settings)))
    return compare(request.out)


@aio.facade
def compare(
    *runs: str | Path,
    baseline: str | None = None,
    correction: Literal["holm", "bh"] = "holm",
    scorers: Sequence[str] = (),
    iterations: bool = False,
) -> Study:
    """Study stored runs side by side, sample by sample; no model is called.

    `scorers` count instead of the planned ones; `iterations` adds the answers as they stood after each iteration.
    """
    folders = [Path(each) for each in runs]
    if not folders:
        raise UsageError("Name one run or more: compare('runs/first').")
    found = study(folders, baseline=baseline, correction=correction, scorers=scorers, iterations=iterations)
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
    **fields: Unpack[PolicyFields],
) -> Guard:
    """A guard in front of a model: `await guard(messages)` or `guard.sync(messages)` answers through the method.

    `model` and `judge` are specs, `Model` objects, functions (see `ModelFunction`) or dicts, as in `audit`.
    `policy` is `revise`, `flag` or `block`; more fields of a `GuardPolicy` go in by name: `blocked_text`, `latency` (in
    seconds), `evaluators`, `thresholds`, `unchecked`, `tool_arguments`.
    `input` checks requests too: `flag`, `block` or an `InputPolicy`.
    `prices` are by model spec; without one, the cost in the record is None.
    `judge_options` say how to reach the judge, where it is not at the model's endpoint.
    `templates` is a folder of prompt files of your own.
    """
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
        raise UsageError(f"A guard has a base model and a judge, and no use for {', '.join(unused)}; remove it.")
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
    return Guard(
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
    )


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
    from evenhand.runs.rescore import rescore as score_again

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
def check_judges(
    *runs: str | Path,
    judges: Sequence[AnyModel],
    limit: int | None = None,
    seed: int = 0,
    settings: Settings | None = None,
    progress: Count = ignore,
) -> PairFindings:
    """Have judges compare the stored answers of two or more arms, each pair in both orders.

    `check_judges("runs/opinions", judges=["openai/a", "openai/b"], limit=100)` says how often the order decides, and
    whether a judge prefers answers of its own more than the other judges do. It takes two calls per pair and judge.

    Args:
        runs: Runs with text answers, of two arms or more in all.
        judges: Models; name those that wrote the answers, and others to compare them with.
        limit: This many questions, drawn by the seed; None: all.
        progress: Called with how many verdicts are done, and of how many.
    """
    from evenhand.judging.pairs import findings
    from evenhand.studies.judges import judged_pairs, read_pairs

    specs, settings = with_specs(list(judges), settings or Settings())
    plans = [each["base"] for each in make_plan({"models": specs}).models]
    material = read_pairs([Path(run) for run in runs], limit, seed)
    return findings(material, aio.run(judged_pairs(plans, material.pairs, settings, progress)))


@aio.facade
def paper(
    name: str,
    *,
    models: Sequence[AnyModel] = (),
    out: str | Path | None = None,
    limit: int | None = None,
    builtin: bool = False,
    data: str | Path | None = None,
    seed: int = 0,
    scorers: Sequence[str] = (),
    completions: int | None = None,
    search: str | None = None,
    accept: float | None = None,
    look: bool = False,
    domain: bool = False,
    judge: str | None = None,
    trained: Mapping[str, str] | None = None,
    pairs: str | Path | None = None,
    bias: Sequence[str] = (),
    compared: int | None = None,
    preset: str = "both",
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    steer: str | None = None,
    quality: str | None = None,
    base_models: Sequence[str] = (),
    train: bool = False,
    ablate: Mapping[str, Sequence[int]] | None = None,
    teachers: Sequence[str] = (),
    generate: bool = False,
    train_seeds: Sequence[int] = (),
    per_type: bool = False,
    stages: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    listener: Listener | None = None,
    **plan: Any,
) -> PaperResult:
    """Make a paper's tables and figures with your models, beside the published numbers.

    `paper("stardtox", models=["openai/my-model"], limit=20, out="stardtox")` runs what the paper ran and writes
    `stardtox/index.html` with a CSV file for each table. Without `models`, the page is made again from the runs in
    `out`, without a call. A paper that would ignore an option refuses it.

    Args:
        name: `stardtox`, `mabrf`, `malibu` or `rldf`.
        models: As in a plan: specs, or maps such as `{"base": "openai/a", "judge": "openai/b"}`.
        out: The folder of page and runs; by default one under `runs` that depends on what is run.
        limit: Items of each kind, e.g. of each category; None: as many as the paper.
        builtin: Use our own small data sets in place of the public ones.
        data: The folder of the public data sets.
        scorers: Score the texts in place of the benchmark's own (stardtox).
        completions: For each prompt (stardtox).
        search: The search provider (mabrf).
        accept: The highest bias rating that the judge accepts (mabrf).
        look: Whether the judge reads the passage before the reasoning (mabrf).
        domain: Whether the judge is told what to look for in the question's category (mabrf).
        judge: The model that rates answers (rldf).
        trained: Trained models by arm, for example `{"sft": "hf/FOLDER"}` (rldf).
        pairs: The pairs that they were trained on (rldf).
        bias: The types of bias (rldf).
        compared: Pairs of identities compared side by side in each scenario, drawn by the seed (malibu).
        preset: `paper` (its method as it is), `evenhand` (ours) or `both`, side by side.
        methods: Options of methods, in place of the preset's, e.g. `{"stardtox": {"iterations": 3}}`.
        steer: The scorer that steers revisions, e.g. `perspective` (stardtox).
        quality: The model that measures the quality of texts, not the one that steers (stardtox).
        base_models: Models without instruction tuning, e.g. `hf/gpt2`, each a row of Self-Debias (stardtox).
        train: First make the debates, pairs and models of the tables (rldf).
        ablate: First make those of the ablation figures, for example `{"rounds": [1, 3, 5]}` (rldf).
        teachers: The models that debate as teachers; the first is that of the tables (rldf).
        generate: Have the teacher, or the model, write topics up to `stages["debate"]["topics"]` (rldf).
        train_seeds: A training for each, so that the tables show mean and standard deviation (rldf).
        per_type: Train on each type of bias alone, as in the paper (rldf).
        stages: Training options by stage, for example `{"ppo": {"steps": 100}}` (rldf).
        settings: Concurrency, budget, prices, cache, and whether to resume.
        listener: Hears of runs and stages as they begin and end.
        plan: More fields of every plan, e.g. `temperature` or `templates`.
    """
    from evenhand.core.progress import Listener
    from evenhand.papers.base import PAPERS, PaperOptions
    from evenhand.papers.making import check_choices, make_paper, plan_paper, read_presets, write_page

    folder = None if out is None else Path(out)
    specs, settings = with_specs(list(models), settings or Settings())
    options = PaperOptions(
        models=make_plan({"models": specs}).models if models else (),
        limit=limit,
        builtin=builtin,
        data=None if data is None else str(data),
        seed=seed,
        fields=plan,
        scorers=tuple(scorers),
        completions=completions,
        search=search,
        accept=accept,
        look=look,
        domain=domain,
        judge=judge,
        trained=trained or {},
        pairs=None if pairs is None else str(pairs),
        bias=tuple(bias),
        compared=compared,
        presets=read_presets(preset),
        methods=methods or {},
        steer=steer,
        quality=quality,
        base_models=tuple(base_models),
    )
    if not models and folder is not None:
        check_choices(PAPERS.get(name), options)
        judges = [f"opinion:{judge}"] if judge else scorers
        return write_page(PAPERS.get(name), folder, judges, skip_damaged=settings.skip_damaged)
    listener = listener or Listener()
    if train or ablate or teachers or generate or train_seeds or per_type or stages:
        from evenhand.papers.rldf.plan import plan_training, train_paper

        planned = plan_training(
            name,
            options,
            folder,
            train=train,
            ablate=ablate,
            teachers=teachers,
            generate=generate,
            seeds=train_seeds,
            per_type=per_type,
            stages=stages,
        )
        return train_paper(planned, settings, listener)
    return make_paper(plan_paper(name, options, folder), settings, listener)


@aio.facade
def debate(
    model: AnyModel,
    *,
    out: str | Path | None = None,
    bias: str | None = None,
    topics: int | None = None,
    roles: int | None = None,
    rounds: int | None = None,
    words: int | None = None,
    teacher: AnyModel | None = None,
    referee: AnyModel | None = None,
    data: str | Path | None = None,
    generate: bool = False,
    topics_file: str | Path | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    referee_tokens: int | None = None,
    scoring: str | None = None,
    settings: Settings | None = None,
    listener: Listener | None = None,
    **plan: Any,
) -> Study:
    """Have roles debate topics over rounds while a referee scores their bias: data for training.

    `debate("hf/PATH", bias="age", topics=60, out="debates")` takes rounds × (roles + 1) calls for each topic.
    `by_iteration` of the result has the scores after each round; `pairs("debates")` makes training data of them.

    Args:
        bias: `age` (default), `nationality`, `institution`, `beauty`, `profession`, several with commas, or `all`.
        topics, roles, rounds: How many topics of each type (default: all), debaters (3) and rounds (5).
        teacher: The model that debates in place of `model`.
        referee: The model that scores; by default the one that debates.
        data: A YAML file with roles and topics of your own.
        generate: Have the debating model write the topics that are missing, into `topics_file`.
        temperature, max_tokens, words: Of the statements (0.7, 160 and about 80).
        referee_tokens, scoring: The length of the referee's replies, and `numbers` (default) or `odds`.
        plan: More fields of the plan, e.g. `seeds`.
    """
    from evenhand.core.progress import Listener
    from evenhand.training.debates import METHOD, debate_fields, missing_topics, run_debate

    chosen: dict[str, Any] = {
        "bias": bias,
        "topics": topics,
        "roles": roles,
        "data": None if data is None else str(data),
        "rounds": rounds,
        "words": words,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "referee_tokens": referee_tokens,
        "scoring": scoring,
    }
    file = None if topics_file is None else Path(topics_file)
    missing = missing_topics(chosen, generate=generate, file=file, seed=(plan.get("seeds") or [0])[0])
    if missing is not None:
        chosen["data"] = str(missing.path)
    roles_of = {"base": model, "teacher": teacher, "referee": referee}
    named, settings = with_specs(
        {role: each for role, each in roles_of.items() if each is not None}, settings or Settings()
    )
    made = make_plan({"methods": [METHOD], **plan, **debate_fields(chosen), "models": [named]})
    folder = default_folder(made.benchmark, made) if out is None else Path(out)
    done = aio.run(run_debate(made, folder, settings, listener or Listener(), missing))
    if done is None and missing is not None:
        there = f"{missing.path} has {missing.written():,} topics"
        raise UsageError(f"The model has no further ideas; {there}. Pass it as `data` to debate these.")
    return compare(folder)


@aio.facade
def pairs(
    *runs: str | Path, out: str | Path | None = None, data: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Make preference pairs and low-bias answers of stored debates, split by topic; returns what pairs.json says.

    `pairs("debates", out="pairs/age", margin=1)` writes files that `train` reads, and that `datasets` and TRL read too.

    Args:
        out: A new folder; by default `pairs` in the first run.
        data: The folder of the public data sets: statements that repeat questions of BBQ are dropped.
        options: `policy` (threshold, max_min or first_last), `threshold` (a score, "median" or "topic"), `margin`,
            `length_ratio`, `per_topic`, `test_share`, `seed`.
    """
    from evenhand.training.pairs import PairOptions
    from evenhand.training.pairs.cleaning import load_check
    from evenhand.training.pairs.folder import check_folder, write_pairs

    if not runs:
        raise UsageError("Name one run of debates or more.")
    folders = [Path(run) for run in runs]
    target = folders[0] / "pairs" if out is None else Path(out)
    chosen = PairOptions(**options)
    check_folder(target)
    return write_pairs(folders, target, chosen, load_check(data))


@aio.facade
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
