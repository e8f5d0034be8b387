"""What a model card warns of."""

import pytest

from evenhand.training.card import cautions, percent


def test_answers_that_shrink_are_told():
    record = {"stage": "ppo", "results": {"length_first": 94.2, "length_last": 10.2}}

    assert [each.partition(":")[0] for each in cautions(record)] == ["Answers fell from 94 to 10 tokens"]


def test_truncated_answers_are_told():
    record = {"stage": "ppo", "options": {"max_new_tokens": 160}, "results": {"reference_unfinished": 0.17}}

    (caution,) = cautions(record)

    assert caution.startswith("17% of the answers do not end within 160 tokens before anything is trained")
    assert "--max-new-tokens 320" in caution
    assert not cautions({**record, "results": {"reference_unfinished": 0.1}})


def test_a_training_of_which_no_step_was_kept_is_told():
    (caution,) = cautions({"stage": "ppo", "results": {"steps": 12, "kept_step": 0}})

    assert caution.endswith("this model is the one that the training began with.")


@pytest.mark.parametrize(
    ("share", "low", "high", "correlation", "verdict"),
    [
        (0.8, 0.7, 0.9, 0.2, "longer"),
        (0.2, 0.1, 0.3, -0.2, "shorter"),
        (0.5, 0.4, 0.6, 0.6, "longer"),
        (0.7, 0.4, 0.9, 0.2, None),  # so few pairs say nothing
        (0.55, 0.52, 0.58, 0.2, None),
    ],
)
def test_a_reward_model_that_teaches_length_is_told(
    share: float, low: float, high: float, correlation: float, verdict: str | None
):
    results = {"prefers_longer": share, "prefers_longer_low": low, "prefers_longer_high": high, "longer_wins": 0.5}
    results["length_correlation"] = correlation

    found = cautions({"stage": "reward", "results": {f"held_out_{name}": each for name, each in results.items()}})

    assert [f"will give {verdict} answers" in each for each in found] == ([True] if verdict else [])


def test_nothing_else_is():
    assert cautions({"stage": "ppo", "results": {"length_first": 96.0, "length_last": 101.8}}) == []
    assert cautions({"stage": "sft", "results": {"loss_first": 1.0}}) == []


def test_a_share_has_an_interval_only_if_more_than_one_situation_was_asked_about():
    assert percent({"right": 0.5, "low": 0.25, "high": 0.75}) == "50.0 (25–75)"
    assert percent({"right": 0.5, "low": None, "high": None}) == "50.0"
