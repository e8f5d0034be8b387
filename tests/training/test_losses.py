"""The losses and the advantages of training, against values computed by hand."""

import math
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")

from evenhand.training import losses  # noqa: E402 - it needs torch

RETURNS = [1.0, 2.0, 6.0, -1.0, -1.0, 2.0]
"""Three answers to each of two prompts."""


def test_ranking_loss():
    chosen, rejected = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])

    loss = losses.ranking_loss(chosen, rejected)

    assert float(loss) == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2)


def test_gae_by_hand():
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.6, 0.4, 0.2]])

    found = losses.gae(rewards, values, torch.ones(1, 3), gamma=1.0, lam=0.5)

    last = 1 - 0.2
    middle = (0.2 - 0.4) + 0.5 * last
    first = (0.4 - 0.6) + 0.5 * middle
    assert found[0].tolist() == pytest.approx([first, middle, last])


def test_gae_discounts():
    rewards, values = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])

    found = losses.gae(rewards, values, torch.ones(1, 2), gamma=0.9, lam=0.8)

    assert found[0].tolist() == pytest.approx([1 + 0.9 * 4 - 3 + 0.72 * (2 - 4), 2 - 4])


def test_gae_with_lambda_one_is_return_minus_value():
    rewards, values = torch.tensor([[0.1, -0.2, 0.7]]), torch.tensor([[0.3, 0.9, -0.4]])

    found = losses.gae(rewards, values, torch.ones(1, 3), gamma=1.0, lam=1.0)

    assert (found + values)[0].tolist() == pytest.approx([0.6, 0.5, 0.7])


def test_gae_sees_nothing_after_the_end_of_an_answer():
    short = losses.gae(torch.tensor([[0.5]]), torch.tensor([[0.2]]), torch.ones(1, 1), gamma=1.0, lam=0.95)
    padded = losses.gae(
        torch.tensor([[0.5, 0.0]]), torch.tensor([[0.2, 9.0]]), torch.tensor([[1.0, 0.0]]), gamma=1.0, lam=0.95
    )

    assert padded[0].tolist() == pytest.approx([float(short[0, 0]), 0])


def test_the_kl_is_paid_at_every_token_and_the_score_comes_at_the_last():
    logprobs, reference = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[-1.5, -1.0, 0.0]])

    mask = torch.tensor([[1.0, 1.0, 0.0]])
    rewards = losses.with_scores(losses.kl_rewards(logprobs, reference, mask, 0.1), torch.tensor([4.0]), mask)

    assert rewards[0].tolist() == pytest.approx([-0.05, 0.1 + 4, 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "held"),
    [
        (1.5, 1.0, -1.2, 1.0),  # a gain counts up to the clip
        (0.5, -1.0, 0.8, 1.0),  # and so does getting away from a loss
        (1.5, -1.0, 1.5, 0.0),  # a mistake counts in full
        (0.5, 1.0, -0.5, 0.0),
        (1.1, 1.0, -1.1, 0.0),
    ],
)
def test_clipping(ratio: float, advantage: float, loss: float, held: float):
    now, before = torch.tensor([[math.log(ratio)]]), torch.zeros(1, 1)

    found = losses.clipped_policy_loss(now, before, torch.tensor([[advantage]]), torch.ones(1, 1), 0.2)

    assert [float(each) for each in found] == pytest.approx([loss, held])


def test_beyond_the_clip_there_is_no_gradient():
    now = torch.tensor([[math.log(1.5), math.log(1.1)]], requires_grad=True)

    losses.clipped_policy_loss(now, torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2), 0.2)[0].backward()

    assert now.grad[0].tolist() == pytest.approx([0, -0.55])


def test_the_critic_may_move_only_so_far():
    values, before, returns = torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[1.0]])

    loss = losses.clipped_value_loss(values, before, returns, torch.ones(1, 1), 0.2)

    assert float(loss) == pytest.approx(0.5 * 0.8**2)


def test_logprobs_and_entropies():
    logits = torch.tensor([[[0.0, math.log(3)]]])

    assert float(losses.token_logprobs(logits, torch.tensor([[1]]))) == pytest.approx(math.log(0.75))
    assert float(losses.token_entropies(logits)) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 5.0, 100.0], [-1, 1, 0]),  # scaled down to a standard deviation of 1
        ([1.0, 1.2, 100.0], [-0.1, 0.1, 0]),  # but never up
    ],
)
def test_centering_ignores_what_is_masked(values: list[float], expected: list[float]):
    found = losses.centered(torch.tensor([values]), torch.tensor([[1.0, 1.0, 0.0]]))

    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_returns_by_hand():
    found = losses.returns(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[1.0, 1.0, 0.0]]), gamma=0.5)

    assert found[0].tolist() == pytest.approx([1 + 0.5 * 2, 2, 0])


def test_leave_one_out_by_hand():
    found = losses.leave_one_out(torch.tensor(RETURNS), 3)

    assert found.tolist() == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5, -1 - 0.5, -1 - 0.5, 2 + 1])


def test_group_normalized_by_hand():
    found = losses.group_normalized(torch.tensor(RETURNS), 3)

    first, second = 7**0.5 + 1e-4, 3**0.5 + 1e-4  # variances (4 + 1 + 9) / 2 and (1 + 1 + 4) / 2
    assert found.tolist() == pytest.approx([-2 / first, -1 / first, 3 / first, -1 / second, -1 / second, 2 / second])


def test_over_greedy_by_hand():
    found = losses.over_greedy(torch.tensor([1.0, -2.0]), torch.tensor([0.5, -3.0]))

    assert found.tolist() == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("estimator", [losses.leave_one_out, losses.group_normalized])
def test_answers_that_are_all_alike_teach_nothing(estimator: Any):
    assert estimator(torch.tensor([3.0, 3.0, 3.0, 3.0]), 4).tolist() == pytest.approx([0] * 4)
