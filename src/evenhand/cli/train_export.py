"""`evenhand train export`: the same training in TRL."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.training.export import ALGORITHMS
from evenhand.training.export import export as write

_PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("data", type=_PATH, metavar="PAIRS")
@click.option("--to", type=click.Choice(["trl"]), default="trl", show_default=True, help="The stack that will train.")
@click.option("--model", "-m", required=True, metavar="MODEL", help="A folder, or a name on the hub.")
@click.option("--reward", type=_PATH, metavar="FOLDER", help="A reward model by evenhand train reward; DPO needs none.")
@click.option(
    "--algorithm", type=click.Choice(ALGORITHMS), default="grpo", show_default=True, help="What TRL trains with."
)
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="GPUs of the machine that trains.")
@click.option("--out", "-o", type=_PATH, required=True, metavar="FOLDER", help="A new folder.")
def export(data: Path, to: str, model: str, reward: Path | None, algorithm: str, gpus: int, out: Path) -> None:
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
    names = write(data, out, model=model, reward=reward, algorithm=algorithm, gpus=gpus)
    click.echo(f"{out}: {', '.join(names)}")
    click.echo(f"Next, in an environment with {to}: bash {out / 'run.sh'}")
