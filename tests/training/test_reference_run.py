"""A pinned tiny training: numbers that change here have changed for every user, and need a reason."""

from pathlib import Path
from typing import Any, get_args

import pytest

from evenhand.training.options import Algorithm, DPOOptions, PPOOptions, RewardOptions, SFTOptions

pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training.dpo import train_dpo
from evenhand.training.loop import read_metrics
from evenhand.training.ppo import train_ppo
from evenhand.training.reward import train_reward
from evenhand.training.sft import train_sft
from support.toy_training import pinned_model

PINNED: dict[str, dict[str, list[float]]] = {
    "sft": {
        "loss": [4.32287, 4.70001, 4.5969],
        "grad_norm": [6.87918, 7.93694, 6.12381],
    },
    "reward": {
        "loss": [0.456829, 0.701664, 0.454495],
        "margin": [0.690958, 0.202282, 0.823788],
    },
    "ppo": {
        "reward": [0.922219, 0.44404, 1.04595],
        "kl": [0.0, -0.0184828, 0.371496],
        "entropy": [2.62081, 2.69129, 2.71086],
        "length": [5.375, 6.0, 5.25],
        "values": [-0.498675, -0.247298, 0.256949],
        "policy_loss": [-0.111701, -0.099234, -0.0948949],
        "value_loss": [1.3666, 1.01055, 1.05096],
    },
    "rloo": {
        "reward": [0.867288, 0.635667, 0.724364],
        "kl": [0.0, 0.231161, 0.310262],
        "policy_loss": [-0.0799947, -0.0791894, -0.0967748],
        "grad_norm": [1.49635, 1.83858, 2.54141],
    },
    "rloo, KL in the loss": {
        "reward": [0.867287, 0.745489, 0.6806],
        "kl": [0.0, 0.220848, 0.387206],
        "kl_loss": [0.0036903, 0.00255432, 0.0038043],
        "grad_norm": [1.51062, 1.81887, 2.76372],
    },
    "grpo": {
        "reward": [0.867288, 0.749243, 0.439333],
        "kl": [0.0, 0.147751, 0.47546],
        "policy_loss": [-0.021123, -0.0847269, -0.0720846],
        "grad_norm": [1.0104, 1.40773, 1.48534],
    },
    "remax": {
        "reward": [0.922219, 0.184353, 1.32405],
        "kl": [0.0, 0.266639, 0.781284],
        "policy_loss": [-0.713226, 0.393037, -0.550001],
        "grad_norm": [3.45597, 3.71596, 3.32496],
    },
    "dpo": {
        "loss": [0.693147, 0.67354, 0.658134],
        "margin": [0.0, 0.0399305, 0.0726673],
        "grad_norm": [1.60066, 1.81623, 1.67784],
    },
}


def test_the_reference_run(pairs: Path, tmp_path: Path):
    shared: dict[str, Any] = {"data": pairs, "steps": 3, "batch": 8, "lr": 1e-3, "device": "cpu"}
    sft, reward = str(tmp_path / "sft"), str(tmp_path / "reward")
    train_sft(SFTOptions(model=pinned_model(tmp_path / "base"), out=Path(sft), **shared))
    train_reward(RewardOptions(model=sft, out=Path(reward), **shared))
    train_dpo(DPOOptions(model=sft, out=tmp_path / "dpo", **shared))
    rolled_out = {"model": sft, "reward": reward, "max_new_tokens": 6, "mini_batch": None, **shared}
    rolled_out |= {"drift_limits": False}
    for algorithm in get_args(Algorithm):
        train_ppo(PPOOptions(out=tmp_path / algorithm, algorithm=algorithm, kl_in="reward", **rolled_out))
    train_ppo(PPOOptions(out=tmp_path / "rloo, KL in the loss", algorithm="rloo", **rolled_out))

    for stage, columns in PINNED.items():
        lines = read_metrics(tmp_path / stage)
        for name, values in columns.items():
            assert [line[name] for line in lines] == pytest.approx(values, rel=1e-3, abs=1e-4), (stage, name)
