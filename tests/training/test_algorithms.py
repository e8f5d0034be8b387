"""PPO's relatives: that each raises a reward without a critic and can be interrupted, and what they leave to read."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Message
from evenhand.papers.rldf.arms import stages_of
from evenhand.training.options import PPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import checkpoints, models  # noqa: E402 - they need torch
from evenhand.training.data import Prompt, read_prompts  # noqa: E402
from evenhand.training.loop import read_metrics  # noqa: E402
from evenhand.training.ppo import PPOTrainer, load_models, train_ppo  # noqa: E402
from evenhand.training.rollout import (  # noqa: E402
    SAMPLES,
    SampleLog,
    roll_out,
)
from support.toy_training import Interruption, assert_same, interrupt_after  # noqa: E402

HERE = models.Machine("cpu", "float32")
WITHOUT_CRITIC = ("rloo", "grpo", "remax")
ONE_OF_THEM = ("grpo", *(pytest.param(name, marks=pytest.mark.training) for name in ("rloo", "remax")))
"""`make test` trains with one."""
ASKED = (Message("user", "w1"),)


def options(tiny: str, pairs: Path, reward: Path, out: Path, **changed: Any) -> PPOOptions:
    settings: dict[str, Any] = {"lr": 1e-3, "batch": 4, "steps": 4, "max_new_tokens": 6}
    settings |= {"mini_batch": None, "drift_limits": False}
    return PPOOptions(model=tiny, reward=str(reward), data=pairs, out=out, device="cpu", **{**settings, **changed})


def read_samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / SAMPLES).read_text().splitlines()]


@pytest.mark.training
@pytest.mark.parametrize("algorithm", WITHOUT_CRITIC)
def test_the_reward_rises_significantly(ending: str, pairs: Path, rewarding: Path, tmp_path: Path, algorithm: str):
    settings = {"algorithm": algorithm, "steps": 40, "batch": 8 if algorithm != "remax" else 32}
    settings |= {"max_new_tokens": 16}
    record = train_ppo(options(ending, pairs, rewarding, tmp_path / "out", **settings))

    lines = read_metrics(tmp_path / "out")
    first, last = (torch.tensor([line["reward"] for line in part]) for part in (lines[:8], lines[-8:]))
    error = float((first.var() / 8 + last.var() / 8).sqrt())
    assert float(last.mean() - first.mean()) > 4 * error
    assert record["results"]["held_out_reward_after"] > record["results"]["held_out_reward_before"] + 1
    assert lines[0]["kl"] == pytest.approx(0, abs=1e-5)
    assert not {"values", "value_loss"} & lines[0].keys()


@pytest.mark.training
@pytest.mark.parametrize("algorithm", WITHOUT_CRITIC)
@pytest.mark.parametrize("lora", [None, 4])
def test_interrupted_and_resumed_is_the_same_bit_for_bit(
    tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, algorithm: str, lora: int | None
):
    settings = {"algorithm": algorithm, "lora": lora, "save_every": 2, "sample_every": 1}
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "whole", **settings))

    with pytest.raises(Interruption):
        train_ppo(options(tiny, pairs, rewarding, tmp_path / "parts", **settings), observe=interrupt_after(3))
    assert len(read_samples(tmp_path / "parts")) == 3 * 4
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "parts", **settings), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert (tmp_path / "whole" / SAMPLES).read_bytes() == (tmp_path / "parts" / SAMPLES).read_bytes()


@pytest.mark.parametrize("algorithm", ONE_OF_THEM)
def test_no_critic_is_loaded(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, algorithm: str):
    given = options(tiny, pairs, rewarding, tmp_path / "out", algorithm=algorithm, save_every=2)
    loaded, _ = load_models(given, HERE)
    with pytest.raises(Interruption):
        train_ppo(given, observe=interrupt_after(2))

    assert loaded.critic is None
    _, tensors = checkpoints.newest(tmp_path / "out") or (0, {})
    assert tensors
    assert not [name for name in tensors if "critic" in name]


class Constant:
    """A reward that is the same for every answer."""

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        del prompts
        return [1.0] * len(answers)


@pytest.mark.parametrize("algorithm", ["grpo", pytest.param("rloo", marks=pytest.mark.training)])
def test_a_constant_reward_leaves_the_policy_alone(
    ending: str, pairs: Path, rewarding: Path, tmp_path: Path, algorithm: str
):
    def change(**settings: Any) -> float:
        """How far one step moves the weights of a policy that is not the reference any more."""
        given = options(ending, pairs, rewarding, tmp_path, algorithm=algorithm, **settings)
        loaded, chat = load_models(given, HERE)
        loaded = replace(loaded, reward=Constant())
        prompts = read_prompts(pairs / "pairs.train.jsonl")
        trainer = PPOTrainer(given, loaded, chat, prompts, HERE)
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in loaded.actor.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.01)
        before = [weight.clone() for weight in loaded.actor.parameters()]
        trainer.optimizer.begin(0)
        metrics = trainer.step(0)
        assert (metrics["informative"] > 0) == ("kl_in" in settings)
        return max((a - b).abs().max().item() for a, b in zip(before, loaded.actor.parameters(), strict=True))

    assert change() == 0
    assert change(kl_in="reward") > 0  # the KL of an answer is a sum, so the longer one pays more


class Wordy:
    """A reward that differs between answers: their length, and how often they say `w1`."""

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        del prompts
        return [answer.split().count("w1") / 4 + len(answer) / 100 for answer in answers]


@pytest.mark.parametrize("algorithm", ["rloo", pytest.param("remax", marks=pytest.mark.training)])
def test_a_truncated_answer_is_learned_from_by_its_own_reward(
    tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, algorithm: str
):
    given = options(tiny, pairs, rewarding, tmp_path, algorithm=algorithm, max_new_tokens=2)
    loaded, chat = load_models(given, HERE)
    trainer = PPOTrainer(given, replace(loaded, reward=Wordy()), chat, read_prompts(pairs / "pairs.train.jsonl"), HERE)
    trainer.optimizer.begin(0)

    metrics = trainer.step(0)

    assert metrics["missing_eos"] > 0.8
    assert metrics["informative"] > 0.5


@pytest.mark.parametrize(("temperature", "learns"), [(None, False), (1.0, True)])
def test_as_rldf_is_released_nothing_is_learned_unless_answers_are_sampled(
    tiny: str, pairs: Path, rewarding: Path, tmp_path: Path, temperature: float | None, learns: bool
):
    """The released trainer decodes answers and ReMax's baseline greedily, so that every advantage is 0."""
    released = {name: stages_of("released")["ppo"][name] for name in ("algorithm", "temperature", "kl_in", "gamma")}
    given = options(
        tiny, pairs, rewarding, tmp_path, **released | ({"temperature": temperature} if temperature else {})
    )
    loaded, chat = load_models(given, HERE)
    trainer = PPOTrainer(given, replace(loaded, reward=Wordy()), chat, read_prompts(pairs / "pairs.train.jsonl"), HERE)
    before = [each.detach().clone() for each in loaded.actor.parameters()]
    trainer.optimizer.begin(0)

    metrics = trainer.step(0)

    moved = any(not torch.equal(a, b) for a, b in zip(before, loaded.actor.parameters(), strict=True))
    assert (metrics["informative"] > 0, moved) == (learns, learns)


