"""`evenhand train`: from debates to pairs to a less biased model, stage by stage or all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.progress import LOST, shown_count, shown_workflow
from evenhand.cli.report import print_study, study_and_report
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.files import write_json
from evenhand.core.format import count, duration, file_size, plural
from evenhand.core.options import Request, argument, option
from evenhand.core.progress import Count
from evenhand.models.load import load_model
from evenhand.show.table import Column, Content, Table, columns, measured
from evenhand.show.terminal import print_table
from evenhand.studies.gate import difference
from evenhand.training.card import cautions, flat, shown
from evenhand.training.cluster import Workers, placed
from evenhand.training.launch import (
    make_recipe,
    make_verifiable,
    train_recipe,
    train_stage,
    train_verifiable,
    write_gguf_lora,
)
from evenhand.training.options import (
    CheckedOptions,
    DPOOptions,
    Listed,
    PPOOptions,
    RewardOptions,
    SFTOptions,
    SharedOptions,
    VerifiableOptions,
    read_stage_settings,
)
from evenhand.training.parallel import is_main
from evenhand.training.recipe import Evaluation, evaluate

if TYPE_CHECKING:
    from evenhand.training.forgetting import Forgetting
    from evenhand.training.recipe import Recipe

_FIRST = ("verifiable", "forgets", "debate", "pairs", "recipe", "sft", "reward", "ppo", "dpo")
"""The help lists these before others: what most people need, then the single stages."""


class _Train(Group):
    """The commands of training, the most used ones first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        every = super().list_commands(ctx)
        return [*_FIRST, *(name for name in every if name not in _FIRST)]


@click.group(
    cls=_Train,
    lazy={
        "debate": ("evenhand.cli.debate:debate", "Have roles debate topics while a referee scores their bias."),
        "pairs": ("evenhand.cli.debate:pairs", "Make preference pairs for training from stored debates."),
    },
)
def train() -> None:
    """Train a less biased model: on questions whose answer is known, or on debates.

    `verifiable` needs no data: it generates its questions. `debate`, `pairs` and `recipe` train on better and worse
    answers from debates. The result is a folder with safetensors and a model card; use it as hf/FOLDER.

    \b
    Examples:
      evenhand train verifiable --model hf/PATH --out models/fair
      evenhand train debate --bias age --topics 60 --model hf/PATH --out debates
      evenhand train pairs debates --out pairs/age
      evenhand train recipe pairs/age --model hf/PATH --out models/age
      evenhand audit hf/models/age/ppo
    """


class ClusterFields(Request):
    """Where the processes run that train."""

    section: ClassVar[str] = "Cluster"

    on: str | None = option(
        None,
        "Train on Ray: the one at RAY_ADDRESS, on this machine, or the one that is named.",
        metavar="ray[://HOST:PORT]",
    )
    workers: int | None = option(None, "With --on: processes (default: one for each GPU).", metavar="N", ge=1, le=4096)
    parallel: Literal["several_gpus", "fsdp", "fsdp_zero2"] | None = option(
        None, "With --on: how workers share the weights (default several_gpus)."
    )


class TrainCommand(ClusterFields, SharedOptions):
    """What all commands take that train on pairs: options of all stages, and how the training is started."""

    fixed: ClassVar[Sequence[str]] = ("lora",)
    stage: ClassVar[type[SharedOptions]] = SharedOptions
    """The options that are the stage's own."""

    with_lora: bool = option(False, "Train LoRA adapters instead of all weights.", flag="--lora", common=True)
    lora_rank: int = option(16, "With --lora: rank of the adapters.", gt=0)
    resume: bool = option(False, "Continue an interrupted training; keep a finished one.", common=True)

    @property
    def has_adapters(self) -> bool:
        return self.with_lora

    @property
    def asked(self) -> dict[str, Any]:
        """The options of the stage that were given; the others keep their defaults."""
        return {**self.given(self.stage), "lora": self.lora_rank if self.with_lora else None}

    @property
    def placed(self) -> Workers | None:
        """The workers that are asked for; None to train in this process."""
        return placed(self.on, self.workers, self.parallel, self.device)


class SFTCommand(TrainCommand, SFTOptions):
    """A fine-tuning."""

    stage: ClassVar[type[SharedOptions]] = SFTOptions


@command(SFTCommand, train)
def sft(request: SFTCommand) -> None:
    """Fine-tune a model on the low-bias answers.

    \b
    Example:
      evenhand train sft pairs/age --model local/builtin --out models/sft
    """
    _train("sft", request)


