"""`evenhand run show`, `rescore`, `export`, `trust`, `merge`, `push`, `pull`: what can be done with one stored run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import click

from evenhand import api
from evenhand.cli.options import command
from evenhand.cli.progress import FAILED, STOPPED, shown_count, stopped_by_budget
from evenhand.cli.request import AllowCallOption, SkipDamagedOption, check_file
from evenhand.core.config import read_config
from evenhand.core.errors import UsageError, needs_extra
from evenhand.core.files import json_object, write_text
from evenhand.core.format import plural
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.untrusted import clean, one_line
from evenhand.runs import remote
from evenhand.runs.merge import merge as merge_shards
from evenhand.runs.request import CallRequest
from evenhand.runs.scores import Rescored, means
from evenhand.runs.store import FILE_NAME
from evenhand.runs.stored import StoredRun, open_sources
from evenhand.studies.agreement import agreements
from evenhand.studies.export import FORMATS, TABLES
from evenhand.studies.export import export as write
from evenhand.studies.results import ShownOutcome, ShownSample, ShownTurn
from evenhand.studies.samples import Step, find_sample, story

INSPECT = "eval"
"""The format of Inspect's logs."""
LATEX = "latex"


class ExportCommand(SkipDamagedOption):
    run: Path = argument("The run.")
    content: str | None = option(None, "What to write (default outcomes).", flag="--table", choices=TABLES)
    file_format: str | None = option(
        None,
        "Default: by the ending of --out, else csv. datasets: a folder for that package; eval: logs of Inspect; "
        "latex: a table of metrics or effects for a paper.",
        flag="--format",
        choices=(*FORMATS, INSPECT, LATEX),
    )
    out: Path | None = option(None, "The file (default TABLE.FORMAT in the run).", short="-o")
    usage: bool = option(False, "Add calls, tokens, money and time to outcomes.")


@command(ExportCommand)
def export(request: ExportCommand) -> None:
    """Write RUN's outcomes, turns, metrics, effects or evidence as CSV, Parquet, JSON Lines or a data set.

    \b
    Examples:
      evenhand run export runs/first
      evenhand run export runs/first --table turns --out turns.parquet
      evenhand run export runs/first --format datasets --out outcomes    (then: datasets.load_from_disk("outcomes"))
      evenhand run export runs/first --format latex --out table.tex      (metrics; or --table effects)
      evenhand run export runs/first --format eval     (then: inspect view --log-dir runs/first/inspect)

    The columns and their types are documented on the page "Tables". Evidence is what its methods searched for and
    found; as JSON Lines it can be searched again, with replay:FILE.
    """
    table = request.content
    chosen = request.file_format or _format_of(request.out)
    if chosen == INSPECT:
        if table or request.usage:
            raise UsageError("A log of Inspect holds all that the run stored; remove --table and --usage.")
        _write_logs(request.run, request.out or request.run / "inspect", request.skip_damaged)
        return
    if chosen == LATEX:
        target = request.out or request.run / f"{table or 'metrics'}.tex"
        write_text(target, api.compare(request.run).to_latex(table or "metrics"))
        click.echo(f"{target}: a table for LaTeX (\\usepackage{{booktabs}})")
        return
    table = table or TABLES[0]
    if chosen != "datasets":
        check_file(request.out, "the table")
    target = request.out or request.run / (table if chosen == "datasets" else f"{table}.{chosen}")
    count = write(request.run, table, chosen, target, usage=request.usage, skip_damaged=request.skip_damaged)
    click.echo(f"{target}: {count:,} rows")


def _format_of(out: Path | None) -> str:
    """The format that the ending of --out names; csv without one."""
    ending = out.suffix.lower() if out is not None else ""
    formats = {f".{each}": each for each in (*FORMATS, INSPECT)} | {".tex": LATEX, "": "csv"}
    if ending not in formats:
        raise UsageError(f"--out {out} should end in .csv, .jsonl, .parquet, .tex or .eval; or give a --format.")
    return formats[ending]


def _write_logs(run: Path, target: Path, skip_damaged: bool) -> None:
    with needs_extra("writing Inspect logs", "inspect"):
        from evenhand.integrations.inspect.logs import export_logs
    for file, count in export_logs(run, target, skip_damaged=skip_damaged):
        click.echo(f"{file}: {count:,} samples")
    folder = target.parent if target.suffix in (".eval", ".json") else target
    click.echo(f"To look at it: inspect view --log-dir {folder}")


