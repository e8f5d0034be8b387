"""PPO: roll-outs, and that it raises a reward, keeps to its limits and can be interrupted."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Message
from evenhand.training.options import PPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import checkpoints, models  # noqa: E402 - they need torch
from evenhand.training.loop import read_metrics  # noqa: E402
from evenhand.training.ppo import load_models, train_ppo  # noqa: E402
from evenhand.training.reward import RewardModel  # noqa: E402
from evenhand.training.rollout import logprobs_and_entropies, roll_out  # noqa: E402
from support.toy_training import Interruption, assert_same, interrupt_after  # noqa: E402

HERE = models.Machine("cpu", "float32")
PROMPTS = [(Message("user", "w1"),), (Message("user", "w2 w3 w4 w5"),)]


@pytest.fixture
def liking_sun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy reward: the share of `sun` among the words of an answer."""

    def score(self: RewardModel, prompts: Any, answers: list[str]) -> list[float]:
        return [4 * answer.split().count("sun") / max(1, len(answer.split())) for answer in answers]

    monkeypatch.setattr(RewardModel, "score", score)


def options(tiny: str, pairs: Path, reward: Path, out: Path, **changed: Any) -> PPOOptions:
    settings: dict[str, Any] = {"lr": 1e-3, "critic_lr": 1e-2, "batch": 16, "steps": 4, "max_new_tokens": 6}
    settings |= {"mini_batch": None, "drift_limits": False}
    return PPOOptions(model=tiny, reward=str(reward), data=pairs, out=out, device="cpu", **{**settings, **changed})


def column(folder: Path, name: str) -> list[float]:
    return [line[name] for line in read_metrics(folder)]


@pytest.mark.training
@pytest.mark.usefixtures("liking_sun")
@pytest.mark.parametrize(("lora", "lr"), [(None, 1e-3), (8, 1e-2)])
def test_a_toy_reward_rises_significantly(
    ending: str, pairs: Path, rewarding: Path, tmp_path: Path, lora: int | None, lr: float
):
    settings = {"lora": lora, "lr": lr, "steps": 40, "batch": 32, "max_new_tokens": 16}
    record = train_ppo(options(ending, pairs, rewarding, tmp_path / "out", **settings))

    rewards = column(tmp_path / "out", "reward")
    first, last = (torch.tensor(each) for each in (rewards[:8], rewards[-8:]))
    error = float((first.var() / 8 + last.var() / 8).sqrt())
    assert float(last.mean() - first.mean()) > 5 * error
    assert record["results"]["held_out_reward_after"] > 3 * record["results"]["held_out_reward_before"]
    assert record["results"]["length_last"] > 0


def test_everything_is_logged_and_the_first_kl_is_nothing(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", steps=2))

    first, second = read_metrics(tmp_path / "out")
    wanted = {
        "reward",
        "kl",
        "entropy",
        "clip_fraction",
        "missing_eos",
        "length",
        "values",
        "policy_loss",
        "value_loss",
    }
    assert wanted <= first.keys()
    assert first["kl"] == pytest.approx(0, abs=1e-5)
    assert second["kl"] != 0
    assert 0 < first["entropy"] < 3.7  # ln 40
    assert 1 <= first["length"] <= 6


@pytest.mark.parametrize("lora", [None, pytest.param(4, marks=pytest.mark.training)])
def test_interrupted_and_resumed_is_the_same_bit_for_bit(
    tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, lora: int | None
):
    settings = {"lora": lora, "save_every": 2, "batch": 4}
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "whole", **settings))

    with pytest.raises(Interruption):
        train_ppo(options(tiny, pairs, rewarding, tmp_path / "parts", **settings), observe=interrupt_after(3))
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "parts", **settings), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_micro_batches_change_nothing_but_rounding(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "whole", steps=1))
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "parts", steps=1, micro_batch=5))

    for name in ("policy_loss", "value_loss", "clip_fraction", "grad_norm"):
        assert column(tmp_path / "parts", name) == pytest.approx(column(tmp_path / "whole", name), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("lora", [pytest.param(None, marks=pytest.mark.training), 4])
def test_bfloat16_is_computed_and_saved(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, lora: int | None):
    settings = {"steps": 1, "batch": 4, "max_new_tokens": 2, "dtype": "bfloat16", "lora": lora, "keep_adapter": False}
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", **settings))

    model = models.load_causal(str(tmp_path / "out"), models.Machine("cpu", "bfloat16"), trained=False)
    assert model.dtype == torch.bfloat16
    assert column(tmp_path / "out", "kl") == pytest.approx([0], abs=1e-4)


def test_whatever_is_trained_is_float32(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    for lora in (None, 4):
        given = options(tiny, pairs, rewarding, tmp_path, dtype="bfloat16", lora=lora)
        loaded, _ = load_models(given, models.machine(given.device, given.dtype))

        moving = [*models.trainable(loaded.actor).values(), *models.trainable(loaded.critic).values()]
        assert {weight.dtype for weight in moving} == {torch.float32}
        assert not models.trainable(loaded.reward.model)


def test_a_reward_that_is_not_a_number_stops_and_keeps_the_last_checkpoint(
    tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = 0

    def score(self: RewardModel, prompts: Any, answers: list[str]) -> list[float]:
        nonlocal calls
        calls += len(answers) == 12  # a step, not a measurement
        return [float("nan") if calls == 3 else 1.0 for _ in answers]

    monkeypatch.setattr(RewardModel, "score", score)
    with pytest.raises(UsageError, match=r"stopped at step 3: .*not a number.*checkpoint of step 2 is kept"):
        train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", save_every=1, batch=12))

    found = checkpoints.newest(tmp_path / "out")
    assert found is not None
    assert found[0] == 2


def test_answers_have_ends_and_a_mask(tiny: str):
    policy = models.load_causal(tiny, HERE, trained=True)
    chat = models.load_chat(tiny, policy)
    torch.manual_seed(0)

    rollout = roll_out(policy, chat, PROMPTS * 20, HERE, max_new_tokens=6)

    assert {True, False} == set(rollout.ended)
    for row, kept, ended, text in zip(
        rollout.tokens.tolist(), rollout.answer.sum(1).int().tolist(), rollout.ended, rollout.texts, strict=True
    ):
        assert (row[kept - 1] == 1) == ended
        assert 1 not in row[: kept - 1]
        assert ended or kept == rollout.answer.shape[1]
        assert chat.text(row[:kept]) == text


def test_log_probabilities_do_not_depend_on_padding(tiny: str):
    policy = models.load_causal(tiny, HERE, trained=True)
    chat = models.load_chat(tiny, policy)
    torch.manual_seed(1)
    rollout = roll_out(policy, chat, PROMPTS, HERE, max_new_tokens=5)

    logprobs, _ = logprobs_and_entropies(policy, rollout, HERE)

    opening = list(chat.encode_prompt(PROMPTS[0], 5))
    answer = rollout.tokens[0, : int(rollout.answer[0].sum())].tolist()
    alone = policy(torch.tensor([opening + answer])).logits[0].log_softmax(-1)
    expected = [alone[len(opening) - 1 + i, token].item() for i, token in enumerate(answer)]
    assert logprobs[0, : len(answer)].tolist() == pytest.approx(expected, abs=1e-4)


def test_no_room_for_prompts_is_one_sentence(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="takes 64 tokens in all"):
        train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", max_new_tokens=64))
    with pytest.raises(UsageError, match="leaves no room"):
        options(tiny, pairs, rewarding, tmp_path, max_new_tokens=4096)
