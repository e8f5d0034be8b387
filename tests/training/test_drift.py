"""Limits of how far answers may drift from the reference's, and which checkpoint is kept."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.types import Unscored
from evenhand.training.drift import Measures, breach, most_frequent_opening
from evenhand.training.options import PPOOptions, batch_count

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.scorers.base import SCORERS, Scorer, Scores  # noqa: E402 - they need torch
from evenhand.training import checkpoints  # noqa: E402
from evenhand.training.loop import batches, read_metrics  # noqa: E402
from evenhand.training.ppo import REFERENCE, train_ppo  # noqa: E402
from evenhand.training.reward import RewardModel  # noqa: E402
from support.toy_training import Interruption, assert_same, interrupt_after, tensors_of  # noqa: E402

AS_BEFORE = Measures(length=100, entropy=2.0, kl=0.0, openings=0.1, unfinished=0.1, reward=0.0)


def options(model: str, pairs: Path, reward: Path, out: Path, **changed: Any) -> PPOOptions:
    settings: dict[str, Any] = {"algorithm": "rloo", "lr": 3e-3, "batch": 8, "steps": 8, "save_every": 2}
    settings |= {"max_new_tokens": 16, "mini_batch": None, **changed}
    return PPOOptions(model=model, reward=str(reward), data=pairs, out=out, device="cpu", **settings)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, None),
        ({"length": 61.0, "entropy": 0.7, "kl": 0.29, "openings": 0.39, "unfinished": 0.29}, None),
        ({"length": 59.0}, "answers have 59.0 tokens, not 0.6 to 1.6 times the reference's 100.0"),
        ({"length": 161.0}, "answers have 161.0 tokens"),
        ({"entropy": 0.5}, "the entropy is 0.50 nats per token, below 0.3 times the reference's 2.00"),
        ({"kl": 0.31}, "the KL from the reference is 0.31 nats per token, above 0.3"),
        ({"openings": 0.5}, "50% of answers begin with the same words, more than the reference's 10% plus 30%"),
        ({"unfinished": 0.4}, "40% of answers are truncated, more than the reference's 10% plus 20%"),
    ],
)
def test_every_limit(changed: dict[str, float], sentence: str | None):
    limits = options("m", Path("p"), Path("r"), Path("o"))

    found = breach(replace(AS_BEFORE, **changed), AS_BEFORE, limits)

    assert found is None if sentence is None else sentence in str(found)


def test_openings_are_the_first_five_words():
    texts = [
        "The debate is about climate change.",
        "the debate  is about climate, says he",
        "The debate is about me",
        "",
    ]

    assert most_frequent_opening(texts) == 0.25
    assert most_frequent_opening([*texts, "The debate is about ME too"]) == 0.4
    assert most_frequent_opening(["", ""]) == 1


@pytest.mark.parametrize(
    ("rows", "sizes"), [(8, [4, 4]), (9, [4, 5]), (10, [4, 4, 2]), (1, [1]), (5, [5]), (6, [4, 2])]
)
def test_there_are_no_tiny_last_batches(rows: int, sizes: list[int]):
    found = batches(range(rows), 4)

    assert [len(each) for each in found] == sizes
    assert [row for each in found for row in each] == list(range(rows))
    assert batch_count(rows, 4) == len(sizes)


@pytest.fixture
def liking_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy reward that can be pleased in a wrong way."""

    def score(self: RewardModel, prompts: Any, answers: list[str]) -> list[float]:
        return [-float(len(answer.split())) for answer in answers]

    monkeypatch.setattr(RewardModel, "score", score)


@pytest.mark.usefixtures("liking_short")
def test_a_collapse_is_rolled_back(ending: str, pairs: Path, rewarding: Path, tmp_path: Path):
    out, saved = tmp_path / "out", dict[int, Any]()

    def remember(done: int, total: int) -> None:
        found = checkpoints.newest(out)
        assert found is not None
        saved[found[0]] = found[1]

    record = train_ppo(options(ending, pairs, rewarding, out, max_kl=99.0), observe=remember)

    last, kept = read_metrics(out)[-1], record["results"]["kept_step"]
    reference = json.loads((out / REFERENCE).read_text())["checked"]
    assert 0 < kept == last["step"] - 2 == last["rolled_back_to"] < 8
    before = next(line for line in read_metrics(out) if line["step"] == kept)
    assert last["check_length"] < 0.6 * reference["length"] <= before["check_length"]
    assert record["ended"].startswith(f"stopped at step {last['step']:.0f}, because answers have ")
    assert record["ended"].endswith(f"; the weights are those of step {kept}")
    assert record["ended"] in (out / "README.md").read_text()
    for name, tensor in tensors_of(out).items():
        assert torch.equal(tensor, saved[kept][f"weight/actor.{name.partition('/')[2]}"])


