"""`evenhand judges attention`: where a model looks when it is told who wrote a text."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.core.errors import UsageError
from evenhand.core.files import write_text
from evenhand.core.specs import key_values
from evenhand.data.framing import find_text
from evenhand.methods.framing import framed_attention
from evenhand.models.base import ModelOptions


@click.command(cls=Command)
@click.option("--model", "-m", "spec", required=True, metavar="hf/PATH", help="A transformers model.")
@click.option(
    "--text", default="age-01-biased", show_default=True, metavar="ID|FILE",
    help="A text of the benchmark framing, or a YAML file with `question` and `answer`.",
)  # fmt: skip
@click.option("--layers", is_flag=True, help="Also show and write every layer by itself.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides whether Yes or No is named first.")
@click.option(
    "--model-option", "extra", multiple=True, metavar="KEY=VALUE", help="An option of the model, e.g. device=cpu."
)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), default=Path("attention.html"), show_default=True,
    help="The page; the numbers are written beside it as .csv.",
)  # fmt: skip
def attention(spec: str, text: str, layers: bool, seed: int, extra: tuple[str, ...], out: Path) -> None:
    """Show where attention goes when a text is said to be the model's own, a model's or a competitor's.

    It is the attention of the last token before the reply, averaged over heads and layers, over the words of the very
    prompts that the benchmark framing asks.

    \b
    Examples:
      evenhand judges attention --model hf/FOLDER
      evenhand judges attention --model hf/OWNER/NAME --text beauty-03-biased --layers --out beauty.html
      evenhand judges attention --model hf/FOLDER --text mine.yaml --model-option device=cpu
    """
    from rich.console import Console

    from evenhand.show.attention import passages_table, render_attention, write_attention_csv
    from evenhand.show.tables.fitting import print_table

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {out} should end in .html.")
    shown = find_text(text)
    framed = framed_attention(spec, shown, ModelOptions(extra=key_values(extra, "--model-option")), seed)
    title = "Attention under three framings"
    lead = f"Where the last token before the reply looks, over the prompts that ask {spec} about the text {shown.id}."
    write_text(out, render_attention(title, lead, framed, layers=layers))
    write_attention_csv(out.with_suffix(".csv"), framed, layers=layers)
    print_table(Console(), passages_table(f"{title}: {spec}, {shown.id}", framed))
    click.echo(f"Page: {out}, numbers: {out.with_suffix('.csv')}")
