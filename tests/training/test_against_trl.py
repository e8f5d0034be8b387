"""Our numbers against those that TRL 1.16.0 gave for the same models, pairs and rewards.

The numbers are pinned, so ours are checked everywhere; where `datasets` and TRL are installed, they make them again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.training.data import read_pairs
from evenhand.training.options import DPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import losses, models  # noqa: E402 - they need torch
from evenhand.training.chat import Chat  # noqa: E402
from evenhand.training.dpo import DPOTrainer  # noqa: E402
from evenhand.training.losses import ranking_loss  # noqa: E402
from support.toy_training import pinned_model  # noqa: E402

HERE = models.Machine("cpu", "float32")
ROWS, ANSWERS = 8, 4
REWARDS = [0.1, 0.7, -0.4, 2.0, 1.0, 1.0, 0.0, -3.0]
"""Of four answers to each of two prompts."""

DPO_NUMBERS = {
    "loss": 0.691791,
    "rewards/chosen": -0.137882,
    "rewards/rejected": -0.147381,
    "rewards/accuracies": 0.5,
    "rewards/margins": 0.00949918,
}
DPO_TOKENS = [[2, 27, 26, 1, 4], [19, 8, 21, 1], [29, 9, 30, 1]]
"""Prompt, chosen and rejected of the first pair."""
ADVANTAGES = {
    "RLOO": [-0.666667, 0.133333, -1.333333, 1.866667, 1.666667, 1.666667, 0.333333, -3.666667],
    "GRPO": [-0.482570, 0.096514, -0.965141, 1.351197, 0.660303, 0.660303, 0.132061, -1.452667],
}


@pytest.fixture
def policies(tmp_path: Path) -> tuple[Any, Any, Chat]:
    """A policy, a reference that differs from it, and their tokenizer; no library decides their weights."""
    folder = pinned_model(tmp_path / "pinned")
    policy, reference = (models.load_causal(folder, HERE, trained=True) for _ in range(2))
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(0.9)
    return policy, models.frozen(reference), models.load_chat(folder, policy)


@pytest.fixture
def rows(pairs: Path, tmp_path: Path) -> Any:
    """Our file, read by `datasets`."""
    datasets: Any = pytest.importorskip("datasets", reason="needs pip install datasets")
    read = {"data_files": str(pairs / "pairs.train.jsonl"), "split": "train", "cache_dir": str(tmp_path / "cache")}
    return datasets.load_dataset("json", **read).select(range(ROWS))


@pytest.fixture
def trl() -> Any:
    return pytest.importorskip("trl", reason="needs pip install trl")


def settings(tmp_path: Path, **given: Any) -> dict[str, Any]:
    """What all its trainers need to run quietly on a CPU."""
    shared = {"output_dir": str(tmp_path / "trl"), "use_cpu": True, "bf16": False, "report_to": "none"}
    return {**shared, "per_device_train_batch_size": ROWS, "disable_tqdm": True, "max_steps": 1, **given}


def test_our_dpo(policies: tuple[Any, Any, Chat], pairs: Path, tmp_path: Path):
    policy, reference, chat = policies
    options = DPOOptions(model="pinned", data=pairs, out=tmp_path / "out", beta=0.1)
    work = DPOTrainer(options, policy, reference, chat, read_pairs(pairs / "pairs.train.jsonl")[:ROWS], HERE)

    chosen, rejected = work.rewards(work.rows)

    better, worse = work.rows[0]
    assert [list(each) for each in (better.prompt, better.answer, worse.answer)] == DPO_TOKENS
    found = {
        "loss": ranking_loss(chosen, rejected).item(),
        "rewards/chosen": chosen.mean().item(),
        "rewards/rejected": rejected.mean().item(),
        "rewards/accuracies": (chosen > rejected).float().mean().item(),
        "rewards/margins": (chosen - rejected).mean().item(),
    }
    assert found == pytest.approx(DPO_NUMBERS, rel=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_its_dpo(trl: Any, rows: Any, policies: tuple[Any, Any, Chat], tmp_path: Path):
    policy, reference, chat = policies
    options = trl.DPOConfig(**settings(tmp_path, beta=0.1, max_length=64))
    trainer = trl.DPOTrainer(policy, reference, args=options, train_dataset=rows, processing_class=chat.tokenizer)
    prepared = [trainer.train_dataset[i] for i in range(ROWS)]
    policy.eval()

    loss = trainer.compute_loss(policy, trainer.data_collator(prepared)).item()

    assert trl.is_conversational(rows[0])
    assert [prepared[0][name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")] == DPO_TOKENS
    logged = {name: values[-1] for name, values in trainer._metrics["eval"].items() if name in DPO_NUMBERS}
    assert {"loss": loss, **logged} == pytest.approx(DPO_NUMBERS, rel=1e-4)


def test_our_advantages():
    returns = torch.tensor(REWARDS)

    assert losses.leave_one_out(returns, ANSWERS).tolist() == pytest.approx(ADVANTAGES["RLOO"], abs=1e-5)
    assert losses.group_normalized(returns, ANSWERS).tolist() == pytest.approx(ADVANTAGES["GRPO"], abs=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["RLOO", "GRPO"])
def test_its_advantages(name: str, trl: Any, rows: Any, tiny: str, tmp_path: Path):
    def reward(completions: Sequence[Any], **_: Any) -> list[float]:
        assert len(completions) == ROWS
        return REWARDS

    given = settings(tmp_path, num_generations=ANSWERS, max_completion_length=6, beta=0.0)
    trainer = getattr(trl, f"{name}Trainer")(
        tiny,
        reward,
        args=getattr(trl, f"{name}Config")(**given),
        train_dataset=rows.select_columns(["prompt"]),
        processing_class=models.load_chat(tiny, models.load_causal(tiny, HERE, trained=True)).tokenizer,
    )

    trainer.train()

    assert list(trainer._logs["advantages"]) == pytest.approx(ADVANTAGES[name], abs=1e-5)
