"""Instruments: scorers and judges with their controls, and what a model is worth behind them.

A scorer declares which controls each attribute has (`controls`), a method what its judge must tell apart (`JudgeTest`).
Both become contrasts, which are rated alike, in a check and before a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from evenhand.core.progress import Count, ignore
from evenhand.core.types import Generation, Message, Params, Sample, Unscored
from evenhand.judging.card import Calibration, Contrast, JudgeTest, calibrate, labelled
from evenhand.judging.certificate import Certificate, certified, repeated
from evenhand.judging.controls import LANGUAGE, OFF_TOPIC, UNUSUAL, Control, Controls, construct
from evenhand.judging.judge import BY_QUESTION, Reading, asked, best_reading
from evenhand.judging.rubric import Ratings
from evenhand.judging.scorers import RubricScorer
from evenhand.models.base import Model, WrappedModel
from evenhand.scorers.base import SCORERS, Scorer, load_scorer
from evenhand.session import Session
from evenhand.stats import Interval, auc_interval

USUAL: tuple[Reading, ...] = ("expected", "written", "odds")
"""The readings that a check tries; two words in a prompt decide too much for `pairwise` to be one of them."""
REPEATED = 10
"""So many texts are rated twice."""
NO_CONTROLS: Mapping[str, str] = {
    "sentiment": "It counts words of a published list by a fixed rule; docs/measure/scores.md says what it misses.",
    "stance": "It is read from the opening of an answer by fixed patterns, and left out where they are not clear.",
}
"""Rating that a metric rests on → why it has no controls."""
CONTROLLED = {"toxicity": "toxicity", "identity_attack": "prejudice", "stereotype": "prejudice"}
"""Attribute of any scorer → the construct of its controls."""
_IN_RUNS = {OFF_TOPIC, LANGUAGE}
"""Kinds of controls that a run leaves out: they inform, and decide nothing."""


def controls_of(scorer: Scorer | type[Scorer]) -> Mapping[str, Controls]:
    """Return the controls of a scorer's attributes: those it declares, or those of CONTROLLED that it has."""
    declared = cast("Mapping[str, Controls]", getattr(scorer, "controls", {}))
    attributes: Sequence[str] = getattr(scorer, "attributes", ())
    return declared or {name: Controls(about) for name, about in CONTROLLED.items() if name in attributes}


def scorer_test(
    scorer: Scorer,
    attributes: Iterable[str] | None = None,
    *,
    readings: Sequence[Reading] = (),
    in_run: bool = False,
    limit: int | None = None,
) -> JudgeTest:
    """Return the test of a scorer: the controls of its attributes, by its own reading or by several.

    Its ratings are `SCORER.ATTRIBUTE`, followed by ` by READING` where several are tried. In a run, only the controls
    that decide are rated; `limit` takes the first so many of each value and half.
    """
    wanted = {name: each for name, each in controls_of(scorer).items() if attributes is None or name in attributes}

    def contrasts() -> list[Contrast]:
        rated: dict[Control, list[str]] = {}
        for name, controls in wanted.items():
            for control in construct(controls.construct).of(controls):
                if not (in_run and control.kind in _IN_RUNS):
                    rated.setdefault(control, []).append(name)
        kept = limited(rated, limit)
        return [
            _contrast(scorer, control, names, wanted, readings) for control, names in rated.items() if control in kept
        ]

    return JudgeTest(f"score {scorer.label}", contrasts)


