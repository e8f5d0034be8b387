"""`evenhand train`: trains a less biased model on pairs, stage by stage or all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from evenhand.cli.given_options import with_options
from evenhand.cli.groups import Group, hint
from evenhand.cli.progress import shown_workflow
from evenhand.cli.report import print_study, study_and_report
from evenhand.cli.train_export import export
from evenhand.cli.train_questions import questions
from evenhand.core.errors import UsageError
from evenhand.core.format import file_size
from evenhand.core.specs import scalar
from evenhand.training.card import cautions, flat, percent, shown
from evenhand.training.cluster import Workers, placed
from evenhand.training.configs import NAMES
from evenhand.training.evaluation import Evaluation, evaluate
from evenhand.training.launch import (
    make_recipe,
    make_verifiable,
    train_recipe,
    train_stage,
    train_verifiable,
    write_gguf_lora,
)
from evenhand.training.options import Algorithm, KLPlace, current_name
from evenhand.training.parallel import is_main

if TYPE_CHECKING:
    from evenhand.training.recipe import Recipe

_RANK = 16
_PATH = click.Path(path_type=Path)

_WHERE = (
    click.argument("data", type=_PATH, metavar="PAIRS"),
    click.option("--model", "-m", required=True, metavar="MODEL", help="Folder, hub name, .gguf, or local/builtin."),
    click.option("--out", "-o", type=_PATH, required=True, metavar="FOLDER", help="A new folder for the model."),
    click.option("--resume", is_flag=True, help="Continue an interrupted training; keep a finished one."),
)
_PACE = (
    click.option("--batch", type=int, help="Rows per step (sft 16, reward 32, ppo 32, dpo 16)."),
    click.option("--lr", type=float, help="Learning rate (sft 2e-5, reward 3e-5, ppo 5e-6, dpo 1e-6)."),
    click.option("--epochs", type=float, help="Passes over the data (default 1)."),
    click.option("--steps", type=int, help="Number of steps; overrides --epochs."),
)
_MEMORY = (
    click.option("--micro-batch", type=int, help="Rows computed at once, to save memory; same result."),
    click.option("--gradient-checkpointing", is_flag=True, help="Less memory, more time; same result."),
    click.option("--max-length", type=int, help="Tokens of a conversation; prompts are truncated on the left (2048)."),
)
_LORA = (
    click.option("--lora", is_flag=True, help="Train LoRA adapters instead of all weights."),
    click.option("--lora-rank", type=int, default=_RANK, show_default=True, help="With --lora: rank of the adapters."),
)
_MACHINE = (
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16"]),
        help="Precision (default: bfloat16 on a GPU, else float32).",
    ),
    click.option("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)."),
    click.option("--seed", type=int, help="Seed of all random numbers (default 0)."),
    click.option("--save-every", type=int, help="Steps between checkpoints (default 100; ppo 10)."),
    click.option("--chat-template", type=_PATH, help="A Jinja file, for a model without a chat template."),
    click.option("--pad-token", help="A token of the tokenizer, if it has no padding token."),
)
_CLUSTER = (
    click.option(
        "--on",
        metavar="ray[://HOST:PORT]",
        help="Train on Ray: the one at RAY_ADDRESS, on this machine, or the one that is named.",
    ),
    click.option(
        "--workers", type=click.IntRange(1, 4096), metavar="N", help="With --on: processes (default: one for each GPU)."
    ),
    click.option(
        "--parallel", type=click.Choice(NAMES), help="With --on: how workers share the weights (default several_gpus)."
    ),
)
_SHARED = (*_MEMORY, *_LORA, *_MACHINE, *_CLUSTER)
_ADAPTER = click.option("--keep-adapter", is_flag=True, help="With --lora: save the adapter alone, not merged.")
_RENAMED_IN_PPO = {
    "--passes": "--ppo-epochs",
    "--beta": "--kl-coefficient",
}


@click.group(
    cls=Group,
    lazy={
        "debate": ("evenhand.cli.debate:debate", "Have roles debate topics while a referee scores their bias."),
        "pairs": ("evenhand.cli.pairs:pairs", "Make preference pairs for training from stored debates."),
    },
)
def train() -> None:
    """Train a less biased model on preference pairs.

    PAIRS is a folder of `evenhand train pairs`, or one of its files. The result is a folder with safetensors and a
    model card; use a trained policy as hf/FOLDER.

    \b
    Examples:
      evenhand train recipe pairs/age --model local/builtin --out models/age       all three stages
      evenhand train recipe pairs/age --model local/builtin --out models/age --resume --evaluate --judge openai/gpt-4o
      evenhand audit hf/models/ppo
    """


train.add_command(export)
train.add_command(questions)


@train.command()
@with_options((*_WHERE, *_PACE, *_SHARED, _ADAPTER))
def sft(resume: bool, **given: Any) -> None:
    """Fine-tune a model on the low-bias answers.

    \b
    Example:
      evenhand train sft pairs/age --model local/builtin --out models/sft
    """
    _train("sft", given, resume=resume)


@train.command()
@with_options((*_WHERE, *_PACE))
@click.option(
    "--negatives", type=float, help="Share of added pairs with an empty, cut or off-topic answer (default 0.1)."
)
@click.option("--margin-weight", type=float, help="Weight of the referee's margins in the loss (default 0).")
@click.option("--ensemble", type=int, help="Heads; the reward is their mean minus their SD (default 1).")
@with_options(_SHARED)
def reward(resume: bool, **given: Any) -> None:
    """Train a reward model on pairs: it gives the less biased answer the higher score.

    Then it is probed with worthless answers (empty, gibberish, cut, off-topic, longer, the prompt again); a warning
    names those that it likes.

    \b
    Examples:
      evenhand train reward pairs/age --model models/sft --out models/reward
      evenhand train reward pairs/age --model models/sft --out models/four --ensemble 4 --margin-weight 0.1
    """
    _train("reward", given, resume=resume)


@train.command(renamed=_RENAMED_IN_PPO)
@with_options((*_WHERE, *_PACE))
@click.option("--reward", required=True, metavar="FOLDER", help="The folder of the reward model.")
@click.option("--algorithm", type=click.Choice(get_args(Algorithm)), help="How advantages are estimated (default ppo).")
@click.option("--answers", type=int, help="Answers per prompt, for rloo and grpo (default 4).")
@click.option("--mini-batch", type=int, help="Prompts per update (default 4).")
@click.option("--max-new-tokens", type=int, help="Maximum length of an answer (default 384).")
@click.option("--ppo-epochs", type=int, help="Passes over each batch of answers (default 4).")
@click.option("--critic-lr", type=float, help="Learning rate of the critic (default 3e-5).")
@click.option(
    "--critic-warmup", type=int, help="First steps, which train only the critic (default: a tenth, at most 20)."
)
@click.option(
    "--reward-range",
    type=float,
    help="Rewards count in SDs of the reference's and saturate at ± this many; 0: as they are (default 3).",
)
@click.option("--kl-coefficient", type=float, help="Weight of the KL from the reference (default 0.05).")
@click.option(
    "--kl-in",
    type=click.Choice(get_args(KLPlace)),
    help="Count the KL per token in the loss, or summed in the reward (default loss).",
)
@click.option("--kl-target", type=float, help="Adapt the KL coefficient to this KL, in nats per token.")
@click.option("--clip", type=float, help="Clip range of probability ratios (default 0.2).")
@click.option("--value-clip", type=float, help="Clip range of the critic's values (default 1).")
@click.option("--lam", type=float, help="GAE's λ for the policy (default 1).")
@click.option("--gamma", type=float, help="Discount factor (default 1).")
@click.option("--temperature", type=float, help="Sampling temperature (default 1).")
@click.option(
    "--drift-limits/--no-drift-limits",
    default=None,
    help="Stop and go back to the last good checkpoint when answers leave the limits below (default: on).",
)
@click.option("--shortest", type=float, help="Lowest mean length, in multiples of the reference's (default 0.6).")
@click.option("--longest", type=float, help="Highest mean length, in multiples of the reference's (default 1.6).")
@click.option("--min-entropy", type=float, help="Lowest entropy, in multiples of the reference's (default 0.3).")
@click.option("--max-kl", type=float, help="Highest KL from the reference, in nats per token (default 0.3).")
@click.option(
    "--max-openings", type=float, help="Highest rise of the share of answers with the same opening (default 0.3)."
)
@click.option("--max-unfinished", type=float, help="Highest rise of the share of truncated answers (default 0.2).")
@click.option(
    "--choose-by",
    metavar="SCORER",
    help="Keep the checkpoint whose answers to held-out prompts this scorer rates best, e.g. opinion:JUDGE.",
)
@click.option(
    "--rollout-replicas", type=int, metavar="N", help="Sample answers by this many copies of the policy on Ray."
)
@click.option(
    "--staleness",
    type=int,
    help="With --rollout-replicas: how many updates old their weights may be (default 0: the trainer waits).",
)
@click.option(
    "--sample-every", type=int, help="Steps between answers written to samples.jsonl (default: as --save-every)."
)
@with_options((*_SHARED, _ADAPTER))
def ppo(resume: bool, **given: Any) -> None:
    """Train a fine-tuned model against a reward model by PPO, or by RLOO, GRPO or ReMax, which need no critic.

    \b
    Examples:
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/ppo --lora
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/rloo --algorithm rloo
    """
    _train("ppo", given, resume=resume)


@train.command()
@with_options((*_WHERE, *_PACE))
@click.option("--beta", type=float, help="Weight of the KL from the reference (default 0.1).")
@with_options((*_SHARED, _ADAPTER))
def dpo(resume: bool, **given: Any) -> None:
    """Train a fine-tuned model on the pairs by DPO, which needs no reward model.

    \b
    Example:
      evenhand train dpo pairs/age --model models/sft --out models/dpo
    """
    _train("dpo", given, resume=resume)


@train.command(renamed={"--bbq": "--data"})
@with_options(_WHERE)
@click.option(
    "--algorithm",
    type=click.Choice([*get_args(Algorithm), "dpo"]),
    default="ppo",
    show_default=True,
    help="Algorithm of the last stage; dpo needs no reward model.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="STAGE.OPTION=VALUE", help="An option of one stage, e.g. ppo.lr=1e-5."
)
@click.option("--evaluate", is_flag=True, help="At the end, evaluate the base, the fine-tuned and the trained model.")
@click.option(
    "--judge", metavar="SPEC", help="With --evaluate: the model that rates opinions (default: the base model)."
)
@click.option("--data", "bbq", metavar="FOLDER", help="With --evaluate: the folder of the public BBQ.")
@click.option("--limit", "-n", type=int, help="With --evaluate: this many questions of each benchmark.")
@with_options((*_SHARED, _ADAPTER))
def recipe(
    resume: bool, algorithm: str, settings: tuple[str, ...], evaluate: bool, judge: str | None, bbq: str | None,
    limit: int | None, **given: Any,
) -> None:  # fmt: skip
    """Train all stages: fine-tuning, reward model, PPO. FOLDER gets sft, reward and ppo, or sft and dpo.

    \b
    Examples:
      evenhand train recipe pairs/age --model local/builtin --out models/age
      evenhand train recipe pairs/age --model local/builtin --out models/age --resume --evaluate --judge openai/gpt-4o
    """
    if not evaluate and (judge, bbq, limit) != (None, None, None):
        raise UsageError("--judge, --data and --limit say how to measure; add --evaluate.")
    workers, shared = _workers(given), _given(given)
    whole = make_recipe(shared, stage_settings(settings), algorithm)
    evaluation = Evaluation(whole.data, judge, bbq, limit, shared.get("device"))
    if evaluate:
        evaluation.check()
    with shown_workflow(whole.out) as listener:
        records = train_recipe(whole, resume=resume, listener=listener, workers=workers)
    for name, record in records.items():
        _print_record(record, whole.out / name)
    if evaluate:
        _evaluate(evaluation, whole)


@train.command()
@with_options(_WHERE[1:])
@click.option("--data", type=_PATH, metavar="ROWS", help="Rows of your own instead of generated questions.")
@click.option("--rows", type=int, help="Questions, held-out ones included (default 6000; of --data: all).")
@click.option("--forms", metavar="FORM,…", help="Answer forms (default: all).")
@click.option("--languages", metavar="CODE,…", help="Languages of the questions (default: all).")
@click.option("--general", type=float, help="Share of the model's own answers to general prompts (default 0.2).")
@click.option("--sft-steps", type=int, help="Steps of fine-tuning (default: one pass over the data).")
@click.option(
    "--rl-steps",
    type=int,
    metavar="N",
    help="Then N steps of RL, e.g. 40 (default: none, since it gained little and treats groups alike that differ).",
)
@click.option("--no-rl", is_flag=True, hidden=True)
@click.option("--lora", type=int, default=_RANK, show_default=True, help="Rank of the adapters; 0 trains all weights.")
@click.option("--merge", is_flag=True, help="Save merged weights instead of the adapter.")
@click.option("--max-new-tokens", type=int, help="Maximum length of a sampled answer (default 128).")
@click.option(
    "--set", "settings", multiple=True, metavar="STAGE.OPTION=VALUE", help="An option of sft or rl, e.g. rl.lr=1e-5."
)
@click.option("--smoke", is_flag=True, help="A few rows and steps, to see whether everything runs.")
@with_options((*_MEMORY, *_MACHINE, *_CLUSTER))
def verifiable(
    resume: bool, smoke: bool, no_rl: bool, lora: int, settings: tuple[str, ...], sft_steps: int | None,
    rl_steps: int | None, **given: Any,
) -> None:  # fmt: skip
    """Train a model not to guess about people: on questions whose answer is known.

    The questions are generated, and the model is fine-tuned on their answers. FOLDER gets questions, sft and the
    evaluation. RL with an exact reward can follow; it gets the folder rl.

    \b
    Examples:
      evenhand train verifiable --model hf/models/base --out models/fair
      evenhand train verifiable --model local/builtin --out models/smoke --smoke
      evenhand audit hf/models/fair/sft
    """
    own = stage_settings(settings)
    for stage, steps in (("sft", sft_steps), ("rl", rl_steps)):
        if steps is not None:
            own[stage] = {**own.get(stage, {}), "steps": steps}
    if no_rl and "rl" in own:
        raise UsageError("--no-rl leaves out RL, so it takes no --rl-steps and no --set rl.….")
    workers = _workers(given)
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("forms", "languages"):
        if name in chosen:
            chosen[name] = tuple(each.strip() for each in chosen[name].split(","))
    options = make_verifiable({**chosen, "lora": lora or None}, own, smoke=smoke)
    with shown_workflow(options.out) as listener:
        record = train_verifiable(options, resume=resume, listener=listener, workers=workers)
    if not is_main():
        return
    _print_evaluation(record["results"])
    for name, each in record["stages"].items():
        ended = [] if each["ended"] == "done" else [f"{name} was {each['ended']}."]
        for caution in (*ended, *cautions(each)):
            click.echo(f"! {caution}")
    click.echo(f"Use it as hf/{options.out / list(record['stages'])[-1]}")


@train.command()
@click.argument("adapter", type=_PATH, metavar="FOLDER")
@click.option("--out", "-o", type=_PATH, metavar="FILE", help="The file to write (default: FOLDER/adapter.gguf).")
def gguf(adapter: Path, out: Path | None) -> None:
    """Write the LoRA adapter in FOLDER as a GGUF file for llama.cpp, in float16.

    It belongs to the model that it was trained from. The file of that model may be quantized.

    \b
    Example:
      evenhand train gguf models/fair/sft --out fair.gguf
      evenhand audit 'local/builtin?lora=fair.gguf'
    """
    target = out or adapter / "adapter.gguf"
    write_gguf_lora(adapter, target)
    click.echo(f"{target} ({file_size(target.stat().st_size)}); use it as 'local/NAME?lora={target}'")


def _print_evaluation(results: Mapping[str, Any]) -> None:
    names = list(results)
    click.echo(f"{'right answers to held-out questions':<36}" + "".join(f"{name:>20}" for name in names))
    for group in results[names[0]]:
        click.echo(f"  {group:<34}" + "".join(f"{percent(results[name][group]):>20}" for name in names))


def _train(stage: str, given: dict[str, Any], *, resume: bool) -> None:
    workers, options = _workers(given), _given(given)
    with shown_workflow(options["out"]) as listener:
        record = train_stage(stage, options, resume=resume, listener=listener, workers=workers)
    _print_record(record, options["out"])


def _evaluate(evaluation: Evaluation, recipe: Recipe) -> None:
    """Evaluate the models and print the comparison."""
    with shown_workflow(recipe.out) as listener:
        runs = evaluate(evaluation, recipe.policies(), recipe.out, listener.stage_began)
    for folders in runs.values():
        print_study(*study_and_report(folders, folders[0].parent / "report.html"))


def _workers(values: dict[str, Any]) -> Workers | None:
    """Take the options of a cluster out of those of a command; None to train in this process."""
    on, count, parallel = (values.pop(name) for name in ("on", "workers", "parallel"))
    return placed(on, count, parallel, values["device"])


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given; the others keep the defaults of their stage."""
    options = {name: value for name, value in values.items() if value is not None}
    rank = options.pop("lora_rank")
    options["lora"] = rank if options["lora"] else None
    return options


def stage_settings(settings: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parse options of single stages, each given as STAGE.OPTION=VALUE."""
    stages: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        stage, _, name = key.partition(".")
        if not equals:
            raise UsageError(f"--set takes STAGE.OPTION=VALUE, e.g. ppo.lr=1e-5, not {setting!r}.")
        stages.setdefault(stage, {})[_current(stage, name)] = scalar(value)
    return stages


def _current(stage: str, option: str) -> str:
    """Return the current name of an option, with a hint if a former name was given."""
    current = current_name(stage, option)
    if current != option and is_main():
        hint(f"{stage}.{option}", f"{stage}.{current}")
    return current


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
