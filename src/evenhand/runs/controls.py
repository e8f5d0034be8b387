"""Checks judges and scorers by their controls: when asked, and before a run whose metrics rest on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from evenhand.benchmarks.base import Benchmark
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.options import Options
from evenhand.core.progress import Count, counted, ignore
from evenhand.core.types import SampleKind
from evenhand.judging.card import (
    NO_CARD,
    SAMPLE,
    Calibrated,
    Calibration,
    Contrast,
    JudgeCard,
    JudgeTest,
    calibrate,
    curve_of,
    load_card,
)
from evenhand.judging.certificate import Certificate, certified
from evenhand.judging.instruments import (
    USUAL,
    Checked,
    Reseeded,
    check_method,
    check_scorer,
    controls_of,
    model_scorers,
    scorer_test,
    with_people,
    with_repeats,
)
from evenhand.judging.judge import JUDGE, JudgeReading, Reading, judges_in
from evenhand.judging.scorers import rubric_of
from evenhand.methods.base import judge_tests
from evenhand.models.base import Model, PromptedModel
from evenhand.models.fake import ScriptedModel
from evenhand.runs.parts import LoadedArm
from evenhand.runs.plan import Plan
from evenhand.scorers.base import Scorer
from evenhand.scorers.pool import PooledScorer
from evenhand.session import BASE, answers


@dataclass(frozen=True, slots=True)
class Instruments:
    """What is checked: the judges of methods and the scorers, with the ratings that are wanted of each."""

    methods: Mapping[str, JudgeTest]
    scorers: Mapping[str, tuple[Scorer, tuple[str, ...]]]
    rubrics: Sequence[str] = ()
    """Those of the scorers that are rubrics in files."""

    def calls(self, readings: Sequence[Reading], limit: int | None = None) -> int:
        """About how many calls a check takes; a text that is compared or asked about takes two per question."""
        by_question = 2 * sum(each in ("odds", "pairwise") for each in readings)
        found = sum(len(test.contrasts()) for test in self.methods.values())
        for scorer, names in self.scorers.values():
            texts = scorer_test(scorer, names, limit=limit).contrasts()
            found += len(texts) + by_question * sum(len(each.expected) for each in texts)
        return found


def instruments(model: Model, wanted: Sequence[str] = ()) -> Instruments:
    """Return the instruments that a model can be behind.

    `wanted` names some: INSTRUMENT, RATING, both with a dot, or a rubric in a file, rubric:FILE.
    """
    rubrics = [each for each in wanted if each.startswith("rubric:")]
    tests, scorers = judge_tests(), model_scorers(model, rubrics)
    ratings = {name: test.ratings for name, test in tests.items()}
    ratings |= {name: list(controls_of(scorer)) for name, scorer in scorers.items()}
    for each in rubrics:
        if not ratings[each]:
            raise UsageError(f"{each} has no controls; give its criteria texts of known value under `controls`.")
    names = [*ratings, *(f"{name}.{each}" for name, several in ratings.items() for each in several)]
    for each in wanted:
        if each not in names and not any(each in several for several in ratings.values()):
            raise UnknownNameError("metric with controls", each, names)
    chosen = {
        name: tuple(each for each in several if not wanted or {name, each, f"{name}.{each}"} & set(wanted))
        for name, several in ratings.items()
    }
    return Instruments(
        {name: _only(test, chosen[name]) for name, test in tests.items() if chosen[name]},
        {name: (scorer, chosen[name]) for name, scorer in scorers.items() if chosen[name]},
        rubrics,
    )


def _only(test: JudgeTest, ratings: Iterable[str]) -> JudgeTest:
    """Return the test with the texts that some of these ratings need."""
    kept = set(ratings)
    if kept == set(test.ratings):
        return test

    def contrasts() -> list[Contrast]:
        found = (
            (each, [key for key in each.expected if key[0].partition("/")[0] in kept]) for each in test.contrasts()
        )
        return [replace(each, expected=expected) for each, expected in found if expected]

    return replace(test, contrasts=contrasts)


async def check_judge(
    model: Model,
    found: Instruments,
    readings: Sequence[Reading] = USUAL,
    people: int = SAMPLE,
    count: Count = ignore,
    limit: int | None = None,
) -> list[Checked]:
    """Rate the controls of all instruments with a model, some of them twice, and public texts where they are there."""
    total = sum(len(test.contrasts()) for test in found.methods.values())
    total += sum(len(scorer_test(*each, limit=limit).contrasts()) for each in found.scorers.values())
    one = counted(count, total)
    checked = [await check_method(name, test, model, one) for name, test in found.methods.items()]
    again = model_scorers(Reseeded(model), found.rubrics)
    for name, (scorer, wanted) in found.scorers.items():
        each = replace(await check_scorer(scorer, model, wanted, readings, one, limit), name=name)
        each = await with_repeats(each, again[name], model)
        checked.append(await with_people(each, scorer, model, people))
    return checked


def card_from(spec: str, checked: Sequence[Checked], earlier: JudgeCard | None = None) -> JudgeCard:
    """Return the judge's card: what these checks show, on top of what an earlier card says of other ratings."""
    rated = [one for each in checked for one in each.calibrations]
    curves = {one.rating: curve_of(one) for one in rated}
    old = earlier or JudgeCard(model=spec)
    readings = {one.rating: one.reading for each in checked if each.tried for one in each.certificates if one.sees}
    options = {each.name: dict(each.test.options(each.calibrations)) for each in checked}
    return JudgeCard(
        model=spec,
        date=datetime.now(UTC).date().isoformat(),
        curves={
            **{name: curve for name, curve in old.curves.items() if name not in curves},
            **{name: curve for name, curve in curves.items() if curve is not None},
        },
        at_chance=tuple(
            dict.fromkeys(
                [
                    *(name for name in old.at_chance if name not in curves),
                    *(name for name, curve in curves.items() if curve is None),
                ]
            )
        ),
        options={
            **{name: each for name, each in old.options.items() if name not in options},
            **{name: each for name, each in options.items() if each},
        },
        readings={
            **{name: each for name, each in old.readings.items() if name not in curves},
            **{name: each for name, each in readings.items() if each != "expected"},
        },
        prompts={**old.prompts, **{name: made for each in rated for name, made in sorted(each.prompts.items())}},
    )


