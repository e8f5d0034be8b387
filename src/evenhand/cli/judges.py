"""`evenhand judges`: whether judges can be trusted, against people and against themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import click

from evenhand import api
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.progress import shown_count, stopped_by_budget
from evenhand.cli.request import DryRunOption, check_file, html_file
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import check_names
from evenhand.core.files import write_json
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.specs import key_values
from evenhand.judging.card import SAMPLE
from evenhand.judging.instruments import USUAL, Checked
from evenhand.judging.judge import READINGS
from evenhand.judging.reliability import PROBES, REPEATS, TEXTS
from evenhand.models.budget import Budget
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan
from evenhand.runs.request import ModelsRequest


@click.group(
    cls=Group,
    lazy={
        "malibu": ("evenhand.cli.malibu:malibu", "Audit judges and panels for bias by the author's identity."),
        "framing": ("evenhand.cli.framing:framing", "Measure how many biases a model admits in its own texts."),
        "attention": ("evenhand.cli.framing:attention", "Show where a model attends when told who wrote a text."),
    },
)
def judges() -> None:
    """Check judges: against people's ratings, and for biases of their own.

    \b
    Examples:
      evenhand judges check openai/NAME --metric opinion
      evenhand judges people ratings runs/opinions
      evenhand judges reliability openai/NAME --metric opinion
      evenhand judges malibu --model openai/NAME --limit 20
    """


class JudgeCommand(DryRunOption, ModelsRequest):
    """A model to test as a judge."""

    fixed: ClassVar[Sequence[str]] = ("reasoning_effort", "workers", "replicas", "gpus_per_replica")

    spec: str = argument("The model.", metavar="MODEL")
    dry_run: bool = option(False, "Print how many calls it takes, and make none.")


class CheckCommand(JudgeCommand):
    metrics: Several = option(
        (),
        "Only these: a scorer or method, a rating, both, as in opinion.bias, or a rubric, rubric:FILE.",
        flag="--metric",
        metavar="NAME",
    )
    readings: Several = option(
        USUAL, "A way to read ratings to be tried: expected, written, odds, pairwise.", flag="--reading", metavar="NAME"
    )
    people: int = option(
        SAMPLE, "Rate this many public texts of each label too, where they are at hand; 0 for none.", metavar="N", ge=0
    )
    limit: int | None = option(
        None,
        "Of scorers, rate only this many texts of each value and half: a quick look, without a card.",
        short="-n",
        ge=1,
    )
    card: Path | None = option(None, "Where to store the judge's card, if not for the model itself.", metavar="FILE")
    out: Path | None = option(None, "The page (default judge.html).", short="-o")


@command(CheckCommand, judges)
def check(request: CheckCommand) -> int:
    """Have MODEL rate texts of known value: can it see what it is to judge, and how is it best read?

    For every rating of a scorer or a method's judge there are controls: texts of our own that have the property and
    others like them that have not, with refusals, nonsense, very short and very long texts. Printed are the AUC with
    its interval, the scale that the model uses, what it makes of refusals and nonsense, and whether its numbers can be
    trusted. How it is best read is stored in its card, with curves that turn ratings into probabilities and options
    that suit it; scorers and methods with this judge then use them.

    Runs check the ratings that their metrics rest on by themselves. Calls are cached. Exit code 1: no rating can be
    trusted.

    \b
    Examples:
      evenhand judges check openai/NAME --metric opinion --dry-run
      evenhand judges check local/builtin --metric opinion.bias --metric refusal
      evenhand judges check openai/NAME --reading expected --reading odds --out judge.html
    """
    target = html_file(request.out or Path("judge.html"))
    check_file(request.card, "the card of the judge", "--card")
    check_names("reading", READINGS, *request.readings)
    settings = request.settings_for(read_config())
    plan = request.one_model(request.spec)
    return aio.run(_check(request, plan, settings, target))


async def _check(request: CheckCommand, plan: ModelPlan, settings: Settings, target: Path) -> int:

    from evenhand.judging.card import card_path, load_card, save_card
    from evenhand.runs.controls import card_from, check_judge, instruments
    from evenhand.runs.parts import opened_model
    from evenhand.show.certificates import certificates_page, certificates_table, people_sentences, readings_table
    from evenhand.show.terminal import print_table

    async with opened_model(plan, settings, Budget(settings.budget)) as model:
        found = instruments(model, request.metrics)
        if request.dry_run:
            click.echo(f"About {found.calls(request.readings, request.limit):,} short calls. Nothing was called.")
            return 0
        with stopped_by_budget("What was rated is cached; go on with the same command."), shown_count() as count:
            checked = await check_judge(model, found, request.readings, request.people, count, request.limit)
    print_table(certificates_table([one for each in checked for one in each.certificates]))
    if (readings := readings_table(checked)) is not None:
        print_table(readings)
    for sentence in people_sentences(checked):
        click.echo(sentence)
    path = request.card or card_path(plan.spec)
    earlier = load_card(str(path), plan.spec) if path.is_file() and request.card is None else None
    card = card_from(plan.spec, checked, earlier)
    if request.limit is not None and request.card is None:
        click.echo("Card: none is stored, as --limit is a quick look.")
    elif card.curves or earlier is not None:
        save_card(card, path)
        click.echo(f"Card: {path}")
    for line in use_lines(checked, plan.spec, request.card):
        click.echo(line)
    certificates_page(plan.spec, checked).write(target)
    note = {"model": plan.spec, "certificates": [one.note() for each in checked for one in each.certificates]}
    _write_numbers(note, target)
    return 0 if any(one.sees for each in checked for one in each.certificates) else 1


def use_lines(checked: Sequence[Checked], spec: str, card: Path | None) -> list[str]:
    """Say with which options each method and scorer uses this judge, and which should have another."""
    from evenhand.judging.card import Calibrated
    from evenhand.methods.base import METHODS

    lines: list[str] = []
    for each in checked:
        options = dict(each.test.options(each.calibrations))
        blind = ", ".join(one.rating.rpartition(".")[2] for one in each.certificates if not one.sees)
        but = f"   (but not for {blind})" if blind else ""
        if not any(one.sees for one in each.certificates):
            lines.append(f"use       another model to {each.test.task}")
        elif each.name not in METHODS.names():
            lines.append(f"use       --scorer {each.name}{',model=' if ':' in each.name else ':'}{spec}{but}")
        elif issubclass(METHODS.get(each.name).options, Calibrated):
            named = f":calibration={card}" if card else ""
            knows = f"; it sets {_told(options)}" if options else ""
            lines.append(f"use       --method {each.name}{named} --judge {spec}   (reads this card{knows})")
        elif options:
            lines.append(f"use       --method {each.name}:{_told(options)}")
        lines += [f"use       {command}" for command in each.test.commands(each.calibrations)]
    return lines


def _told(options: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={_option_text(value)}" for name, value in options.items())


def _option_text(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool | str) else f"{value:g}"


class PeopleCommand(Request):
    folder: Path = argument("A folder of ratings, written by `annotate export`.")
    runs: tuple[Path, ...] = argument("The rated runs.", metavar="RUN…")
    scorers: Several = option((), "A stored judge (default: all).", flag="--scorer", short="-s", metavar="SPEC")
    scales: Several = option(
        (),
        "Compare people's SCALE with this score of the judge, e.g. BS=toxicity (default: each by its own).",
        flag="--scale",
        metavar="SCALE=ATTRIBUTE",
    )
    threshold: float = option(50, "Ratings from here on count as yes.")
    out: Path | None = option(None, "The page (default judges.html in FOLDER).", short="-o")


@command(PeopleCommand, judges)
def people(request: PeopleCommand) -> None:
    """Compare the judges of RUN… with people's ratings in FOLDER, and correct the run's numbers by these.

    FOLDER was written by `evenhand annotate export RUN… --limit N` and filled by raters. People rate N questions, the
    judge all; the corrected means, differences and shares estimate what people would say about all questions. With 50
    rated questions or more, their intervals have the stated coverage. No model is called.

    \b
    Examples:
      evenhand judges people ratings runs/opinions
      evenhand judges people ratings runs/opinions --threshold 30 --out judges.html
      evenhand judges people ratings runs/toxic --scorer builtin --scale BS=toxicity
    """

    from evenhand.annotate.judges import judges_page, terminal_tables
    from evenhand.show.terminal import print_table

    target = html_file(request.out or request.folder / "judges.html")
    compared = {short: str(name) for short, name in key_values(request.scales, "--scale").items()}
    found = api.judges_against_people(
        request.folder, *request.runs, scorers=request.scorers, scales=compared or None, threshold=request.threshold
    )
    for shown in terminal_tables(found):
        print_table(shown)
    for sentence in found.sentences:
        click.echo(sentence)
    judges_page(found).write(target)
    _write_numbers(found.note(), target)


class ReliabilityCommand(JudgeCommand):
    metrics: Several = option(
        (),
        "Only these: a scorer, a rating, both, as in opinion.bias, or a rubric, rubric:FILE.",
        flag="--metric",
        metavar="NAME",
    )
    probes: Several = option(
        tuple(PROBES), f"What is changed: {', '.join(PROBES)} (default: all).", flag="--probe", metavar="NAME"
    )
    runs: Several = option(
        (), "Compare the stored answers of two arms or more, not those of known value.", flag="--run", metavar="RUN"
    )
    others: Several = option(
        (),
        "Another judge of the same pairs, which shows how good MODEL's own answers are.",
        flag="--other",
        metavar="SPEC",
    )
    limit: int | None = option(
        None,
        f"This many texts of each value (default {TEXTS}), or questions of the runs (default all).",
        short="-n",
        ge=1,
    )
    repeats: int = option(REPEATS, "How often the same input is asked again.", ge=1, le=20)
    seed: int = option(0, "Random seed of the draw of questions.")
    out: Path | None = option(None, "The page (default reliability.html).", short="-o")


@command(ReliabilityCommand, judges)
def reliability(request: ReliabilityCommand) -> int:
    """Have MODEL rate and compare texts again with things changed that should not matter: how often do verdicts flip?

    The texts are those of `evenhand judges check`. Changed are: nothing (repeat), the words of the rubric, the length
    (neutral sentences), the style (bold words in a list), the author, whether the text is said to be the judge's own,
    and an irrelevant detail. Pairs of answers are compared in both orders; the judge's own answers are among them, and
    --other shows whether it prefers them more than other judges do. With --run, the pairs are the answers of
    stored runs. Calls are cached. Exit code 1: a fault was found, or nothing could be measured.

    \b
    Examples:
      evenhand judges reliability openai/NAME --metric opinion --dry-run
      evenhand judges reliability local/builtin --metric opinion.bias --probe length --probe style
      evenhand judges reliability openai/a --run runs/a --run runs/b --other openai/b --probe order
    """

    from evenhand.runs.parts import opened_model
    from evenhand.show.certificates import flips_table, judges_table, reliability_page
    from evenhand.show.terminal import print_table
    from evenhand.studies.agreement import ReliabilityTest, judge_reliability

    target = html_file(request.out or Path("reliability.html"))
    settings = request.settings_for(read_config())
    plan, *others = [assignment["base"] for assignment in request.models_named([request.spec, *request.others])]
    request.check_prices([plan, *others])
    runs = [Path(run) for run in request.runs]
    test = ReliabilityTest(request.metrics, request.probes, request.limit, request.repeats, runs, request.seed)

    async def forecast() -> int:
        async with opened_model(plan, settings, Budget(settings.budget)) as model:
            return test.calls(model, 1 + len(others))

    if request.dry_run:
        click.echo(f"About {aio.run(forecast()):,} short calls. Nothing was called.")
        return 0
    hint = "Continue with the same command, --reuse-answers and a larger --budget."
    with stopped_by_budget(hint), shown_count() as count:
        found = aio.run(judge_reliability(plan, test, settings, others, count))
    if found.found:
        print_table(flips_table(found))
    if found.pairs is not None:
        print_table(judges_table(found.pairs))
    for sentence in found.sentences:
        click.echo(sentence)
    reliability_page(found).write(target)
    _write_numbers(found.note(), target)
    return int(found.has_faults or not found.is_measured)


def _write_numbers(note: Mapping[str, Any], page: Path) -> None:
    write_json(numbers := page.with_suffix(".json"), note)
    click.echo(f"Page: {page}, numbers: {numbers}")