_SHOWN_REASONS = 3


class RescoreCommand(CallRequest, AllowCallOption):
    fixed: ClassVar[Sequence[str]] = ("workers", "replicas", "gpus_per_replica")

    run: Path = argument("The run.")
    specs: Several = option(
        ...,
        "NAME or NAME:ARGUMENT, see evenhand list scorers; repeat for several.",
        flag="--scorer",
        short="-s",
        metavar="SPEC",
    )
    templates: str | None = option(None, "Prompt files of your own, for scorers that ask a model.", metavar="DIR")


@command(RescoreCommand)
def rescore(request: RescoreCommand) -> int:
    """Score the stored answers of RUN with another scorer; the models that answered are not asked again.

    \b
    Examples:
      evenhand run rescore runs/first --scorer builtin
      evenhand run rescore runs/first --scorer judge:openai/gpt-4o-mini --budget '$2'
      evenhand compare runs/first --scorer builtin            what the study says by that scorer

    Final answers and those after each iteration are scored, in all arms. What has a score by that scorer is left
    alone, so the same command goes on where it was stopped, and tries again what could not be scored. A budget counts
    the calls of this command alone.
    """
    run = request.run
    settings = replace(request.settings_for(read_config()), allow_call=request.allow_call)
    hint = "What was scored is kept; go on with the same command and a larger --budget."
    with stopped_by_budget(hint), shown_count() as count:
        results = api.rescore(run, request.specs, settings=settings, progress=count, templates=request.templates)
    print_scores(run, results)
    tried = [each for each in results if each.scored or each.reasons]
    return FAILED if tried and not any(each.scored for each in tried) else 0


def print_scores(run: Path, results: Sequence[Rescored]) -> None:
    """What was done, the means by the new scorers, and how far they agree with the others."""
    from rich.console import Console

    from evenhand.show.sections.answers import agreement_table, mean_table
    from evenhand.show.terminal import print_table, safe_text

    console = Console()
    with open_sources([run]) as (runs, sources):
        store = sources[0].store
        arms = {source.arm.number: source.label for source in sources}
        for each in results:
            click.echo(f"{each.scorer}: {each.scored:,} new scores, {each.reasons.total():,} texts without one")
            for reason, count in each.reasons.most_common(_SHOWN_REASONS):
                console.print(safe_text(f"  {count:,} × {reason}"))
            found = means(store, each.scorer)
            if any(arm.graded for arm in found.values()):
                print_table(mean_table(each.scorer, each.attributes, arms, found))
            for name, why in runs[0].untold([each.scorer]).items():
                click.echo(f"! {name} cannot be determined: {why}.")
        new = {each.scorer for each in results}
        for agreement in agreements([store]):
            if new & {agreement.first, agreement.second}:
                print_table(agreement_table(agreement.first, agreement.second, agreement.rows))
    chosen = [part for each in results for part in ("--scorer", each.scorer.rpartition("@")[0])]
    click.echo(f"Next: {shlex.join(['evenhand', 'compare', str(run), *chosen])}")


class MergeCommand(Request):
    runs: tuple[Path, ...] = argument("The shards of one plan.")
    out: Path = option(..., "The new folder of the merged run.", short="-o")


@command(MergeCommand)
def merge(request: MergeCommand) -> int:
    """Merge RUNS, all shards of one plan, into one run with the numbers of a run that was never split.

    \b
    Examples:
      evenhand run --config plan.yaml --shard 1/2 --out shards/1      on one machine
      evenhand run --config plan.yaml --shard 2/2 --out shards/2      on another one
      evenhand run merge shards/1 shards/2 --out runs/whole
      evenhand report runs/whole

    Shards of different plans, data, models or code are refused. The shards are only read. If some samples were not
    run, the merged run can be resumed.
    """
    merged = merge_shards(request.runs, request.out)
    click.echo(f"{request.out}: {merged.shards:,} shards, {merged.samples:,} samples, {merged.outcomes:,} outcomes.")
    if merged.pending:
        click.echo(f"{merged.pending:,} outcomes are missing. Continue with: evenhand resume {request.out}")
        return STOPPED
    click.echo(f"Next: evenhand report {request.out}")
    return 0


