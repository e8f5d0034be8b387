"""DPO: that it learns pairs it has not seen, from a reference that stays, and can be interrupted."""

import math
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.training import data
from evenhand.training.options import DPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models  # noqa: E402 - they need torch
from evenhand.training.dpo import train_dpo  # noqa: E402
from evenhand.training.loop import read_metrics  # noqa: E402
from support.toy_training import Interruption, assert_same, interrupt_after  # noqa: E402

HERE = models.Machine("cpu", "float32")


def options(tiny: str, pairs: Path, out: Path, **changed: Any) -> DPOOptions:
    settings: dict[str, Any] = {"lr": 1e-3, "steps": 4, **changed}
    return DPOOptions(model=tiny, data=pairs, out=out, device="cpu", **settings)


@pytest.mark.parametrize(("lora", "lr"), [(None, 3e-3), pytest.param(8, 1e-2, marks=pytest.mark.training)])
def test_held_out_pairs_are_told_apart(tiny: str, pairs: Path, tmp_path: Path, lora: int | None, lr: float):
    settings = {"lora": lora, "lr": lr, "steps": 40}
    results = train_dpo(options(tiny, pairs, tmp_path / "out", **settings))["results"]

    assert results["held_out_accuracy"] >= 0.95
    assert results["held_out_chosen"] > results["held_out_rejected"]
    assert results["held_out_margin"] == pytest.approx(results["held_out_chosen"] - results["held_out_rejected"])


@pytest.mark.parametrize("lora", [None, 4])
def test_at_first_the_policy_is_its_reference(tiny: str, pairs: Path, tmp_path: Path, lora: int | None):
    train_dpo(options(tiny, pairs, tmp_path / "out", lora=lora, steps=2))

    first, second = read_metrics(tmp_path / "out")
    assert first["loss"] == pytest.approx(math.log(2))
    assert first["chosen"] == first["rejected"] == 0
    assert second["loss"] < first["loss"]
    assert second["margin"] == pytest.approx(second["chosen"] - second["rejected"], abs=1e-6)


def test_rewards_are_those_of_the_saved_model_over_the_first(tiny: str, pairs: Path, tmp_path: Path):
    results = train_dpo(options(tiny, pairs, tmp_path / "out", beta=0.5))["results"]

    before, after = (models.load_causal(name, HERE, trained=False) for name in (tiny, str(tmp_path / "out")))
    chat = models.load_chat(tiny, before)
    expected: list[float] = []
    for pair in data.read_pairs(pairs / "pairs.test.jsonl"):
        row = chat.encode(pair.prompt, pair.chosen)
        ids = torch.tensor([[*row.prompt, *row.answer]])
        both = [model(ids).logits[0].log_softmax(-1) for model in (after, before)]
        places = [(len(row.prompt) - 1 + i, token) for i, token in enumerate(row.answer)]
        expected.append(0.5 * sum((both[0][place] - both[1][place]).item() for place in places))
    assert results["held_out_chosen"] == pytest.approx(sum(expected) / len(expected), abs=1e-4)


@pytest.mark.parametrize("lora", [None, pytest.param(4, marks=pytest.mark.training)])
def test_interrupted_and_resumed_is_the_same_bit_for_bit(tiny: str, pairs: Path, tmp_path: Path, lora: int | None):
    settings = {"lora": lora, "save_every": 2}
    train_dpo(options(tiny, pairs, tmp_path / "whole", **settings))

    with pytest.raises(Interruption):
        train_dpo(options(tiny, pairs, tmp_path / "parts", **settings), observe=interrupt_after(3))
    train_dpo(options(tiny, pairs, tmp_path / "parts", **settings), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_micro_batches_change_nothing_but_rounding(tiny: str, pairs: Path, tmp_path: Path):
    train_dpo(options(tiny, pairs, tmp_path / "whole", steps=2))
    train_dpo(options(tiny, pairs, tmp_path / "parts", steps=2, micro_batch=5))

    whole, parts = (read_metrics(tmp_path / name) for name in ("whole", "parts"))
    for name in ("loss", "margin", "accuracy", "grad_norm"):
        expected = [line[name] for line in whole]
        assert [line[name] for line in parts] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_the_card_names_the_algorithm(tiny: str, pairs: Path, tmp_path: Path):
    train_dpo(options(tiny, pairs, tmp_path / "out", steps=1))

    card = (tmp_path / "out" / "README.md").read_text()
    assert "trained by DPO" in card
    assert "held_out_accuracy" in card
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_beta_of_nothing_is_refused():
    with pytest.raises(UsageError, match="beta must be a number above 0"):
        options("m", Path("p"), Path("o"), beta=0)
