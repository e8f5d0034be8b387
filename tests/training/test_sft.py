"""Fine-tuning: what is learned, what carries loss, and that a resumed training is the same training."""

import json
from operator import mul
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Message
from evenhand.training.options import SFTOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import checkpoints, models, stage  # noqa: E402 - they need torch
from evenhand.training.loop import read_metrics  # noqa: E402
from evenhand.training.losses import answer_losses  # noqa: E402
from evenhand.training.sft import SFTTrainer, train_sft  # noqa: E402
from support.tiny import make_model  # noqa: E402
from support.toy_training import Interruption, assert_same, interrupt_after, numbers  # noqa: E402


def options(tiny: str, pairs: Path, out: Path, **changed: Any) -> SFTOptions:
    settings: dict[str, Any] = {"lr": 3e-3, "steps": 6, "save_every": 2, "device": "cpu", **changed}
    return SFTOptions(model=tiny, data=pairs, out=out, **settings)


def test_it_learns_the_answers(tiny: str, pairs: Path, tmp_path: Path):
    record = train_sft(options(tiny, pairs, tmp_path / "out", steps=None, epochs=4))

    assert record["results"]["loss_last"] < 0.7 * record["results"]["loss_first"]
    assert record["results"]["held_out_loss"] < record["results"]["loss_first"]
    assert record["ended"] == "done"