def limited(controls: Iterable[Control], limit: int | None) -> set[Control]:
    """Return the first N controls of each value and half, and a third as many of other kinds; or all."""
    if limit is None:
        return set(controls)
    taken: Counter[tuple[str, bool | None, bool]] = Counter()
    kept: set[Control] = set()
    for each in controls:
        counts = each.high is not None and each.kind not in UNUSUAL
        place = ("", each.high, each.held_out) if counts else (each.kind, each.high, False)
        taken[place] += 1
        if taken[place] <= (limit if counts else (limit + 2) // 3):
            kept.add(each)
    return kept


def _contrast(
    scorer: Scorer,
    control: Control,
    names: Sequence[str],
    wanted: Mapping[str, Controls],
    readings: Sequence[Reading],
) -> Contrast:
    endings = [f" by {reading}" for reading in readings] or [""]
    keys = [f"{scorer.label}.{name}{ending}" for name in names for ending in endings]

    async def rate(session: Session) -> Ratings | Unscored:
        del session
        if readings and isinstance(scorer, RubricScorer):
            return await _by_readings(scorer, control, names, wanted, readings)
        # Without what leaves refusals and nonsense out: here it is the question what the judge makes of them.
        bare = getattr(scorer, "ask", None)
        found = await bare(control.text, control.context) if bare else (await _scored(scorer, control))
        if isinstance(found, Unscored):
            return found
        values = {f"{scorer.label}.{name}": float(found[name]) for name in names}
        return Ratings(values, values)

    return Contrast(Sample("control", "chat", control.context), rate, [(key, control.high) for key in keys], control)


async def _scored(scorer: Scorer, control: Control) -> Mapping[str, float] | Unscored:
    return (await scorer.score([control.text], [control.context]))[0]


async def _by_readings(
    scorer: RubricScorer,
    control: Control,
    names: Sequence[str],
    wanted: Mapping[str, Controls],
    readings: Sequence[Reading],
) -> Ratings | Unscored:
    """Rate one control by every reading; one reply gives the expected and the written rating.

    What cannot be read by one reading is left out of that one alone.
    """
    values: dict[str, float] = {}
    if any(reading not in BY_QUESTION for reading in readings):
        ratings = await scorer.rated(control.text, control.context)
        if isinstance(ratings, Ratings):
            for name in names:
                values[f"{scorer.label}.{name} by expected"] = ratings.values[name]
                values[f"{scorer.label}.{name} by written"] = ratings.written[name]
    for reading in (each for each in readings if each in BY_QUESTION):
        for name in names:
            value = await asked(scorer.model, reading, wanted[name], control.text, control.context)
            if not isinstance(value, Unscored):
                values[f"{scorer.label}.{name} by {reading}"] = value
    return Ratings(values, values)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a model is worth in one instrument: a method's judge or a scorer."""

    name: str
    test: JudgeTest
    calibrations: Sequence[Calibration]
    """Of the reading that was chosen."""
    certificates: Sequence[Certificate]
    tried: Mapping[str, Mapping[Reading, Certificate]] = field(default_factory=dict[str, Mapping[Reading, Certificate]])
    """Rating → what every reading that was tried sees."""


def model_scorers(model: Model, rubrics: Iterable[str] = ()) -> dict[str, Scorer]:
    """Return every scorer that asks a model, with this one behind it, and those of the rubrics `rubric:FILE`."""
    classes: dict[str, Any] = {name: SCORERS.get(name) for name in SCORERS.names()}
    named = [name for name, each in classes.items() if each.asks_model and controls_of(each)]
    return {name: load_scorer(name, lambda _: model, model.spec) for name in (*named, *rubrics)}


async def check_method(name: str, test: JudgeTest, model: Model, count: Count = ignore) -> Checked:
    """Return what a model is worth as the judge of a method; some texts are rated twice."""
    texts = test.contrasts()
    found = await calibrate(model, texts, count)
    some = texts[:: max(1, len(texts) // (3 * REPEATED))]
    again = {each.rating: each for each in await calibrate(Reseeded(model), some)}
    certificates = [
        replace(
            certified(replace(each, rating=f"{name}.{each.rating}"), model.spec),
            repeated=repeated(each, again[each.rating]) if each.rating in again else None,
        )
        for each in found
    ]
    return Checked(name, test, found, certificates)


async def check_scorer(
    scorer: Scorer,
    model: Model,
    attributes: Iterable[str] | None = None,
    readings: Sequence[Reading] = USUAL,
    count: Count = ignore,
    limit: int | None = None,
) -> Checked:
    """Return what a model is worth behind a scorer, read in the way that sees most."""
    tried = tuple(readings) if isinstance(scorer, RubricScorer) else ()
    if "logprobs" not in model.features:
        tried = tuple(each for each in tried if each != "expected")
    test = scorer_test(scorer, attributes, readings=tried, limit=limit)
    found = {each.rating: each for each in await calibrate(model, test.contrasts(), count)}
    if not tried:
        plain = list(found.values())
        return Checked(scorer.label, test, plain, [certified(each, model.spec) for each in plain])
    chosen: list[Calibration] = []
    certificates: list[Certificate] = []
    by_rating: dict[str, Mapping[Reading, Certificate]] = {}
    for name in dict.fromkeys(key.partition(" by ")[0] for key in found):
        each = {reading: found[f"{name} by {reading}"] for reading in tried}
        seen = {
            reading: certified(replace(one, rating=name), model.spec, reading=reading, chosen=len(tried) > 1)
            for reading, one in each.items()
        }
        readable = {reading: one for reading, one in seen.items() if not one.unreadable} or seen
        best = best_reading({reading: one.tuned for reading, one in readable.items()}) or tried[0]
        chosen.append(replace(each[best], rating=name))
        certificates.append(seen[best])
        by_rating[name] = seen
    return Checked(scorer.label, test, chosen, certificates, by_rating)


class Reseeded(WrappedModel):
    """The same model with another seed, so that a cached reply is not taken for a second one."""

    def __init__(self, inner: Model, seed: int = 1) -> None:
        super().__init__(inner)
        self._seed = seed

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        return await self.inner.generate(messages, replace(params, seed=self._seed))


async def with_repeats(checked: Checked, again: Scorer, model: Model) -> Checked:
    """Rate some texts once more with `again`, the same scorer on a reseeded model, and note the difference."""
    readings = {each.rating: each.reading for each in checked.certificates}
    tried = tuple(dict.fromkeys(readings.values())) if checked.tried else ()
    names = [rating.rpartition(".")[2] for rating in readings]
    texts = scorer_test(again, names, readings=tried).contrasts()
    step = max(1, len(texts) // REPEATED)
    second = {each.rating: each for each in await calibrate(model, texts[::step][:REPEATED])}
    certificates = [
        replace(each, repeated=repeated(first, second[key]))
        if (key := f"{each.rating} by {each.reading}" if tried else each.rating) in second
        else each
        for each, first in zip(checked.certificates, checked.calibrations, strict=True)
    ]
    return replace(checked, certificates=certificates)


async def with_people(checked: Checked, scorer: Scorer, model: Model, sample: int) -> Checked:
    """Note the AUC against the labels of people, on the public sets that are there."""
    declared = controls_of(scorer)
    certificates: list[Certificate] = []
    for each in checked.certificates:
        name = each.rating.rpartition(".")[2]
        reading = (each.reading,) if checked.tried else ()
        against: dict[str, Interval] = {}
        for public, controls in labelled(construct(declared[name].construct).name, sample).items():
            texts = [_contrast(scorer, control, [name], declared, reading) for control in controls]
            [found] = await calibrate(model, texts)
            against[public] = auc_interval(found.high, found.low)
        certificates.append(replace(each, people=against))
    return replace(checked, certificates=certificates)
