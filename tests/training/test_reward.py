"""The reward model: it learns separable pairs, scores words and not tokens, and can be loaded by others."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Message
from evenhand.training.options import RewardOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import models, stage  # noqa: E402 - they need torch
from evenhand.training.data import Preference  # noqa: E402
from evenhand.training.loop import read_metrics  # noqa: E402
from evenhand.training.reward import (  # noqa: E402
    RewardModel,
    pair_accuracy,
    token_values,
    train_reward,
)
from support.toy_training import Interruption, assert_same, interrupt_after, shorter_pairs_folder  # noqa: E402

HERE = models.Machine("cpu", "float32")
QUESTION = (Message("user", "w1 w2"),)


def options(tiny: str, pairs: Path, out: Path, **changed: Any) -> RewardOptions:
    settings: dict[str, Any] = {"lr": 3e-3, "device": "cpu", **changed}
    return RewardOptions(model=tiny, data=pairs, out=out, **settings)


@pytest.fixture
def model(rewarding: Path) -> RewardModel:
    return RewardModel.load(str(rewarding), HERE)


def test_separable_pairs_are_told_apart_on_held_out_topics(rewarding: Path):
    results = stage.read_record(rewarding)["results"]

    assert results["held_out_pairs"] == 40
    assert results["held_out_accuracy"] >= 0.95
    assert results["held_out_margin"] > 1
    assert results["held_out_accuracy_low"] < results["held_out_accuracy"]


def test_with_adapters_too(tiny: str, pairs: Path, tmp_path: Path):
    record = train_reward(options(tiny, pairs, tmp_path / "out", lora=8, lr=1e-2, epochs=10))

    assert record["results"]["held_out_accuracy"] >= 0.95
    assert not (tmp_path / "out" / models.ADAPTER).exists()


def test_scores_do_not_depend_on_the_company(model: RewardModel):
    answers = ["w1 sun w2", "moon", "w1 w2 w3 w4 w5 sun sun"]

    together = model.score([QUESTION] * 3, answers)

    assert together == pytest.approx([model.score([QUESTION], [answer])[0] for answer in answers], abs=1e-4)
    assert together[0] > together[1]


def test_the_score_is_the_head_at_the_last_token_of_the_turn(model: RewardModel):
    ids = model.chat.tokenizer("<user> w1 w2 <end> <assistant> sun <end>", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        hidden = model.model.base_model(ids).last_hidden_state[0, -1]
    expected = float(hidden @ model.model.score.weight[0])

    assert model.score([QUESTION], ["sun"]) == pytest.approx([expected], abs=1e-4)


def test_transformers_itself_gives_the_same_score(model: RewardModel, rewarding: Path):
    import transformers

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(rewarding)
    tokenizer = transformers.AutoTokenizer.from_pretrained(rewarding)
    given = tokenizer("<user> w1 w2 <end> <assistant> w3 sun <end>", return_tensors="pt")
    with torch.no_grad():
        logits = theirs(given["input_ids"], attention_mask=given["attention_mask"]).logits

    assert model.score([QUESTION], ["w3 sun"]) == pytest.approx(logits[0].tolist(), abs=1e-4)


def test_interrupted_and_resumed_is_the_same_bit_for_bit(tiny: str, pairs: Path, tmp_path: Path):
    settings = {"steps": 4, "save_every": 2, "batch": 8}
    train_reward(options(tiny, pairs, tmp_path / "whole", **settings))

    with pytest.raises(Interruption):
        train_reward(options(tiny, pairs, tmp_path / "parts", **settings), observe=interrupt_after(3))
    train_reward(options(tiny, pairs, tmp_path / "parts", **settings), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_a_file_with_one_class_is_one_sentence(tiny: str, pairs: Path, tmp_path: Path):
    row = json.loads((pairs / "pairs.train.jsonl").read_text().splitlines()[0])
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps({**row, "rejected": []}) + "\n")

    with pytest.raises(DataError, match=r"one\.jsonl, line 1: .*rejected is missing"):
        train_reward(options(tiny, one, tmp_path / "out"))


def test_a_language_model_is_no_reward_model(tiny: str):
    with pytest.raises(UsageError, match=r"not a reward model.*evenhand train reward"):
        RewardModel.load(tiny, HERE)


@pytest.fixture(scope="module")
def shorter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shorter_pairs_folder(tmp_path_factory.mktemp("shorter"))


def test_a_reward_model_that_learned_only_length_is_exposed(tiny: str, shorter: Path, tmp_path: Path, shell: Any):
    given = ("--lr", "3e-3", "--epochs", "6", "--negatives", "0", "--device", "cpu")

    assert shell("train", "reward", shorter, "--model", tiny, "--out", "out", *given) == 0

    results = stage.read_record(tmp_path / "out")["results"]
    assert results["held_out_accuracy"] >= 0.95
    assert results["held_out_longer_wins"] == 0
    assert results["held_out_prefers_longer_high"] < 0.5
    assert results["held_out_length_correlation"] < -0.5
    assert read_metrics(tmp_path / "out")[-1]["prefers_longer"] < 0.2
    assert results["probe"]["kinds"]["empty"]["wins"] > 0.4
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for text in (shell.out, card):
        assert "This reward model teaches length" in text
        assert "will give shorter answers" in text
        assert "This reward model likes worthless answers" in text
        assert "held_out_accuracy (age)" in text.replace("held out accuracy", "held_out_accuracy")
        assert "probe: gibberish" in text


def test_added_negatives_are_trained_on(tiny: str, pairs: Path, tmp_path: Path):
    record = train_reward(options(tiny, pairs, tmp_path / "out", negatives=0.25, batch=40, steps=1))

    assert (record["results"]["pairs"], record["results"]["negatives"]) == (96, 24)
    assert options(tiny, pairs, tmp_path / "whole", negatives=0.25, batch=40).total_steps(120) == 3


def test_margins_of_the_referee_can_be_asked_for(tiny: str, shorter: Path, pairs: Path, tmp_path: Path):
    settings = {"steps": 1, "negatives": 0, "batch": 96}
    plain = options(tiny, shorter, tmp_path / "plain", **settings)
    wide = options(tiny, shorter, tmp_path / "wide", margin_weight=0.5, **settings)

    train_reward(plain)
    train_reward(wide)

    [before], [after] = (read_metrics(each.out) for each in (plain, wide))
    assert after["loss"] > before["loss"] + 0.5
    assert after["margin"] == before["margin"]
    with pytest.raises(UsageError, match="These pairs have no margins"):
        train_reward(options(tiny, pairs, tmp_path / "none", margin_weight=0.5))


def test_an_ensemble_rewards_what_its_heads_agree_on(tiny: str, pairs: Path, tmp_path: Path):
    record = train_reward(options(tiny, pairs, tmp_path / "out", ensemble=3, epochs=10))

    model = RewardModel.load(str(tmp_path / "out"), HERE)
    rows = [model.chat.encode(QUESTION, answer) for answer in ("w1 sun w2", "moon w3")]
    with torch.no_grad():
        outputs = model.outputs(rows)
    assert outputs.shape == (2, 3)
    assert float(outputs.std(1).min()) > 0
    expected = (outputs.mean(1) - outputs.std(1)).tolist()
    assert model.score([QUESTION] * 2, ["w1 sun w2", "moon w3"]) == pytest.approx(expected, abs=1e-4)
    assert record["results"]["held_out_accuracy"] >= 0.95
    ids = model.chat.pack(rows[:1], "cpu").ids
    with torch.no_grad():
        values = token_values(model.model, ids, torch.ones_like(ids), HERE)  # PPO's critic begins with these
    assert float(values[0, -1]) == pytest.approx(float(outputs[0].mean()), abs=1e-4)


def test_the_interval_is_that_of_topics_not_of_pairs():
    questions = [(Message("user", f"Question {number}?"),) for number in range(6)]
    pairs = [Preference(question, "yes", "no") for question in questions for _ in range(8)]
    chosen = [float(number >= 8) for number in range(48)]

    found = pair_accuracy(pairs, chosen, [0.5] * 48)

    assert (found["pairs"], found["topics"], found["topics_below_half"]) == (48, 6, 1)
    assert found["accuracy"] == pytest.approx(5 / 6)
    assert found["accuracy_low"] < 0.45
    assert pair_accuracy(pairs[:8], chosen[:8], [0.5] * 8)["accuracy_low"] is None


@pytest.mark.parametrize("changed", [{"negatives": 2}, {"negatives": "x"}, {"margin_weight": -1}, {"ensemble": 0}])
def test_bad_options_are_refused(tiny: str, pairs: Path, tmp_path: Path, changed: dict[str, Any]):
    with pytest.raises(UsageError):
        options(tiny, pairs, tmp_path / "out", **changed)
