"""What is said of judges' preferences, from verdicts whose truth is known."""

import random
from collections.abc import Callable, Mapping

import pytest

from evenhand.core.types import Sample
from evenhand.judging.pairs import Comparison, ComparisonSet, PairFindings, PairVerdict, Winner, findings

Judge = Callable[[random.Random], tuple[Winner, Winner]]
"""→ its verdicts in both orders."""


def fair(rng: random.Random) -> tuple[Winner, Winner]:
    return rng.choice(("first", "second")), rng.choice(("first", "second"))


def found_with(judges: Mapping[str, Judge], seed: int) -> PairFindings:
    """Every judge on the same 40 pairs; the first two wrote the answers."""
    rng = random.Random(seed)
    pairs = [
        Comparison(Sample(f"q{n}", "chat", "q"), ("a", "b"), ("x" * rng.randint(50, 200), "y" * rng.randint(50, 200)))
        for n in range(40)
    ]
    authors = dict(zip(("a", "b"), judges, strict=False))
    verdicts = {name: [PairVerdict(pair, *judge(rng)) for pair in pairs] for name, judge in judges.items()}
    return findings(ComparisonSet(pairs, authors, 40, 0), verdicts)


def test_many_fair_judges_are_rarely_said_to_prefer_anything():
    judges = {f"j{number}": fair for number in range(5)}

    said = [any("prefers" in each for each in found_with(judges, seed).faults) for seed in range(40)]

    # The level is 5 %; without correction it is about 30 %.
    assert sum(said) <= 5


def test_how_often_an_arm_wins_has_an_interval_by_question():
    found = found_with({"j0": lambda _: ("first", "second"), "j1": fair}, 0)
    always, half = (each.wins["a"] for each in found.judges)

    assert (always.estimate, always.high, always.n) == (1.0, 1.0, 40)
    assert always.low == pytest.approx(0.91, abs=0.01)
    assert half.includes(0.5) and not half.includes(0.8)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("first", "first"), "j0 prefers the answer that is shown first."),
        (("first", "second"), "j0 prefers its own answers more than the other judges do."),
    ],
)
def test_a_preference_is_found_among_many_judges(verdicts: tuple[Winner, Winner], said: str):
    others: dict[str, Judge] = {f"j{number}": fair for number in range(1, 5)}

    assert said in found_with({"j0": lambda _: verdicts, **others}, 0).faults
