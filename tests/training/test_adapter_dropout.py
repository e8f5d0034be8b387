"""Dropout of adapters: it acts on the passes that train, in every stage that has it, and on no other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.training.options import DPOOptions, FixedDataOptions, PPOOptions, RewardOptions, SFTOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import data, models  # noqa: E402 - they need torch
from evenhand.training.dpo import train_dpo  # noqa: E402
from evenhand.training.loop import read_metrics  # noqa: E402
from evenhand.training.reward import train_reward  # noqa: E402
from evenhand.training.sft import SFTTrainer, train_sft  # noqa: E402

STAGES: list[tuple[type[FixedDataOptions], Callable[..., object]]] = [
    (SFTOptions, train_sft),
    (RewardOptions, train_reward),
    (DPOOptions, train_dpo),
]


@pytest.mark.parametrize(("kind", "train"), STAGES)
def test_a_training_with_dropout_is_another(
    tiny: str, pairs: Path, tmp_path: Path, kind: type[FixedDataOptions], train: Callable[..., object]
):
    losses: dict[float, list[float]] = {}
    for dropout in (0.0, 0.5):
        out = tmp_path / str(dropout)
        train(kind(model=tiny, data=pairs, out=out, device="cpu", steps=3, lr=1e-2, lora=4, lora_dropout=dropout))
        losses[dropout] = [line["loss"] for line in read_metrics(out)]

    assert losses[0.5][0] == pytest.approx(losses[0.0][0])  # at first an adapter adds nothing
    assert losses[0.5][2] != pytest.approx(losses[0.0][2], rel=1e-4)


def test_only_the_passes_that_train_have_it(tiny: str, pairs: Path, tmp_path: Path):
    at = models.Machine("cpu", "float32")
    asked = SFTOptions(model=tiny, data=pairs, out=tmp_path / "out", lr=1e-9, lora=4, lora_dropout=0.5)
    model = models.load_policy(asked, at)
    chat = models.chat_of(asked, model)
    models.prepare(model, asked, at)
    with torch.no_grad():
        for name, weight in models.trainable(model).items():
            weight.copy_(torch.ones_like(weight) if "lora_B" in name else weight)
    rows = [chat.encode(each.prompt, each.answer) for each in data.read_examples(pairs / "sft.train.jsonl")]
    trainer = SFTTrainer(asked, model, chat, rows, at)

    before = trainer.mean_loss(rows)
    trained = [trainer.step(0)["loss"] for _ in range(2)]

    assert trained[0] != pytest.approx(trained[1], rel=1e-4)
    assert trainer.mean_loss(rows) == pytest.approx(before, rel=1e-5)


def test_it_needs_adapters_and_is_not_for_ppo():
    with pytest.raises(UsageError, match="--lora-dropout works only with --lora"):
        SFTOptions(model="m", data=Path("d"), out=Path("o"), lora_dropout=0.1)
    with pytest.raises(UsageError, match=r"lora-dropout must be a number from 0 to 0\.9, not 1"):
        SFTOptions(model="m", data=Path("d"), out=Path("o"), lora=4, lora_dropout=1)
    assert "lora_dropout" not in PPOOptions.model_fields