class RewardCommand(TrainCommand, RewardOptions):
    """A reward model."""

    fixed: ClassVar[Sequence[str]] = ("lora", "keep_adapter")
    stage: ClassVar[type[SharedOptions]] = RewardOptions


@command(RewardCommand, train)
def reward(request: RewardCommand) -> None:
    """Train a reward model on pairs: it gives the less biased answer the higher score.

    Then it is probed with worthless answers (empty, gibberish, cut, off-topic, doubled, padded, the prompt again); it
    warns of those that score high, and of rewards that depend on length.

    \b
    Examples:
      evenhand train reward pairs/age --model models/sft --out models/reward
      evenhand train reward pairs/age --model models/sft --out models/four --ensemble 4 --margin-weight 0.1
    """
    _train("reward", request)


class PPOCommand(TrainCommand, PPOOptions):
    """A training by PPO or one of its variants."""

    stage: ClassVar[type[SharedOptions]] = PPOOptions


@command(PPOCommand, train)
def ppo(request: PPOCommand) -> None:
    """Train a fine-tuned model against a reward model by PPO, or by RLOO, GRPO or ReMax, which need no critic.

    \b
    Examples:
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/ppo --lora
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/rloo --algorithm rloo
    """
    _train("ppo", request)


class DPOCommand(TrainCommand, DPOOptions):
    """A training by DPO."""

    stage: ClassVar[type[SharedOptions]] = DPOOptions


@command(DPOCommand, train)
def dpo(request: DPOCommand) -> None:
    """Train a fine-tuned model on the pairs by DPO, which needs no reward model.

    \b
    Example:
      evenhand train dpo pairs/age --model models/sft --out models/dpo
    """
    _train("dpo", request)


class RecipeCommand(TrainCommand):
    """All stages."""

    algorithm: Literal["ppo", "rloo", "grpo", "remax", "dpo"] = option(
        "ppo", "Algorithm of the last stage; dpo needs no reward model.", common=True
    )
    stages: Mapping[str, Mapping[str, Any]] = option(
        {},
        "An option of one stage, e.g. ppo.lr=1e-5.",
        flag="--set",
        metavar="STAGE.OPTION=VALUE",
        read=read_stage_settings,
        common=True,
    )
    evaluate: bool = option(False, "At the end, evaluate the base, the fine-tuned and the trained model.", common=True)
    judge: str | None = option(
        None, "With --evaluate: the model that rates opinions (default: the base model).", metavar="SPEC", common=True
    )
    bbq: str | None = option(None, "With --evaluate: the folder of the public BBQ.", flag="--data", metavar="FOLDER")
    limit: int | None = option(None, "With --evaluate: this many questions of each benchmark.", short="-n", ge=1)


@command(RecipeCommand, train)
def recipe(request: RecipeCommand) -> None:
    """Train all stages: fine-tuning, reward model, PPO. FOLDER gets sft, reward and ppo, or sft and dpo.

    \b
    Examples:
      evenhand train recipe pairs/age --model local/builtin --out models/age
      evenhand train recipe pairs/age --model local/builtin --out models/age --resume --evaluate --judge openai/gpt-4o
    """
    measured = (request.judge, request.bbq, request.limit)
    if not request.evaluate and measured != (None, None, None):
        raise UsageError("--judge, --data and --limit say how to measure; add --evaluate.")
    workers = request.placed
    whole = make_recipe(request.asked, request.stages, request.algorithm)
    evaluation = Evaluation(whole.data, *measured, request.device)
    if request.evaluate:
        evaluation.check()
    with shown_workflow(whole.out) as listener:
        records = train_recipe(whole, resume=request.resume, listener=listener, workers=workers)
    for name, record in records.items():
        _print_record(record, whole.out / name)
    if request.evaluate:
        _evaluate(evaluation, whole)


