"""`evenhand run show`: a run's plan and state, or one sample's trace as a story."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from evenhand.cli.given_options import skip_damaged_option
from evenhand.cli.groups import Command
from evenhand.runs.stored import open_sources
from evenhand.studies.results import ShownOutcome, ShownSample, ShownTurn
from evenhand.studies.show import find_sample
from evenhand.studies.story import Step, story


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("sample", required=False)
@click.option("--list", "listed", is_flag=True, help="Print the ids of the samples.")
@click.option("--turns", is_flag=True, help="With a SAMPLE: print every call, also where there is a story.")
@skip_damaged_option
def show(run: Path, sample: str | None, listed: bool, turns: bool, skip_damaged: bool) -> None:
    """Print RUN's plan and state, or the story of one SAMPLE (its id) in every arm.

    \b
    Examples:
      evenhand run show runs/first
      evenhand run show runs/first --list
      evenhand run show runs/first Age-ambig-3 --turns

    Methods that revise their answers are told as a story: each answer, what the critics said, what was decided.
    Of other methods, every call is printed.
    """
    if sample is not None:
        found = find_sample(run, sample, skip_damaged=skip_damaged)
        click.echo("\n".join(_lines(found, _labels(run, skip_damaged), turns=turns)))
    elif listed:
        with open_sources([run], skip_damaged=skip_damaged) as (_, sources):
            for _, each in sources[0].store.samples():
                click.echo(each.id)
    else:
        _print_run(run, skip_damaged)


def _labels(run: Path, skip_damaged: bool) -> dict[str, str]:
    with open_sources([run], skip_damaged=skip_damaged) as (_, sources):
        return {source.id: source.label for source in sources}


def _print_run(directory: Path, skip_damaged: bool) -> None:
    import yaml

    with open_sources([directory], skip_damaged=skip_damaged) as (runs, sources):
        store = runs[0].store
        click.echo(yaml.safe_dump(runs[0].plan.model_dump(exclude_defaults=True), sort_keys=False).rstrip())
        click.echo(f"# identity {store.get('identity')[:16]}, created {store.get('created')}")
        for source in sources:
            counts = store.counts(source.arm.number)
            pending = store.get("samples") - sum(counts.values())
            states = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
            click.echo(f"# {source.label}: {states or 'nothing yet'}, {pending:,} pending")
        first = next((sample.id for _, sample in store.samples()), "")
        click.echo(f"# one sample: evenhand run show {directory} {first}")


def _lines(sample: ShownSample, labels: dict[str, str], *, turns: bool) -> list[str]:
    lines = [f"{sample.id} ({sample.group})", "", sample.context, sample.prompt]
    for index, choice in enumerate(sample.choices):
        lines.append(f"  {'→' if index == sample.target else ' '} {choice}")
    right: Any = sample.target
    if isinstance(right, list):
        lines.append(f"  → {' / '.join(map(str, cast(list[Any], right))) or 'no answer'}")
    for outcome in sample.outcomes:
        lines += ["", *_outcome(outcome, labels[outcome.arm], turns=turns)]
    return [_printable(line) for line in lines]


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


def _printable(line: str) -> str:
    """Model text may hold terminal control sequences; they are shown, not obeyed."""
    return "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line)
