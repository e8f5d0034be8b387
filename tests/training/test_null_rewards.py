"""Rewards that say nothing about an answer must not change answers, above all not their length."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.training.options import PPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models  # noqa: E402 - they need torch
from evenhand.training.data import Prompt, read_prompts  # noqa: E402
from evenhand.training.ppo import Assessor, PPOTrainer, load_models  # noqa: E402
from evenhand.training.rollout import Rollout, roll_out  # noqa: E402

HERE = models.Machine("cpu", "float32")
BAND = 0.3
"""In multiples of the reference's mean length. The means of 192 lengths have a standard error of 5 % each."""
AS_IT_WAS = {"lam": 0.95, "kl_in": "reward", "reward_range": 0, "critic_warmup": 0, "value_clip": 0.2}
"""What shortened answers to a few words."""


class Constant:
    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        return [5.0 for _ in zip(prompts, answers, strict=True)]


class Random:
    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        return [float(torch.randn(())) for _ in zip(prompts, answers, strict=True)]


@pytest.fixture
def ratio(ending: str, rewarding: Path, pairs: Path, tmp_path: Path) -> Any:
    """A function that trains with a reward and returns the mean length of answers in multiples of the reference's."""

    def trained(reward: Any, **changed: Any) -> float:
        settings: dict[str, Any] = {"steps": 8, "batch": 32, "mini_batch": None, "critic_lr": 1e-2}
        settings |= {"max_new_tokens": 24, "critic_warmup": 2, **changed}
        options = PPOOptions(model=ending, reward=str(rewarding), data=pairs, out=tmp_path, device="cpu", **settings)
        loaded, chat = load_models(options, HERE)
        loaded = replace(loaded, reward=reward)
        prompts = read_prompts(pairs / "pairs.train.jsonl")
        trainer = PPOTrainer(options, loaded, chat, prompts, HERE)
        trainer.checks.measure_reference(resume=False)
        for number in range(options.steps or 0):
            torch.manual_seed(number)
            trainer.optimizer.begin(number)
            trainer.step(number)

        def mean_length(policy: Any) -> float:
            torch.manual_seed(0)
            return float(roll_out(policy, chat, prompts * 2, HERE, max_new_tokens=24).answer.sum(1).mean())

        with loaded.as_reference() as reference:
            before = mean_length(reference)
        return mean_length(loaded.actor) / before

    return trained


@pytest.mark.parametrize(
    "algorithm", ["grpo", *(pytest.param(name, marks=pytest.mark.training) for name in ("ppo", "rloo"))]
)
@pytest.mark.parametrize(
    ("reward", "lr"),
    [
        pytest.param(Constant(), 3e-3, id="constant"),
        pytest.param(Random(), 1e-3, id="random", marks=pytest.mark.training),
    ],
)
def test_the_length_stays(ratio: Any, algorithm: str, reward: Any, lr: float):
    batch = 32 if algorithm == "ppo" else 8

    assert ratio(reward, algorithm=algorithm, batch=batch, lr=lr) == pytest.approx(1, abs=BAND)


@pytest.mark.training
@pytest.mark.parametrize("slope", [-1.5, 1.5])
def test_the_length_stays_where_a_third_is_truncated(ratio: Any, slope: float, monkeypatch: pytest.MonkeyPatch):
    """The critic knows nothing of the rewards: it expects less, or more, of later tokens, as a reward model may."""

    def values(self: Assessor, rollout: Rollout) -> Any:
        mask = rollout.answer
        return slope * torch.linspace(-1, 1, mask.shape[1]) * mask.requires_grad_()

    monkeypatch.setattr(Assessor, "values", values)

    found = ratio(Constant(), lr=1e-3, max_new_tokens=16, mini_batch=16, ppo_epochs=1)

    assert found == pytest.approx(1, abs=0.15)  # 0.75 and 1.19 if truncated answers are left out


@pytest.mark.training
def test_it_did_not_stay_with_the_kl_in_the_reward_and_a_smaller_lambda(ratio: Any):
    assert ratio(Constant(), lr=3e-3, **AS_IT_WAS) < 1 - BAND
