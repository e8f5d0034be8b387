"""What a model card warns of."""

from evenhand.training.card import cautions


def test_answers_that_shrink_are_told():
    record = {"stage": "ppo", "results": {"length_first": 94.2, "length_last": 10.2}}

    assert [each.partition(":")[0] for each in cautions(record)] == ["Answers fell from 94 to 10 tokens"]


def test_truncated_answers_are_told():
    record = {"stage": "ppo", "results": {"missing_eos_first": 0.4}}

    assert [each.partition(",")[0] for each in cautions(record)] == ["40 % of the first answers were truncated"]


def test_nothing_else_is():
    assert cautions({"stage": "ppo", "results": {"length_first": 96.0, "length_last": 101.8}}) == []
    assert cautions({"stage": "sft", "results": {"loss_first": 1.0}}) == []