class VerifiableCommand(ClusterFields, VerifiableOptions, SharedOptions):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A training on questions whose answer is known."""

    fixed: ClassVar[Sequence[str]] = ("keep_adapter", "shared", "sft", "rl")

    sft_steps: int | None = option(None, "Steps of fine-tuning (default: one pass over the data).", gt=0, common=True)
    rl_steps: int | None = option(
        None,
        "Then N steps of RL, e.g. 40 (default: none, since it gained little and treats groups alike that differ).",
        metavar="N",
        gt=0,
        common=True,
    )
    stages: Mapping[str, Mapping[str, Any]] = option(
        {},
        "An option of sft or rl, e.g. rl.lr=1e-5.",
        flag="--set",
        metavar="STAGE.OPTION=VALUE",
        read=read_stage_settings,
    )
    smoke: bool = option(
        False, "A few rows and steps, to see that it runs and that the loss on held-out answers falls.", common=True
    )
    dry_run: bool = option(
        False, "Measure one step and a few answers here, and print how long the training takes at most.", common=True
    )
    resume: bool = option(False, "Continue an interrupted training; keep a finished one.", common=True)


@command(VerifiableCommand, train)
def verifiable(request: VerifiableCommand) -> int:
    """Train a model not to guess about people: on questions whose answer is known.

    The questions are generated, and the model is fine-tuned on their answers. FOLDER gets questions, sft and the
    evaluation. RL with an exact reward can follow; it gets the folder rl. What the model lost is measured before and
    after; the exit code is 5 if it is more than --allow-loss, and not by chance alone.

    \b
    Examples:
      evenhand train verifiable --model hf/models/base --out models/fair
      evenhand train verifiable --model local/builtin --out models/fair --dry-run
      evenhand train verifiable --model local/builtin --out models/smoke --smoke
      evenhand audit hf/models/fair/sft
    """
    from evenhand.training.verifiable import forecast, forgetting_of

    own: dict[str, dict[str, Any]] = {stage: dict(options) for stage, options in request.stages.items()}
    for stage, steps in (("sft", request.sft_steps), ("rl", request.rl_steps)):
        if steps is not None:
            own.setdefault(stage, {})["steps"] = steps
    workers = placed(request.on, request.workers, request.parallel, request.device)
    options = make_verifiable(request.given(VerifiableOptions, SharedOptions), own, smoke=request.smoke)
    if request.dry_run:
        _print_training_forecast(*forecast(options), rl=options.rl is not None)
        return 0
    with shown_workflow(options.out) as listener:
        record = train_verifiable(options, resume=request.resume, listener=listener, workers=workers)
    if not is_main():
        return 0
    _print_evaluation(record["results"])
    sft = record["stages"]["sft"]["results"]
    before, after = sft["held_out_loss_before"], sft["held_out_loss_after"]
    click.echo(f"Loss on held-out answers: {before:.2f} before, {after:.2f} after {plural(sft['steps'], 'step')}.")
    for name, each in record["stages"].items():
        ended = [] if each["ended"] == "done" else [f"{name} was {each['ended']}."]
        for caution in (*ended, *cautions(each)):
            click.echo(f"! {caution}")
    found = forgetting_of(options)
    if found is not None:
        _print_forgetting(found)
    click.echo(f"Use it as hf/{options.out / list(record['stages'])[-1]}")
    return LOST if found is not None and found.lost else 0


class ForgetsCommand(Request):
    """Two models to ask the same requests."""

    before: str = argument("The model as it was.", metavar="BEFORE")
    after: str = argument("The model after the training.", metavar="AFTER")
    size: int = option(200, "Requests of each area, where there are as many.", ge=10, le=5000, common=True)
    allow_loss: float = option(
        2.0, "Points that an area may lose; the length of answers may change by five times as many percent.", ge=0
    )
    seed: int = option(0, "Another seed draws other requests.")
    out: Path | None = option(None, "A JSON file for the table.", short="-o", metavar="FILE.json")


@command(ForgetsCommand, train, "forgets")
def forgets_command(request: ForgetsCommand) -> int:
    """Did anything get worse? Ask two models the same requests, whose answers are checked by code.

    Arithmetic, obedience to forms (N sentences, items, JSON, a language, words), trivia, questions about people whose
    answer is given, harmless requests that must be answered, and the length of everyday answers. No data set and no
    judge is needed. The exit code is 5 if more than --allow-loss was lost or changed, and not by chance alone.

    \b
    Examples:
      evenhand train forgets hf/models/base hf/models/fair/sft
      evenhand train forgets local/builtin local/builtin-fair --size 50
      evenhand train forgets openai/v1 openai/v2 --allow-loss 3 -o lost.json
    """
    from evenhand.training.forgetting import forgets, probes

    asked = probes(request.seed, request.size)

    async def ask(progress: Count) -> Forgetting:
        async with load_model(request.before) as before, load_model(request.after) as after:
            return await forgets(before, after, asked, limit=request.allow_loss, progress=progress)

    with shown_count() as progress:
        found = aio.run(ask(progress))
    _print_forgetting(found)
    if request.out is not None:
        about = {"seed": request.seed, "allow_loss": request.allow_loss}
        write_json(request.out, found.as_json() | about)
    return LOST if found.lost else 0


def _print_forgetting(found: Forgetting) -> None:
    click.echo(found.sentence)
    print_table(found.table)
    for note in found.notes:
        click.echo(note)


class GGUFCommand(Request):
    """An adapter to write."""

    adapter: Path = argument("The folder of the adapter.", metavar="FOLDER")
    out: Path | None = option(None, "The file to write (default: FOLDER/adapter.gguf).", short="-o", metavar="FILE")


@command(GGUFCommand, train)
def gguf(request: GGUFCommand) -> None:
    """Write the LoRA adapter in FOLDER as a GGUF file for llama.cpp, in float16.

    It belongs to the model that it was trained from. The file of that model may be quantized.

    \b
    Example:
      evenhand train gguf models/fair/sft --out fair.gguf
      evenhand audit 'local/builtin?lora=fair.gguf'
    """
    target = request.out or request.adapter / "adapter.gguf"
    write_gguf_lora(request.adapter, target)
    click.echo(f"{target} ({file_size(target.stat().st_size)}); use it as 'local/NAME?lora={target}'")


class QuestionsCommand(CheckedOptions):
    """Questions to write."""

    out: Path = option(..., "A new folder for the questions.", short="-o", metavar="FOLDER", common=True)
    count: int = option(6000, "Number of questions, dev split included.", common=True)
    seed: int = option(0, "The same seed writes the same files.")
    forms: Listed = option((), "Answer forms, e.g. letter,sentence (default: all).", metavar="NAME,…", common=True)
    languages: Listed = option(
        (), "Languages: en, es, de, ca, ko, fr, pt (default: all).", metavar="NAME,…", common=True
    )
    categories: Listed = option(
        (), "Kinds of questions, e.g. Age,names,knowledge (default: all).", metavar="NAME,…", common=True
    )
    data: str | None = option(None, "The folder of the public BBQ, for the leak check.", metavar="FOLDER")
    folders: tuple[Path, ...] = option((), "Check against these files too.", flag="--check", metavar="FOLDER")


@command(QuestionsCommand, train)
def questions(request: QuestionsCommand) -> None:
    """Write training questions: short passages that say who it was, or do not, and common knowledge.

    No model is needed. Questions that repeat BBQ or the built-in ones are dropped. The folder gets train.jsonl,
    dev.jsonl with situations, people and wording of its own, and a data card.

    \b
    Examples:
      evenhand train questions --out questions
      evenhand train questions --out letters --forms letter --languages en --count 2000
    """
    from evenhand.training.questions.folder import load_benchmarks, write_folder
    from evenhand.training.questions.generate import QuestionPlan

    out, given = request.out, request.given()
    plan = QuestionPlan(
        **{name: given[name] for name in ("count", "seed", "forms", "languages", "categories") if name in given}
    )
    if (out / "train.jsonl").exists():
        raise UsageError(f"{out} holds questions already; name another folder.")
    card = write_folder(plan, out, load_benchmarks(request.data, request.folders))
    for split, described in card["splits"].items():
        click.echo(f"{out / f'{split}.jsonl'}: {described['rows']:,} questions, {described['situations']} situations")
    click.echo(f"Leak check: {sum(sum(each['leaks'].values()) for each in card['splits'].values())} dropped.")
    if card["leaks"]["unchecked"]:
        click.echo(f"! {card['leaks']['unchecked']}")


class ExportCommand(Request):
    """A training to write for another stack."""

    data: Path = argument("A folder of pairs.", metavar="PAIRS")
    to: Literal["trl"] = option("trl", "The stack that will train.")
    model: str = option(..., "A folder, or a name on the hub.", short="-m", metavar="MODEL", common=True)
    reward: Path | None = option(
        None, "A reward model by evenhand train reward; DPO needs none.", metavar="FOLDER", common=True
    )
    algorithm: Literal["grpo", "rloo", "dpo"] = option("grpo", "What TRL trains with.", common=True)
    gpus: int = option(1, "GPUs of the machine that trains.", ge=1, common=True)
    out: Path = option(..., "A new folder.", short="-o", metavar="FOLDER", common=True)


@command(ExportCommand, train)
def export(request: ExportCommand) -> None:
    """Write what TRL needs to train on PAIRS: data, reward function, settings and the command.

    \b
    Examples:
      evenhand train reward pairs/age --model hf-folder --out models/reward
      evenhand train export pairs/age --model hf-folder --reward models/reward --gpus 8 --out trl
      evenhand train export pairs/age --model hf-folder --algorithm dpo --out trl
      bash trl/run.sh                         in an environment with TRL

    TRL need not be installed here. Learning rate, KL coefficient, clip range and lengths are the defaults of evenhand
    train ppo; change them in the files. The guards of evenhand train ppo are not part of it. Other trainers can read
    the data, which are lists of messages, and import score from train.py as their reward.
    """
    from evenhand.training.export import export as write

    how: dict[str, Any] = {name: getattr(request, name) for name in ("model", "reward", "algorithm", "gpus")}
    names = write(request.data, request.out, **how)
    click.echo(f"{request.out}: {', '.join(names)}")
    click.echo(f"Next, in an environment with {request.to}: bash {request.out / 'run.sh'}")


def _train(stage: str, request: TrainCommand) -> None:
    with shown_workflow(request.out) as listener:
        record = train_stage(stage, request.asked, resume=request.resume, listener=listener, workers=request.placed)
    _print_record(record, request.out)


def _evaluate(evaluation: Evaluation, recipe: Recipe) -> None:
    """Evaluate the models and print the comparison."""
    with shown_workflow(recipe.out) as listener:
        runs = evaluate(evaluation, recipe.policies(), recipe.out, listener.stage_began)
    for folders in runs.values():
        print_study(*study_and_report(folders, folders[0].parent / "report.html"))


def _print_evaluation(results: Mapping[str, Any]) -> None:
    """Print one sentence on what training changed, one on what got worse, and the table behind them."""
    first, *_, last = results.values()
    verdicts = {group: _change(first[group], last[group]) for group in first}
    worse = [group for group, verdict in verdicts.items() if verdict == "worse"]
    shares = [f"{100 * each['all']['right']:.0f} %" for each in (first, last)]
    click.echo(f"Right answers to held-out questions: {shares[0]} before, {shares[1]} after: {verdicts['all']}.")
    click.echo(f"Worse than before: {', '.join(worse)}." if worse else "Nothing here is decidedly worse than before.")
    rows: list[list[Content]] = []
    for group, verdict in verdicts.items():
        shown_shares = [_right(each[group]) for each in results.values()]
        rows.append([group, *shown_shares, count(first[group]["n"]), verdict])
    print_table(Table("Right answers, %", [*columns("", *results, "n"), Column("Verdict")], rows))


def _print_training_forecast(device: str, parts: Sequence[tuple[str, int, float]], *, rl: bool) -> None:
    """Print how long each part of a training takes at most, and all of them."""
    whole = sum(times * seconds for _, times, seconds in parts)
    rows: list[list[Content]] = [
        [name, count(times), duration(seconds), duration(times * seconds)] for name, times, seconds in parts
    ]
    heads = columns("", "how many", "each", "in all", words=1)
    print_table(Table(f"What it takes on this machine ({device})", heads, rows))
    click.echo(f"At most {duration(whole)}, since answers may end before their longest length; nothing was trained.")
    if rl:
        click.echo("! The steps of RL come on top; they are not measured.")


def _right(share: Mapping[str, Any]) -> Content:
    low, high = (None if share[end] is None else 100 * share[end] for end in ("low", "high"))
    return measured(100 * share["right"], low, high)


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Whether the whole interval of the difference lies on one side of 0; questions count as if asked of each anew."""
    if before["low"] is None or after["low"] is None:
        return "cannot tell"  # all questions are about one situation
    new, old = ((share["right"], share["low"], share["high"]) for share in (after, before))
    _, low, high = difference(new, old)
    return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def _print_record(record: Mapping[str, Any], folder: Path) -> None:
    if not is_main():
        return
    click.echo(f"{folder}: {record['stage']} {record['ended']}")
    for name, value in flat(record["results"]).items():
        click.echo(f"  {name.replace('_', ' ')}: {shown(value)}")
    for caution in cautions(record):
        click.echo(f"! {caution}")
    if record["stage"] != "reward":
        click.echo(f"Use it as hf/{folder}")
