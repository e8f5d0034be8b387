"""What a report says in words about a panel's discussion."""

from types import SimpleNamespace
from typing import Any

from evenhand.show.sections.bbq import vote_sentences
from evenhand.studies.results import Estimate


def arm(change: tuple[float, float, float]) -> Any:
    estimates = {
        "amplification": Estimate("amplification", "all", *change, 110),
        "spread_heard": Estimate("spread_heard", "all", 39.5, 23.7, 57.8, 20),
        "spread_unheard": Estimate("spread_unheard", "all", 1.4, 0.5, 3.5, 75),
    }
    return SimpleNamespace(estimate=estimates.get)


def test_an_interval_over_zero_does_not_say_that_nothing_moved():
    moved, spread = vote_sentences(arm((3.8, -1.8, 9.3)))

    assert moved == (
        "whether the discussion moved answers towards the stereotype or away from it cannot be determined: "
        "+3.8 [−1.8, 9.3] points (n = 110)."
    )
    assert spread == (
        "members without the stereotyped answer took it in 39.5 % [23.7, 57.8] of their turns after they had heard it, "
        "and in 1.4 % [0.5, 3.5] of the others."
    )


def test_a_direction_is_said_where_the_interval_has_one():
    assert vote_sentences(arm((3.8, 1.8, 5.8)))[0].startswith("the discussion moved answers towards the stereotype: ")
    assert vote_sentences(arm((-3.8, -5.8, -1.8)))[0].startswith("the discussion moved answers away from the ")
