"""`evenhand train questions`: writes questions whose answer is known, to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evenhand.cli.groups import Command
from evenhand.core.errors import UsageError

_PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.option("--out", "-o", type=_PATH, required=True, metavar="FOLDER", help="A new folder for the questions.")
@click.option("--count", type=int, default=6000, show_default=True, help="Number of questions, dev split included.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed writes the same files.")
@click.option("--forms", metavar="NAME,…", help="Answer forms, e.g. letter,sentence (default: all).")
@click.option("--languages", metavar="NAME,…", help="Languages: en, es, de (default: all).")
@click.option("--categories", metavar="NAME,…", help="Kinds of questions, e.g. Age,names,knowledge (default: all).")
@click.option("--data", metavar="FOLDER", help="The folder of the public BBQ, for the leak check.")
@click.option("--check", "folders", type=_PATH, multiple=True, metavar="FOLDER", help="Check against these files too.")
def questions(out: Path, data: str | None, folders: tuple[Path, ...], **given: Any) -> None:
    """Write training questions: short passages that tell who it was, or do not; and common knowledge.

    No model is needed. Questions that repeat BBQ or the built-in ones are dropped. The folder gets train.jsonl,
    dev.jsonl with situations, people and wording of its own, and a data card.

    \b
    Examples:
      evenhand train questions --out questions
      evenhand train questions --out letters --forms letter --languages en --count 2000
    """
    from evenhand.training.questions.folder import load_benchmarks, write_folder
    from evenhand.training.questions.generate import QuestionPlan

    chosen: dict[str, Any] = {
        name: _listed(value) if isinstance(value, str) else value for name, value in given.items()
    }
    plan = QuestionPlan(**{name: value for name, value in chosen.items() if value is not None})
    if (out / "train.jsonl").exists():
        raise UsageError(f"{out} holds questions already; name another folder.")
    card = write_folder(plan, out, load_benchmarks(data, folders))
    for split, described in card["splits"].items():
        click.echo(f"{out / f'{split}.jsonl'}: {described['rows']:,} questions, {described['situations']} situations")
    click.echo(f"Leak check: {sum(sum(each['leaks'].values()) for each in card['splits'].values())} dropped.")
    if card["leaks"]["unchecked"]:
        click.echo(f"! {card['leaks']['unchecked']}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in map(str.strip, text.split(",")) if name)
