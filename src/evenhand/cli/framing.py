"""`evenhand judges framing` and `attention`: what a model admits, and where it looks, when told who wrote a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import click

from evenhand.benchmarks.framing import find_text
from evenhand.cli.options import command
from evenhand.cli.report import print_stored, report_path
from evenhand.cli.request import PlanCommand, html_file
from evenhand.cli.run import begin, execute
from evenhand.core.errors import UsageError
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.specs import key_values
from evenhand.made.from_runs import write_own_texts
from evenhand.methods.framing import framed_attention
from evenhand.models.base import ModelOptions
from evenhand.runs.request import PlannedRun, read_out


class AttentionCommand(Request):
    spec: str = option(..., "A transformers model.", flag="--model", short="-m", metavar="hf/PATH")
    text: str = option(
        "age-01-biased",
        "A text of the benchmark framing, or a YAML file with `question` and `answer`.",
        metavar="ID|FILE",
    )
    layers: bool = option(False, "Also show and write every layer by itself.")
    seed: int = option(0, "Decides whether Yes or No is named first.")
    extra: Several = option((), "An option of the model, e.g. device=cpu.", flag="--model-option", metavar="KEY=VALUE")
    out: Path = option(Path("attention.html"), "The page; the numbers are written beside it as .csv.", short="-o")


@command(AttentionCommand)
def attention(request: AttentionCommand) -> None:
    """Show where attention goes when a text is said to be the model's own, a model's or a competitor's.

    It is the attention of the last token before the reply, averaged over heads and layers, over the words of the very
    prompts that the benchmark framing asks.

    \b
    Examples:
      evenhand judges attention --model hf/FOLDER
      evenhand judges attention --model hf/OWNER/NAME --text beauty-03-biased --layers --out beauty.html
      evenhand judges attention --model hf/FOLDER --text mine.yaml --model-option device=cpu
    """

    from evenhand.show.attention import attention_page, passages_table, write_attention_csv
    from evenhand.show.terminal import print_table

    html_file(request.out)
    shown = find_text(request.text)
    framed = framed_attention(
        request.spec, shown, ModelOptions(extra=key_values(request.extra, "--model-option")), request.seed
    )
    title = "Attention under three framings"
    lead = "Where the last token before the reply looks, over the prompts that ask "
    lead += f"{request.spec} about the text {shown.id}."
    attention_page(title, lead, framed, layers=request.layers).write(request.out)
    write_attention_csv(request.out.with_suffix(".csv"), framed, layers=request.layers)
    print_table(passages_table(f"{title}: {request.spec}, {shown.id}", framed))
    click.echo(f"Page: {request.out}, numbers: {request.out.with_suffix('.csv')}")


BENCHMARK = METHOD = "framing"


class FramingCommand(PlanCommand):
    """Texts to frame."""

    command: ClassVar[str] = "judges framing"
    fixed: ClassVar[Sequence[str]] = (
        *("benchmark", "benchmark_options", "scorers", "language", "prompts", "attributes", "repeats"),
    )

    runs: tuple[Path, ...] = argument("Runs made before.", default=())
    limit: int | None = option(
        None, "This many texts, each under three framings (default: all 60).", short="-n", common=True
    )
    data: str | Path | None = option(
        None, "Texts of your own, as YAML; see docs/measure/framing.md.", metavar="FILE", common=True
    )
    own: Path | None = option(
        None,
        "The texts that the model wrote itself: its answers in a rated run of opinions.",
        metavar="RUN",
        common=True,
    )


def end_framing(request: FramingCommand, run: PlannedRun) -> int:
    """Run what is missing and write the report; the exit code."""
    del request
    return execute(run, report=True, benchmark=BENCHMARK)


@command(FramingCommand, goes_on=end_framing)
def framing(request: FramingCommand) -> int:
    """Show a model the same texts as its own, as a language model's and as a competitor's: RLDF's Figure 1.

    Two thirds of the texts hold a stereotype. It is asked whether each is biased, and how much; the method can be
    another one for multiple choice, too. Or name RUNS made before.

    \b
    Examples:
      evenhand judges framing --model local/builtin --limit 15
      evenhand judges framing -m openai/gpt-4o-mini --method framing --method fair_prompt --dry-run
      evenhand judges framing -m openai/NAME --own runs/opinions --method framing:names=true
      evenhand judges framing runs/before runs/after
    """
    if request.runs:
        if request.models or request.config:
            raise UsageError("Give either runs made before or a plan to run, not both.")
        out, target = read_out(request.out)
        return print_stored(request.runs, target or report_path(out or request.runs[0]), benchmark=BENCHMARK)
    if request.own is not None:
        if request.data:
            raise UsageError("--own and --data both name texts; remove one.")
        request = request.changed(data=str(write_own_texts(request.own)))
    return begin(request, request.run_asked((METHOD,), {"benchmark": BENCHMARK}), end_framing)
