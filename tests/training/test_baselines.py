"""Advantages without a critic, against values computed by hand."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")

from evenhand.training import baselines  # noqa: E402 - it needs torch

RETURNS = [1.0, 2.0, 6.0, -1.0, -1.0, 2.0]
"""Three answers to each of two prompts."""


def test_leave_one_out_by_hand():
    found = baselines.leave_one_out(torch.tensor(RETURNS), 3)

    assert found.tolist() == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5, -1 - 0.5, -1 - 0.5, 2 + 1])


def test_group_normalized_by_hand():
    found = baselines.group_normalized(torch.tensor(RETURNS), 3)

    first, second = 7**0.5 + 1e-4, 3**0.5 + 1e-4  # variances (4 + 1 + 9) / 2 and (1 + 1 + 4) / 2
    assert found.tolist() == pytest.approx([-2 / first, -1 / first, 3 / first, -1 / second, -1 / second, 2 / second])


def test_over_greedy_by_hand():
    found = baselines.over_greedy(torch.tensor([1.0, -2.0]), torch.tensor([0.5, -3.0]))

    assert found.tolist() == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("estimator", [baselines.leave_one_out, baselines.group_normalized])
def test_answers_that_are_all_alike_teach_nothing(estimator: Any):
    assert estimator(torch.tensor([3.0, 3.0, 3.0, 3.0]), 4).tolist() == pytest.approx([0] * 4)
