"""Gradient checkpointing: layers are recomputed in the backward pass."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.training.options import SFTOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models, parallel  # noqa: E402 - they need torch
from evenhand.training.sft import train_sft  # noqa: E402
from support.toy_training import assert_same  # noqa: E402


@pytest.mark.parametrize(("lora", "dropout"), [(None, 0.0), (4, 0.0), (4, 0.5)])
def test_the_result_is_the_same_bit_for_bit(tiny: str, pairs: Path, tmp_path: Path, lora: int | None, dropout: float):
    for again in (False, True):
        out = tmp_path / str(again)
        shared: dict[str, Any] = {"device": "cpu", "steps": 3, "lr": 1e-3, "lora": lora, "lora_dropout": dropout}
        train_sft(SFTOptions(model=tiny, data=pairs, out=out, gradient_checkpointing=again, **shared))

    assert_same(tmp_path / "False", tmp_path / "True")


def test_layers_are_computed_twice_with_gradients_and_once_without(tiny: str):
    model = models.load_causal(tiny, models.Machine("cpu", "float32"), trained=True)
    models.enable_gradient_checkpointing(model)
    passes: list[object] = []

    def begins(module: object, given: object) -> None:
        passes.append(module)

    parallel.layers_of(model)[0].mlp.register_forward_pre_hook(begins)

    model(torch.tensor([[1, 2]])).logits.sum().backward()
    assert len(passes) == 2
    with torch.no_grad():
        model(torch.tensor([[1, 2]]))
    assert len(passes) == 3


def test_a_model_without_layers_is_refused():
    with pytest.raises(UsageError, match="no layers that can be recomputed"):
        models.enable_gradient_checkpointing(torch.nn.Linear(2, 2))