class Liking(Scorer):
    """Finds the fewest faults in answers of one length, and none to score in some."""

    name = "liking"
    version = "1"
    attributes = ("fault",)

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        assert contexts is not None
        return [
            Unscored("no words") if text.startswith("w") else {"fault": min(1.0, len(text.split()) / 20)}
            for text in texts
        ]


@pytest.fixture
def liking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORERS._things, "liking", Liking)


@pytest.mark.usefixtures("liking_short", "liking")
def test_the_checkpoint_that_a_scorer_likes_best_is_kept(
    ending: str, pairs: Path, rewarding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    longer = {"reward_range": 0.0, "drift_limits": False, "choose_by": "liking", "steps": 6}

    def like_long(self: RewardModel, prompts: Any, answers: list[str]) -> list[float]:
        return [float(len(answer.split())) for answer in answers]

    monkeypatch.setattr(RewardModel, "score", like_long)
    record = train_ppo(options(ending, pairs, rewarding, tmp_path / "out", **longer))

    before = json.loads((tmp_path / "out" / REFERENCE).read_text())["checked"]["score"]
    scores = {0: before, **{int(line["step"]): line["check_score"] for line in read_metrics(tmp_path / "out")[1::2]}}
    best = max(scores, key=lambda step: (scores[step], step))
    assert list(scores) == [0, 2, 4, 6]
    assert record["results"]["kept_step"] == best < 6
    assert record["results"]["held_out_score_after"] == scores[best]
    assert record["ended"] == f"done; the weights are those of step {best}"


@pytest.mark.training
@pytest.mark.usefixtures("liking_short", "liking")
def test_interrupted_and_resumed_is_the_same_bit_for_bit(ending: str, pairs: Path, rewarding: Path, tmp_path: Path):
    settings = {"choose_by": "liking", "kl_target": 0.05, "steps": 4, "algorithm": "ppo", "mini_batch": 3}
    settings |= {"drift_limits": False}
    train_ppo(options(ending, pairs, rewarding, tmp_path / "whole", **settings))

    with pytest.raises(Interruption):
        train_ppo(options(ending, pairs, rewarding, tmp_path / "parts", **settings), observe=interrupt_after(3))
    train_ppo(options(ending, pairs, rewarding, tmp_path / "parts", **settings), resume=True)

    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert (tmp_path / "whole" / REFERENCE).read_bytes() == (tmp_path / "parts" / REFERENCE).read_bytes()
    coefficients = [line["kl_coefficient"] for line in read_metrics(tmp_path / "whole")]
    assert coefficients[0] == 0.05
    assert len(set(coefficients)) == 4


def test_a_limit_that_is_too_low_is_told_before_the_first_step(
    ending: str, pairs: Path, rewarding: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    warned = list[int]()

    def observe(done: int, total: int) -> None:
        warned.append(len([each for each in caplog.messages if "do not end within 4 tokens" in each]))

    train_ppo(options(ending, pairs, rewarding, tmp_path / "out", steps=1, max_new_tokens=4), observe=observe)

    assert warned == [1, 1]


def test_the_best_checkpoint_stays(tmp_path: Path):
    for step, score in enumerate((0.5, 0.9, 0.9, 0.1, 0.2, 0.3)):
        checkpoints.save(tmp_path, step, {"weight/a": torch.tensor([step])}, score)

    kept = sorted(path.name for path in (tmp_path / checkpoints.FOLDER).iterdir())
    assert kept == ["step-00000002", "step-00000004", "step-00000005"]
    assert (checkpoints.best(tmp_path) or (None,))[0] == 2
    assert (checkpoints.newest(tmp_path) or (None,))[0] == 5


def test_a_scorer_that_is_not_there_is_told_before_anything_is_trained():
    with pytest.raises(UnknownNameError, match="did you mean opinion"):
        options("m", Path("p"), Path("r"), Path("o"), choose_by="opinon:openai/x")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"shortest": -1}, "shortest must be a number from 0 up"),
        ({"max_kl": 0}, "max-kl must be a number above 0"),
        ({"kl_target": 0}, "kl-target must be a number above 0"),
        ({"mini_batch": 0}, "mini-batch must be a whole number above 0"),
        ({"critic_warmup": -1}, "critic-warmup must be a whole number from 0 up"),
    ],
)
def test_bad_options_are_one_sentence(given: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        options("m", Path("p"), Path("r"), Path("o"), **given)
