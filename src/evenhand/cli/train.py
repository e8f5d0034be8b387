"""`evenhand train`: a less biased model from the pairs of debates, stage by stage or all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from evenhand.cli.listener import shown_workflow
from evenhand.cli.options import with_options
from evenhand.cli.report import print_study, study_and_report
from evenhand.errors import UsageError
from evenhand.specs import scalar
from evenhand.training.card import cautions, shown
from evenhand.training.evaluation import Evaluation, evaluate
from evenhand.training.options import Algorithm
from evenhand.training.parallel import is_main
from evenhand.workflows.train import make_recipe, train_recipe, train_stage

if TYPE_CHECKING:
    from evenhand.training.recipe import Recipe

_RANK = 16
_PATH = click.Path(path_type=Path)

_WHERE = (
    click.argument("data", type=_PATH),
    click.option("--model", "-M", required=True, metavar="MODEL", help="Folder, hub name, .gguf, or local/builtin."),
    click.option("--out", "-o", type=_PATH, required=True, metavar="FOLDER", help="Where the model goes."),
    click.option("--resume", is_flag=True, help="Go on with what was interrupted, or keep what is finished."),
)
_PACE = (
    click.option("--batch", type=int, help="Rows in a step (sft 16, reward 32, ppo 4, dpo 16)."),
    click.option("--lr", "rate", type=float, help="Learning rate (sft 2e-5, reward 3e-5, ppo 5e-6, dpo 1e-6)."),
    click.option("--epochs", type=float, help="How often all data is seen (default 1)."),
    click.option("--steps", type=int, help="This many steps, instead of epochs."),
)
_SHARED = (
    click.option("--micro-batch", type=int, help="Rows computed at once, where memory is short; same result."),
    click.option("--gradient-checkpointing", is_flag=True, help="Less memory, more time; same result."),
    click.option("--max-length", type=int, help="Tokens of a conversation; prompts are cut from the left (2048)."),
    click.option("--lora", is_flag=True, help="Train low-rank adapters instead of all weights."),
    click.option("--lora-rank", type=int, default=_RANK, show_default=True),
    click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), help="Default: bfloat16 on a GPU."),
    click.option("--device", help="cpu, cuda, cuda:1, … (default: a GPU where there is one)."),
    click.option("--seed", type=int, help="Default 0."),
    click.option("--save-every", type=int, help="Steps between checkpoints (default 100)."),
    click.option("--chat-template", type=_PATH, help="A Jinja file, for a model without a chat template."),
    click.option("--pad-token", help="One of the tokenizer's tokens, where none can pad."),
)
_ADAPTER = click.option("--keep-adapter", is_flag=True, help="With --lora: save the adapter alone, not merged.")


@click.group()
def train() -> None:
    """Train a less biased model from the pairs of debates.

    DATA is a folder by `evenhand pairs`, or one of its files. A result is a folder of safetensors with a model card;
    use a policy at once as hf/FOLDER.

    \b
    Examples:
      evenhand train recipe pairs/age --model local/builtin --out models/age       all three stages
      evenhand train recipe pairs/age --model local/builtin --out models/age --resume --evaluate --judge openai/gpt-4o
      evenhand train sft pairs/age --model local/builtin --out models/sft
      evenhand train reward pairs/age --model models/sft --out models/reward
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/ppo --lora
      evenhand train ppo pairs/age --model models/sft --reward models/reward --out models/rloo --algorithm rloo
      evenhand train dpo pairs/age --model models/sft --out models/dpo
      evenhand train sft pairs/age --model local/builtin --out models/sft --resume
      evenhand audit hf/models/ppo
    """


@train.command()
@with_options((*_WHERE, *_PACE, *_SHARED, _ADAPTER))
def sft(resume: bool, **given: Any) -> None:
    """Fine-tune a model on the answers of low bias."""
    _train("sft", _given(given), resume=resume)


@train.command()
@with_options((*_WHERE, *_PACE, *_SHARED))
def reward(resume: bool, **given: Any) -> None:
    """Train a reward model on pairs: a higher number for the less biased answer."""
    _train("reward", _given(given), resume=resume)


@train.command()
@with_options((*_WHERE, *_PACE))
@click.option("--reward", required=True, metavar="FOLDER", help="The reward model.")
@click.option("--algorithm", type=click.Choice(get_args(Algorithm)), help="What to compare answers with (ppo).")
@click.option("--answers", type=int, help="To each prompt of a batch, for rloo and grpo (default 4).")
@click.option("--max-new-tokens", type=int, help="The longest answer that is sampled (default 128).")
@click.option("--passes", type=int, help="Updates with each batch of answers (default 4).")
@click.option("--critic-lr", "critic_rate", type=float, help="Learning rate of the critic (default 3e-5).")
@click.option("--beta", type=float, help="KL coefficient (default 0.05).")
@click.option("--clip", type=float, help="Clip range of a token's probability ratio (default 0.2).")
@click.option("--lam", type=float, help="GAE's λ (default 0.95).")
@click.option("--gamma", type=float, help="The discount (default 1).")
@click.option("--temperature", type=float, help="Of the sampled answers (default 1).")
@click.option("--no-end-penalty", type=float, help="For answers that are cut off (default 0.5).")
@click.option("--kl-limit", type=float, help="Stop at this KL divergence from the reference, in nats (default 20).")
@click.option("--sample-every", type=int, help="Steps between answers kept for reading (default: as --save-every).")
@with_options((*_SHARED, _ADAPTER))
def ppo(resume: bool, **given: Any) -> None:
    """Train a fine-tuned model against a reward model, by PPO, or by RLOO, GRPO or ReMax, which need no critic."""
    _train("ppo", _given(given), resume=resume)


@train.command()
@with_options((*_WHERE, *_PACE))
@click.option("--beta", type=float, help="KL coefficient (default 0.1).")
@with_options((*_SHARED, _ADAPTER))
def dpo(resume: bool, **given: Any) -> None:
    """Train a fine-tuned model on the pairs themselves, by DPO; it needs no reward model."""
    _train("dpo", _given(given), resume=resume)


@train.command()
@with_options(_WHERE)
@click.option(
    "--algorithm",
    type=click.Choice([*get_args(Algorithm), "dpo"]),
    default="ppo",
    show_default=True,
    help="Of the last stage; dpo needs no reward model.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="STAGE.OPTION=VALUE", help="e.g. ppo.rate=1e-5; names as in the card."
)
@click.option("--evaluate", is_flag=True, help="At the end, measure the model before, fine-tuned and after.")
@click.option("--judge", metavar="SPEC", help="With --evaluate: who rates opinions (default: the model before).")
@click.option("--bbq", metavar="FOLDER", help="With --evaluate: the public BBQ instead of the built-in questions.")
@click.option("--limit", type=int, help="With --evaluate: this many questions of each benchmark (default all).")
@with_options((*_SHARED, _ADAPTER))
def recipe(
    resume: bool, algorithm: str, settings: tuple[str, ...], evaluate: bool, judge: str | None, bbq: str | None,
    limit: int | None, **given: Any,
) -> None:  # fmt: skip
    """All of it: fine-tune, train a reward model, then PPO. FOLDER gets sft, reward and ppo, or sft and dpo."""
    if not evaluate and (judge, bbq, limit) != (None, None, None):
        raise UsageError("--judge, --bbq and --limit say how to measure; add --evaluate.")
    shared = _given(given)
    whole = make_recipe(shared, _settings(settings), algorithm)
    measured = Evaluation(whole.data, judge, bbq, limit, shared.get("device"))
    if evaluate:
        measured.check()
    with shown_workflow(whole.out) as listener:
        records = train_recipe(whole, resume=resume, listener=listener)
    for name, record in records.items():
        _tell(record, whole.out / name)
    if evaluate:
        _evaluate(measured, whole)


def _train(stage: str, options: dict[str, Any], *, resume: bool) -> None:
    with shown_workflow(options["out"]) as listener:
        record = train_stage(stage, options, resume=resume, listener=listener)
    _tell(record, options["out"])


def _evaluate(evaluation: Evaluation, recipe: Recipe) -> None:
    """Run what is to be measured, and show the models side by side."""
    with shown_workflow(recipe.out) as listener:
        runs = evaluate(evaluation, recipe.policies(), recipe.out, listener.stage_began)
    for folders in runs.values():
        print_study(*study_and_report(folders, folders[0].parent / "report.html"))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given; the others have defaults of their own."""
    found = {name: value for name, value in values.items() if value is not None}
    rank = found.pop("lora_rank")
    found["lora"] = rank if found["lora"] else None
    return found


def _settings(settings: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Options of single stages, from STAGE.OPTION=VALUE."""
    found: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        stage, _, name = key.partition(".")
        if not equals:
            raise UsageError(f"--set {setting} should be STAGE.OPTION=VALUE, e.g. sft.epochs=2 or ppo.rate=1e-5.")
        found.setdefault(stage, {})[name] = scalar(value)
    return found


def _tell(record: Mapping[str, Any], folder: Path) -> None:
    if not is_main():
        return
    click.echo(f"{folder}: {record['stage']} {record['ended']}")
    for name, value in record["results"].items():
        click.echo(f"  {name.replace('_', ' ')}: {shown(value)}")
    for caution in cautions(record):
        click.echo(f"! {caution}")
    if record["stage"] != "reward":
        click.echo(f"Use it as hf/{folder}")