class PushCommand(Request):
    run: Path = argument("The run.")
    url: str = argument("Where the copy is, e.g. s3://bucket/runs/first.")
    overwrite: bool = option(False, "Replace the run that is there.")


@command(PushCommand)
def push(request: PushCommand) -> None:
    """Copy RUN, or a folder of runs, to URL: object storage, or anything else that fsspec supports.

    \b
    Examples:
      evenhand run push runs/first s3://bucket/runs/first
      evenhand run push shards/2 gs://bucket/shards/2 --overwrite

    A run may go on meanwhile: what is finished is copied. s3:// needs pip install s3fs, gs:// gcsfs, az:// adlfs; they
    take their keys from where they always do.
    """
    count = remote.push(request.run, request.url, overwrite=request.overwrite)
    click.echo(f"{request.url}: {plural(count, 'file')}")


class PullCommand(Request):
    url: str = argument("Where the copy is, e.g. s3://bucket/runs/first.")
    run: Path = argument("The run.")


@command(PullCommand)
def pull(request: PullCommand) -> None:
    """Copy a run, or a folder with runs, from URL into the new folder RUN.

    \b
    Examples:
      evenhand run pull s3://bucket/runs/first runs/first
      evenhand run pull gs://bucket/shards shards
      evenhand run merge shards/1 shards/2 --out runs/whole
    """
    count = remote.pull(request.url, request.run)
    click.echo(f"{request.run}: {plural(count, 'file')}")


class TrustCommand(Request):
    run: Path = argument("The folder of a run, a paper or a suite.")
    yes: bool = option(False, "Trust it without a question.")


@command(TrustCommand)
def trust(request: TrustCommand) -> None:
    """Show what RUN, made on another machine, would do on this one, and trust it if you confirm.

    \b
    Examples:
      evenhand run trust runs/from-a-colleague
      evenhand run trust runs/from-a-colleague --yes

    A run that was not made here is data: its Python is not executed, and it may only call models that this machine's
    config knows. Trust holds on this machine, until the run's plan, files or settings change.
    """
    from evenhand.cli.resume import COMMAND_NAME, folder_demands, trust_folder

    file = request.run / COMMAND_NAME
    if file.is_file() and not (request.run / FILE_NAME).is_file():
        if _agreed(request, folder_demands(json_object(file.read_bytes(), file, None))):
            trust_folder(file)
        return
    run = StoredRun.open(request.run)
    with closing(run.store):
        if _agreed(request, [] if run.is_own else run.demands().every):
            run.trust()


def _agreed(request: TrustCommand, demands: Sequence[str]) -> bool:
    """List what would be trusted, and ask."""
    if not demands:
        click.echo(f"{request.run} needs no trust: it does nothing that this machine does not know.")
        return False
    click.echo(f"{request.run} was not made on this machine. If you trust it, this machine may do what it asks for. It")
    for number, each in enumerate(demands, 1):
        # A stranger wrote these names: one line each, and no code for the terminal.
        click.echo(f"  {number}. {''.join(char if char.isprintable() else '�' for char in each)}")
    if not request.yes:
        if not sys.stdin.isatty():
            raise UsageError("Nothing was trusted; read the list, and repeat the command with --yes.")
        click.confirm("Trust it?", abort=True)
    click.echo(f"Trusted on this machine: {request.run}")
    return True


class ShowCommand(SkipDamagedOption):
    run: Path = argument("The run.")
    sample: str | None = argument("The id of a sample.", default=None)
    listed: bool = option(False, "Print the ids of the samples.", flag="--list")
    turns: bool = option(False, "With a SAMPLE: print every call, also where there is a story.")


@command(ShowCommand)
def show(request: ShowCommand) -> None:
    """Print RUN's plan and state, or the story of one SAMPLE (its id) in every arm.

    \b
    Examples:
      evenhand run show runs/first
      evenhand run show runs/first --list
      evenhand run show runs/first Age-ambig-3 --turns

    For methods that revise their answers, it prints a story: each answer, what the critics said, what was decided.
    Of other methods, every call is printed.
    """
    if request.sample is not None:
        found = find_sample(request.run, request.sample, skip_damaged=request.skip_damaged)
        click.echo("\n".join(_lines(found, _labels(request.run, request.skip_damaged), turns=request.turns)))
    elif request.listed:
        with open_sources([request.run], skip_damaged=request.skip_damaged) as (_, sources):
            for _, each in sources[0].store.samples():
                click.echo(one_line(each.id))
    else:
        _print_run(request.run, request.skip_damaged)


