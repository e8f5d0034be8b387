"""Ratings of a reasoning in notes: written in one form, read back as they were."""

import pytest

from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, RATINGS, ReasoningRatings, ratings_in


@pytest.mark.parametrize("key", [RATINGS, FIRST_RATINGS])
def test_what_was_noted_is_read_back(key: str):
    ratings = ReasoningRatings(6.5, 8.0, False)

    assert ratings_in({key: ratings.note()}, key) == ratings


@pytest.mark.parametrize("notes", [{}, {RATINGS: None}, {RATINGS: "high"}, {FIRST_RATINGS: {"bias": 1}}], ids=str)
def test_notes_without_ratings_have_none(notes: dict[str, object]):
    assert ratings_in(notes) is None


def test_ratings_are_noted_to_three_places():
    assert ReasoningRatings(1.23456, 9.87654, True).note() == {"bias": 1.235, "relevancy": 9.877, "debiased": True}