ON = "on"
"""The value of a plan's `controls` with which judges and scorers are checked."""
OFF_CAVEAT = (
    "The controls were off: whether the judge or scorer behind {metrics} sees what it rates was not checked; "
    "`evenhand judges check MODEL` does it"
)


@dataclass(frozen=True, slots=True)
class Due:
    """A check that is due before a run: a scorer or a method's judge, and the ratings that metrics rest on."""

    source: str
    """The id of the scorer, or the name of the method, with the options that change how its judge rates."""
    test: JudgeTest
    judge: str
    model: Model | None
    """None for scorers, which have theirs."""
    metrics: frozenset[str] | None = None
    """The ratings that metrics rest on; None: all. A method may be steered by others."""
    limits: tuple[tuple[str, str, float], ...] = ()
    """(rating, arm, threshold that its method applies), as the judge rates."""
    options: Options | None = None
    """The method's."""


def judge_checks(scorers: Sequence[Scorer], controls: str) -> list[Due]:
    """Return the checks of the judges among scorers that rate texts outside of a run; none if the controls are off."""
    return _scorer_checks([each for each in scorers if each.asks_model]) if controls == ON else []


def _scorer_checks(scorers: Sequence[Scorer], wanted: Sequence[str] | None = None) -> list[Due]:
    """Return the checks of scorers, of all their ratings or of those that are wanted and those of own rubrics."""
    found: list[Due] = []
    for pooled in scorers:
        scorer = pooled.inner if isinstance(pooled, PooledScorer) else pooled
        own = rubric_of(scorer)
        names = [
            name
            for name in controls_of(scorer)
            if name in scorer.attributes
            and (wanted is None or name in wanted or (own is not None and name in own.names))
        ]
        if names and scorer.certified:
            found.append(Due(scorer.id, scorer_test(scorer, names, in_run=True), scorer.spec, None))
    return found