def test_the_first_loss_is_that_of_answer_tokens_alone(tiny: str, pairs: Path, tmp_path: Path):
    one = tmp_path / "one.jsonl"
    one.write_text((pairs / "sft.train.jsonl").read_text().splitlines(keepends=True)[0])
    train_sft(options(tiny, one, tmp_path / "out", steps=1))

    at = models.Machine("cpu", "float32")
    model = models.load_causal(tiny, at, trained=True)
    user, answer = json.loads(one.read_text())["messages"]
    tokenizer = models.load_chat(tiny, model).tokenizer
    ids = tokenizer(f"<user> {user['content']} <end> <assistant> {answer['content']} <end>")["input_ids"]
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = -sum(logprobs[place - 1, ids[place]].item() for place in range(len(ids) - 4, len(ids))) / 4
    assert read_metrics(tmp_path / "out")[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_adapters_are_on_the_layers_that_are_named(tiny: str, tmp_path: Path):
    at = models.Machine("cpu", "float32")
    asked = options(tiny, tmp_path, tmp_path / "out", lora=4, lora_layers="q_proj,v_proj")
    trained = models.trainable(models.load_policy(asked, at))

    assert trained
    assert all("q_proj.lora_" in name or "v_proj.lora_" in name for name in trained)
    with pytest.raises(UsageError, match="no layers called other"):
        models.load_policy(options(tiny, tmp_path, tmp_path / "out", lora=4, lora_layers="other"), at)
    with pytest.raises(UsageError, match="--lora-layers works only with --lora"):
        options(tiny, tmp_path, tmp_path / "out", lora_layers="q_proj")


@pytest.mark.parametrize("lora", [None, 4])
def test_kept_answers_hold_the_model_to_its_untrained_self(tiny: str, tmp_path: Path, lora: int | None):
    at = models.Machine("cpu", "float32")
    asked = options(tiny, tmp_path, tmp_path / "out", lora=lora, lr=3e-2, steps=8, batch=4)

    def divergence_after(keep: float) -> tuple[float, float]:
        torch.manual_seed(0)
        model = models.load_policy(asked, at)
        chat, reference = models.chat_of(asked, model), models.frozen_reference(model, lora)
        learned = [chat.encode([Message("user", "cat w1")], "dog moon"), chat.encode([Message("user", "w2")], "sun")]
        kept = [chat.encode([Message("user", f"tree w{i}")], "river moon cat sun") for i in range(2)]
        trainer = SFTTrainer(
            asked, model, chat, learned, at, equal_rows=True, kept=kept if keep else (), keep=keep, reference=reference
        )
        before = answer_losses(model, reference, chat, [], kept, at)[1].sum().item()
        for step in range(8):
            trainer.step(step)
        return before, answer_losses(model, reference, chat, [], kept, at)[1].sum().item()

    untrained, moved = divergence_after(0)
    _, held = divergence_after(10.0)
    assert untrained == pytest.approx(0, abs=1e-5)
    assert held < 0.5 * moved


def test_the_first_tokens_of_a_kept_answer_count_more_than_the_last(tiny: str, tmp_path: Path):
    at = models.Machine("cpu", "float32")
    model, reference = (models.load_policy(options(tiny, tmp_path, tmp_path / "out"), at) for _ in range(2))
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    chat = models.chat_of(options(tiny, tmp_path, tmp_path / "out"), model)
    kept = chat.encode([Message("user", "tree w1")], "river moon cat")
    ids, start = torch.tensor([[*kept.prompt, *kept.answer]]), len(kept.prompt) - 1
    with torch.no_grad():
        own, old = (each(ids).logits[0, start:-1].log_softmax(-1) for each in (model, reference))
    each = (old.exp() * (old - own)).sum(-1).tolist()
    early = [1 / (token + 1) for token in range(len(each))]
    expected = sum(each) / len(each) + sum(map(mul, early, each)) / sum(early)

    found = answer_losses(model, reference, chat, [], [kept], at)[1].item()

    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("lora", [None, 4])
def test_interrupted_and_resumed_is_the_same_bit_for_bit(tiny: str, pairs: Path, tmp_path: Path, lora: int | None):
    train_sft(options(tiny, pairs, tmp_path / "whole", lora=lora))

    with pytest.raises(Interruption):  # one step after the checkpoint of step 2
        train_sft(options(tiny, pairs, tmp_path / "parts", lora=lora), observe=interrupt_after(3))
    assert not stage.read_record(tmp_path / "parts")["finished"]
    train_sft(options(tiny, pairs, tmp_path / "parts", lora=lora), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_a_broken_checkpoint_costs_only_the_steps_since_the_one_before(tiny: str, pairs: Path, tmp_path: Path):
    train_sft(options(tiny, pairs, tmp_path / "whole"))
    with pytest.raises(Interruption):
        train_sft(options(tiny, pairs, tmp_path / "parts"), observe=interrupt_after(5))
    newest = sorted((tmp_path / "parts" / checkpoints.FOLDER).iterdir())[-1]
    (newest / "state.safetensors").write_bytes(b"half a file")

    train_sft(options(tiny, pairs, tmp_path / "parts"), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_an_interruption_while_the_result_is_saved_loses_nothing(
    tiny: str, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    train_sft(options(tiny, pairs, tmp_path / "whole"))

    def interrupted(*_: object, **__: object) -> None:
        raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(models, "save", interrupted)
        with pytest.raises(Interruption):
            train_sft(options(tiny, pairs, tmp_path / "parts"))
    train_sft(options(tiny, pairs, tmp_path / "parts"), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_tensorboard_gets_what_the_metrics_have(tiny: str, pairs: Path, tmp_path: Path):
    pytest.importorskip("tensorboard", reason="needs pip install tensorboard")
    train_sft(options(tiny, pairs, tmp_path / "out", steps=2))

    (events,) = (tmp_path / "out" / "tensorboard").iterdir()
    assert b"grad_norm" in events.read_bytes()


def test_micro_batches_change_nothing_but_rounding(tiny: str, pairs: Path, tmp_path: Path):
    train_sft(options(tiny, pairs, tmp_path / "whole", steps=2))
    train_sft(options(tiny, pairs, tmp_path / "parts", steps=2, micro_batch=5))

    whole, parts = numbers(tmp_path / "whole"), numbers(tmp_path / "parts")
    assert [line["loss"] for line in parts] == pytest.approx([line["loss"] for line in whole], rel=1e-4)


def test_a_finished_training_is_not_made_again(tiny: str, pairs: Path, tmp_path: Path):
    first = train_sft(options(tiny, pairs, tmp_path / "out", steps=1))

    assert train_sft(options(tiny, pairs, tmp_path / "out", steps=1), resume=True) == first


def test_the_card_names_base_data_options_and_results(tiny: str, pairs: Path, tmp_path: Path):
    train_sft(options(tiny, pairs, tmp_path / "out", steps=1))

    card = (tmp_path / "out" / "README.md").read_text()
    for part in (f"base_model: {tiny}", "sft.train.jsonl", "| lr | 0.003 |", "held_out_loss", "torch", "## Limits"):
        assert part in card


def test_no_chat_template_is_one_sentence_and_leaves_the_way_free(tiny: str, pairs: Path, tmp_path: Path):
    make_model(tmp_path / "base", template=None)
    with pytest.raises(UsageError, match="no chat template"):
        train_sft(options(str(tmp_path / "base"), pairs, tmp_path / "out"))

    assert train_sft(options(tiny, pairs, tmp_path / "out", steps=1))["finished"]


def test_an_empty_split_is_told_before_anything_is_made(tiny: str, pairs: Path, tmp_path: Path):
    empty = tmp_path / "data"
    empty.mkdir()
    (empty / "sft.train.jsonl").write_bytes((pairs / "sft.train.jsonl").read_bytes())
    (empty / "sft.test.jsonl").touch()

    with pytest.raises(DataError, match=r"sft\.test\.jsonl: The file holds no answers"):
        train_sft(options(tiny, empty, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_not_there_is_one_sentence(pairs: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="no model folder or GGUF file"):
        train_sft(options("/no/such/model", pairs, tmp_path / "out"))
    with pytest.raises(UsageError, match="cannot be used"):
        train_sft(options("x", pairs, tmp_path / "out", device="abacus"))


def test_a_loss_that_is_not_a_number_keeps_the_last_checkpoint(tiny: str, pairs: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"stopped at step \d+: The gradient is not a number.*step \d+ is kept"):
        train_sft(options(tiny, pairs, tmp_path / "out", lr=1e30, save_every=1, steps=50))

    assert checkpoints.newest(tmp_path / "out") is not None


def test_options_that_make_no_sense_are_refused(tiny: str, pairs: Path, tmp_path: Path):
    for changed in ({"batch": 0}, {"epochs": -1}, {"lr": 0.0}, {"keep_adapter": True}):
        with pytest.raises(UsageError):
            options(tiny, pairs, tmp_path, **changed)
