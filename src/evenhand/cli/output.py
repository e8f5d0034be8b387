"""What a command shows of a run: -v, --log, --quiet and --json of all commands that run plans."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import click

from evenhand.core.errors import EvenhandError, UsageError
from evenhand.core.events import log
from evenhand.core.options import Request, option
from evenhand.core.untrusted import one_line

if TYPE_CHECKING:
    from evenhand.studies.results import ArmResult, StudyResult

_KEY = "evenhand.output"


@dataclass(slots=True)
class Output:
    """What the command was asked to show, and what it did so far."""

    quiet: bool = False
    folders: list[Path] = field(default_factory=list[Path])
    forecast: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    examples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left_out: list[str] = field(default_factory=list[str])
    report: Path | None = None
    shown: StudyResult | None = None
    reading: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the runs that are shown are read: by which scorers, and whether without damaged rows."""
    gate: dict[str, Any] | None = None


def current_output() -> Output:
    context = click.get_current_context(silent=True)
    return Output() if context is None else cast(Output, context.meta.setdefault(_KEY, Output()))


class OutputFields(Request):
    """What a command prints, and where else it tells of its work; the command returns its exit code."""

    section: ClassVar[str] = "Output"
    session: ClassVar[Sequence[str]] = ("verbose", "log_file", "quiet", "as_json")

    verbose: bool = option(False, "Print each retry, dropped parameter, cut and failure.", short="-v")
    log_file: Path | None = option(
        None, "Append events as JSON Lines; prompts and replies only with -v.", flag="--log", metavar="FILE"
    )
    quiet: bool = option(False, "Print errors only.")
    as_json: bool = option(False, "Print one JSON summary and nothing else.", flag="--json", common=True)


R = TypeVar("R", bound=OutputFields)


def with_output(request: R, command: Callable[[R], Any]) -> Any:
    """Call a command so that it shows what the request asks for."""
    if request.verbose and request.quiet:
        raise UsageError("--verbose shows more and --quiet shows less; choose one.")
    output = current_output()
    output.quiet = request.quiet
    with _logged(request.verbose, request.log_file):
        if not request.quiet and not request.as_json:
            return command(request)
        try:
            with _silent():
                code = command(request)
        except EvenhandError as error:
            if request.as_json:
                print_json({"state": "failed", "error": str(error), "exit_code": error.exit_code})
            raise
        if request.as_json and code is not None:
            print_json(summary_object(output, code))
        return code


def summary_object(output: Output, code: int) -> dict[str, Any]:
    """The runs of a command for a program: state, counts, reasons, metrics, cost, report and exit code."""
    from evenhand.studies.study import study

    folders = dict.fromkeys(output.folders)
    alone = output.shown if len(folders) == 1 else None
    runs = [run_object(folder, alone or study([folder], **output.reading)) for folder in folders]
    costs = [run["cost"] for run in runs]
    states = list(dict.fromkeys(run["state"] for run in runs))
    return {
        "state": "complete" if not states else states[0] if len(states) == 1 else ", ".join(states),
        "exit_code": code,
        "report": None if output.report is None else str(output.report),
        "cost": None if None in costs else sum(costs),
        "runs": runs,
        **({"comparison": comparison_of(output.shown)} if output.shown and output.shown.effects else {}),
        **({"gate": output.gate} if output.gate is not None else {}),
        **({"forecast": output.forecast} if output.forecast else {}),
        **({"examples": output.examples} if output.examples else {}),
        **({"left_out": output.left_out} if output.left_out else {}),
    }


def comparison_of(result: StudyResult) -> dict[str, Any]:
    """What a study says about its arms, and their paired differences."""
    arms = {arm.id: arm.label for arm in result.arms}
    told = (each for each in result.effects if each.group == "all")
    differences = [asdict(each) | {"before": arms[each.before], "after": arms[each.after]} for each in told]
    return {"verdicts": list(result.verdicts), "warnings": list(result.warnings), "differences": differences}


def run_object(folder: Path, result: StudyResult) -> dict[str, Any]:
    """One stored run for a program, and what its study found."""
    from evenhand.runs.summary import read_summary
    from evenhand.studies.gate import made_with

    found = read_summary(folder)
    arms = {arm.label: arm for arm in result.arms}
    return {
        "run": str(folder),
        "state": found.state,
        "benchmark": found.benchmark,
        "models": list(found.models),
        "methods": list(found.methods),
        "made_with": made_with(*result.provenance.values()),
        "created": found.created,
        "arms": [
            {
                "arm": arm.label,
                "counts": dict(arm.counts),
                "pending": arm.pending,
                "reasons": [
                    {"status": status, "reason": reason, "count": count} for status, reason, count in arm.reasons
                ],
                "metrics": [
                    {"metric": each.metric, "value": each.value, "low": each.low, "high": each.high, "n": each.n}
                    for each in (arms[arm.label].estimates if arm.label in arms else ())
                    if each.group == "all" and not arm.nothing_measured
                ],
                **nodes_of(arms.get(arm.label)),
            }
            for arm in found.arms
        ],
        "verdicts": list(result.verdicts),
        "caveats": list(result.caveats),
        "warnings": list(result.warnings),
        "calls": found.usage.calls,
        "tokens": found.usage.tokens,
        "cost": found.usage.cost,
    }


def nodes_of(arm: ArmResult | None) -> dict[str, Any]:
    """The members of a panel and what passes between them, by name; nothing without a panel."""
    found: dict[str, dict[str, Any]] = {"nodes": {}, "edges": {}}
    for each in () if arm is None else arm.nodes:
        kind, _, name = each.metric.partition("_")
        value = {"value": each.value, "low": each.low, "high": each.high, "n": each.n}
        found[f"{kind}s"].setdefault(each.group, {})[name] = value
    return {name: values for name, values in found.items() if values}


def print_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


@contextlib.contextmanager
def _silent() -> Generator[None]:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


@contextlib.contextmanager
def _logged(verbose: bool, log_file: Path | None) -> Generator[None]:
    """Send the events of the library to standard error and to the file."""
    handlers: list[logging.Handler] = []
    if verbose:
        handlers.append(_Lines(logging.INFO))
    if log_file is not None:
        handlers.append(_JsonLines(log_file, texts=verbose))
    before = log.level
    if handlers:
        log.setLevel(min(handler.level for handler in handlers))
    for handler in handlers:
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
        log.setLevel(before)


class _Lines(logging.Handler):
    """One line on standard error for each event; looked up each time, since a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = getattr(record, "fields", {})
        place = " ".join(str(fields[name]) for name in ("arm", "sample") if name in fields)
        click.echo(one_line(f"{place}: {record.getMessage()}".removeprefix(": ")), err=True)


class _JsonLines(logging.Handler):
    """One JSON object per event, appended to a file."""

    def __init__(self, path: Path, *, texts: bool) -> None:
        super().__init__(logging.DEBUG)
        self._texts = texts
        self._file = path.open("a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        import orjson

        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "event": getattr(record, "event", "log"),
            "level": record.levelname.lower(),
            **getattr(record, "fields", {}),
            "message": record.getMessage(),
            **(getattr(record, "texts", {}) if self._texts else {}),
        }
        self._file.write(orjson.dumps(line, default=str).decode() + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()