def due_checks(benchmark: Benchmark, scorers: Sequence[Scorer], arms: Sequence[LoadedArm] = ()) -> list[Due]:
    """Return the checks that a run needs: of its scorers, and of the judges that rate inside its methods."""
    wanted = list(dict.fromkeys(each for metric in benchmark.metrics() for each in metric.rests_on))
    found = {(due.source, ""): due for due in _scorer_checks(scorers, wanted)}
    for each in arms:
        test = each.method.calibration
        if test is None:
            continue
        limits = _limits(test, each, benchmark.kind)
        used = test.used(each.options) if test.used is not None else test.ratings
        names = [name for name in used if name in wanted and benchmark.kind in test.kinds]
        source = test.source(each.method.name, each.options)
        for role in judges_in(each.models) if test.role == JUDGE else [test.role]:
            model = each.models.get(role) or each.models[BASE]
            if isinstance(model, PromptedModel) and not answers(test.role, benchmark.kind):
                model = model.inner
            key = (source, model.spec)
            if not names and not limits and key not in found:
                continue
            known = found.get(key) or Due(source, test, model.spec, model, frozenset(), (), each.options)
            metrics, all_limits = (known.metrics or frozenset()) | {*names}, (*known.limits, *limits)
            needed = _only(test, {*metrics, *(rating for rating, _, _ in all_limits)})
            found[key] = replace(known, test=needed, metrics=metrics, limits=all_limits)
    return list(found.values())


def _limits(test: JudgeTest, each: LoadedArm, kind: SampleKind) -> list[tuple[str, str, float]]:
    """Return the thresholds of an arm's method, as its judge rates: a card's probabilities are translated back."""
    judge = (each.models.get(test.role) or each.models[BASE]).spec
    options = each.options
    card = load_card(options.calibration, judge) if isinstance(options, Calibrated) else NO_CARD
    return [
        (rating, f"{each.method.name}, arm {each.arm.number}", card.rating(rating, limit))
        for rating, limit in test.limits(options, kind).items()
    ]


async def certify(due: Sequence[Due]) -> list[Certificate]:
    """Rate the controls of every check. One whose first text cannot be rated for want of an endpoint is left out."""
    found: list[Certificate] = []
    for each in due:
        model, texts = each.model or ScriptedModel(()), each.test.contrasts()
        for calibration in await calibrate(model, texts, options=each.options, probing=True):
            found += _certificates(each, calibration)
    return found


def _certificates(due: Due, calibration: Calibration) -> list[Certificate]:
    """What controls show of one rating: for the metrics that rest on it, or for each arm that it steers."""
    rating = calibration.rating.rpartition(".")[2]
    as_written = isinstance(due.options, JudgeReading) and due.options.reading == "written"
    named = replace(calibration, rating=f"{due.source}.{rating}")
    plain = certified(named, due.judge, reading="written" if as_written else "expected")
    limited = [(arm, replace(plain, threshold=limit)) for name, arm, limit in due.limits if name == rating]
    if due.metrics is None or rating in due.metrics:
        each = [one for _, one in limited]
        return [next((one for one in each if one.beyond), each[0] if each else plain)]
    return [replace(one, rating=f"{arm}.{rating}") for arm, one in limited]


def steering_caveats(certificates: Sequence[Certificate]) -> list[str]:
    """Say which arms are steered by a judge that does not see what it rates, or never crosses the threshold."""
    found: dict[str, list[str]] = {}
    for each in certificates:
        source, _, rating = each.rating.rpartition(".")
        if ", arm " in source and each.faults:
            found.setdefault(source, []).append(f"{rating}: the judge {each.beyond or each.faults[0]}")
    return [
        f"What {source} revises cannot be determined, since it is steered by a judge that cannot be trusted "
        f"({'; '.join(faults)})"
        for source, faults in found.items()
    ]


def due_before(
    plan: Plan,
    benchmark: Benchmark,
    scorers: Sequence[Scorer],
    arms: Sequence[LoadedArm] = (),
    known: Sequence[str] = (),
    recorded: Callable[[Model], Model] | None = None,
) -> list[Due]:
    """Return the checks that a run needs and does not have yet; none if its controls are off.

    `recorded` makes the models of judges record their calls; those of scorers do already.
    """
    if plan.controls != ON:
        return []
    found = [each for each in due_checks(benchmark, scorers, arms) if each.source not in known]
    return [replace(each, model=recorded(each.model)) if recorded and each.model else each for each in found]


def off_caveat(plan: Plan, benchmark: Benchmark) -> list[str]:
    """Say that the controls were off, where a metric rests on a judge or scorer."""
    titles = [metric.title for metric in benchmark.metrics() if metric.rests_on]
    if plan.controls != "off" or not titles:
        return []
    named = ", ".join(titles[:3]) + (" and others" if len(titles) > 3 else "")
    return [OFF_CAVEAT.format(metrics=named)]