def test_every_prompt_of_a_batch_gets_its_answers(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    given = {"algorithm": "rloo", "answers": 3, "steps": 1, "temperature": 3.0}
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", **given))

    line = read_metrics(tmp_path / "out")[0]
    assert line["tokens"] == pytest.approx(line["length"] * 4 * 3)
    assert len({json.dumps(row["prompt"]) for row in read_samples(tmp_path / "out")}) == 4  # one answer of each


@pytest.mark.training
def test_micro_batches_change_nothing_but_rounding(ending: str, pairs: Path, rewarding: Path, tmp_path: Path):
    train_ppo(options(ending, pairs, rewarding, tmp_path / "whole", steps=2, algorithm="grpo"))
    train_ppo(options(ending, pairs, rewarding, tmp_path / "parts", steps=2, algorithm="grpo", micro_batch=5))

    whole, parts = (read_metrics(tmp_path / name) for name in ("whole", "parts"))
    for name in ("policy_loss", "clip_fraction", "grad_norm"):
        expected = [line[name] for line in whole]
        assert [line[name] for line in parts] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_without_a_temperature_an_answer_is_the_likeliest(tiny: str):
    policy = models.load_causal(tiny, HERE, trained=True)
    chat = models.load_chat(tiny, policy)

    rollout = roll_out(policy, chat, [ASKED] * 2, HERE, max_new_tokens=4, temperature=0)

    opening = list(chat.encode_prompt(ASKED, 4))
    expected: list[int] = []
    while len(expected) < rollout.answer[0].sum():
        expected.append(int(policy(torch.tensor([opening + expected])).logits[0, -1].argmax()))
    assert rollout.tokens[0].tolist() == rollout.tokens[1].tolist() == expected


def test_samples_are_kept_with_checkpoints_and_at_the_end(tiny: str, pairs: Path, rewarding: Path, tmp_path: Path):
    train_ppo(options(tiny, pairs, rewarding, tmp_path / "out", steps=5, save_every=2, batch=8))

    rows = read_samples(tmp_path / "out")
    assert [row["step"] for row in rows] == [2] * 4 + [4] * 4 + [5] * 4
    assert rows[0].keys() == {"step", "prompt", "answer", "reward", "kl"}
    assert rows[0]["prompt"][0]["role"] == "user"


def test_a_line_that_was_cut_short_goes(tmp_path: Path):
    SampleLog(tmp_path).write(1, [ASKED], ["é one"], [0.5], [0.0])
    with (tmp_path / SAMPLES).open("a") as file:
        file.write('{"step": 2, "pro')

    SampleLog(tmp_path).write(3, [ASKED], ["three"], [0.5], [0.0])

    assert [(row["step"], row["answer"]) for row in read_samples(tmp_path)] == [(1, "é one"), (3, "three")]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"algorithm": "reinforce"}, "algorithm must be one of ppo, rloo, grpo, remax"),
        ({"algorithm": "remax", "answers": 4}, "for rloo and grpo, not for remax"),
        ({"algorithm": "rloo", "answers": 1}, "needs 2 or more"),
        ({"algorithm": "grpo", "answers": 0}, "answers must be a whole number"),
        ({"algorithm": "rloo", "kl_in": "prompt"}, "kl-in must be one of loss, reward"),
        ({"sample_every": 0}, "sample-every must be a whole number"),
    ],
)
def test_bad_options_are_one_sentence(given: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        options("m", Path("p"), Path("r"), Path("o"), **given)
