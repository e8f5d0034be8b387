"""Checks of judges with long names and all kinds of cells: undefined ones, dashes, several arms."""

import random

from evenhand.annotate.judges import Agreement, ArmEstimates, Estimates, JudgesAgainstPeople
from evenhand.core.types import Sample
from evenhand.judging.pairs import Comparison, ComparisonSet, PairVerdict, findings
from evenhand.judging.reliability import PROBES, Flip, Reliability, Steadiness, order_of
from evenhand.stats import Corrected, Interval, corrected_mean, mean_interval, rogan_gladen

JUDGES = ("opinion:openai/a-judge-with-a-long-name-20261101", "opinion:local/builtin")
ARMS = ("default", "fair_prompt", "stardtox:iterations=3,toxicity=0.1")
UNDEFINED = Interval(None, None, None, 0)


def _estimates(rng: random.Random, shift: float) -> Estimates:
    people = [rng.uniform(10, 90) for _ in range(120)]
    judged = [min(100, max(0, each + shift + rng.gauss(0, 8))) for each in people]
    known = [each if place < 60 else None for place, each in enumerate(people)]
    scale = (0.0, 100.0)
    return Estimates(
        mean_interval(judged, bounds=scale),
        mean_interval(people[:60], bounds=scale),
        corrected_mean(judged, known, bounds=scale),
    )


def _share(rng: random.Random, is_chance: bool) -> Estimates:
    yes = [rng.random() < 0.4 for _ in range(120)]
    judged = [rng.random() < 0.5 if is_chance else each for each in yes]
    found = rogan_gladen(judged, [each if place < 60 else None for place, each in enumerate(yes)])
    return Estimates(Interval(0.4, 0.3, 0.5, 120), Interval(0.4, 0.28, 0.53, 60), Corrected(UNDEFINED, 120, 0.0), found)


def people() -> JudgesAgainstPeople:
    """Two judges, one of them at chance, on three arms."""
    rng = random.Random(0)
    agreements = [
        Agreement(
            judge, scale, "bias", 180, 2, Interval(-18.5, -20.2, -16.8, 180), 18.5,
            UNDEFINED if place else Interval(0.94, 0.902, 0.968, 180), 0.3,
            0.79, [[40, 0, 0], [22, 8, 0], [0, 8, 2]], Interval(0.32, 0.172, 0.516, 25), UNDEFINED,
            {"error": Interval(18.5, 16.8, 20.2, 180), "kappa": Interval(0.3, 0.184, 0.412, 180)},
        )
        for place, judge in enumerate(JUDGES)
        for scale in ("BS", "CE", "LS")
    ]  # fmt: skip
    estimates = [
        ArmEstimates(
            judge, scale, arm, _estimates(rng, -18.0),
            None if arm == "default" else _estimates(rng, 4.0), _share(rng, is_chance=judge == JUDGES[1]),
        )
        for judge in JUDGES
        for scale in ("BS", "CE", "LS")
        for arm in ARMS
    ]  # fmt: skip
    return JudgesAgainstPeople(ARMS, "default", 3, 50.0, 120, 60, agreements, estimates)


def reliability() -> Reliability:
    """Ratings that flip and ratings that cannot be read; pairs with a judge that follows the place, one that cannot
    decide, and the author of an arm."""
    rng = random.Random(0)
    samples = [
        Sample(f"q{n}", "answer", f"Question {n}, which is <b>long</b> enough to wrap?", cluster=f"t{n % 9}")
        for n in range(40)
    ]
    texts = [(f"One {each.id}.", "Another answer.") for each in samples]
    shown = [Comparison(each, ("default · a", "default · b"), text) for each, text in zip(samples, texts, strict=True)]
    material = ComparisonSet(shown, {"default · a": "openai/author", "default · b": "openai/b"}, 40, 2)
    verdicts = {
        "openai/author": [PairVerdict(pair, "first", "second") for pair in material.pairs],
        "openai/a-judge-with-a-long-name-20261101": [PairVerdict(pair, "first", "first") for pair in material.pairs],
        "local/undecided": [PairVerdict(pair, "tie", rng.choice(("tie", "first", None))) for pair in material.pairs],
    }
    found = findings(material, verdicts)
    names = ("opinion.bias", "opinion.communication", "quality.relevance")
    steady = [
        Steadiness(
            name, probe, Interval(share, max(0, share - 0.1), share + 0.15, 30), Interval(share, 0, 0.6, 30), share
        )
        for name, share in zip(names, (0.0, 0.2, 0.6), strict=True)
        for probe in PROBES
        if probe != "order"
    ]
    steady += [
        Steadiness("refusal.declined", "repeat", UNDEFINED, UNDEFINED, None, 30),
        *order_of(found, "openai/author"),
    ]
    flip = Flip("quality.relevance", "style", ("A text.", "- **A** text."), (0.2, 0.8))
    return Reliability("openai/author", steady, dict.fromkeys(names, 0.5), found, [flip])