def _labels(run: Path, skip_damaged: bool) -> dict[str, str]:
    with open_sources([run], skip_damaged=skip_damaged) as (_, sources):
        return {source.id: source.label for source in sources}


def _print_run(directory: Path, skip_damaged: bool) -> None:
    import yaml

    with open_sources([directory], skip_damaged=skip_damaged) as (runs, sources):
        store = runs[0].store
        click.echo(yaml.safe_dump(runs[0].plan.model_dump(exclude_defaults=True), sort_keys=False).rstrip())
        click.echo(one_line(f"# identity {store.get('identity')[:16]}, created {store.get('created')}"))
        for source in sources:
            counts = store.counts(source.arm.number)
            pending = store.get("samples") - sum(counts.values())
            states = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
            click.echo(one_line(f"# {source.label}: {states or 'nothing yet'}, {pending:,} pending"))
        first = next((sample.id for _, sample in store.samples()), "")
        click.echo(one_line(f"# one sample: evenhand run show {directory} {first}"))


def _lines(sample: ShownSample, labels: dict[str, str], *, turns: bool) -> list[str]:
    lines = [f"{sample.id} ({sample.group})", "", sample.context, sample.prompt]
    for index, choice in enumerate(sample.choices):
        lines.append(f"  {'→' if index == sample.target else ' '} {choice}")
    right: Any = sample.target
    if isinstance(right, list):
        lines.append(f"  → {' / '.join(map(str, cast(list[Any], right))) or 'no answer'}")
    for outcome in sample.outcomes:
        lines += ["", *_outcome(outcome, labels[outcome.arm], turns=turns)]
    return [clean(line) for line in lines]


def _outcome(outcome: ShownOutcome, label: str, *, turns: bool) -> list[str]:
    told = [line for step in story(outcome) for line in _step(step)]
    shown = turns or not told
    called = [line for turn in outcome.turns for line in _turn(turn)] if shown else []
    verdict = ", ".join(f"{key} {value}" for key, value in outcome.grade.items() if value is not None)
    reason = f" ({outcome.reason})" if outcome.reason else ""
    return [
        f"── {label} " + "─" * max(3, 70 - len(label)),
        *told,
        *([""] if told and called else []),
        *called,
        f"⇒ {outcome.status}{reason}: {outcome.answer or 'no answer'}",
        *([f"  {verdict}"] if verdict else []),
        *([] if shown else [f"  calls: {len(outcome.turns)}; --turns prints them"]),
    ]


def _step(step: Step) -> list[str]:
    """An answer stands at the margin, what is said about it under it."""
    if step.kind == "answer":
        return [step.label.capitalize(), *(f"    {line}" for line in step.text.splitlines() or ["(nothing)"])]
    if step.kind == "end":
        return [step.text]
    mark = {True: "✓ ", False: "✗ ", None: "? "}[step.passed] if step.kind == "critic" else ""
    details = f" [{step.details}]" if step.details else ""
    return _block(f"{mark}{step.label} ", step.text + details)


def _turn(turn: ShownTurn) -> list[str]:
    thoughts = f" (of which {turn.thought_tokens} thoughts)" if turn.thought_tokens else ""
    price = "from the cache" if turn.cached else f"{turn.tokens} tokens{thoughts}, {turn.latency:.2f} s"
    lines = [f"{turn.agent} ({turn.model or turn.role}; prompt {turn.prompt_id}@{turn.prompt_hash}; {price})"]
    for role, content in turn.messages:
        lines += _block(f"{role}: ", content)
    for thought, output in zip(turn.thoughts, turn.outputs, strict=True):
        lines += _block("thought: ", thought) if thought else []
        lines += _block("answered: ", output)
    return [*lines, *([f"  failed: {turn.error}"] if turn.error else [])]


def _block(label: str, text: str) -> list[str]:
    first, *rest = text.splitlines() or [""]
    return [f"  {label}{first}", *(f"    {line}" for line in rest)]
