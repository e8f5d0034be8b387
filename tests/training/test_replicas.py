"""Roll-outs by replicas on Ray: those of the trainer itself, or a bounded number of updates old."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.progress import Count, ignore
from evenhand.training.options import PPOOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("ray", reason="needs pip install 'evenhand[ray]'")

from ray.exceptions import RayActorError  # noqa: E402 - they need torch or Ray

from evenhand.training.loop import read_metrics  # noqa: E402 - they need torch
from evenhand.training.models import Machine  # noqa: E402
from evenhand.training.ppo import load_actor, train_ppo  # noqa: E402
from evenhand.training.replicas import Part, _joined  # noqa: E402
from evenhand.training.rollout import roll_out  # noqa: E402
from support.ray_cluster import pids  # noqa: E402
from support.toy_training import assert_close  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Of a Ray that did not start in time on a busy machine, before one did."""
SETTINGS: dict[str, Any] = {
    **{"steps": 4, "lr": 1e-3, "batch": 5, "mini_batch": 2, "ppo_epochs": 2, "max_new_tokens": 8, "device": "cpu"},
    **{"critic_warmup": 0, "drift_limits": False, "save_every": 2},
}


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A Ray of this machine alone, for all tests of this file."""
    import ray

    from evenhand.models.ray.connect import connect

    connect()
    yield
    ray.shutdown()


def options(out: Path, model: str, pairs: Path, reward: Path, **more: Any) -> PPOOptions:
    return PPOOptions(model=model, data=pairs, out=out, reward=str(reward), **{**SETTINGS, **more})


@pytest.mark.processes
@pytest.mark.parametrize(("replicas", "lora"), [(1, None), (2, 4)])
def test_without_staleness_the_training_is_that_without_replicas(
    local_ray: None, ending: str, pairs: Path, rewarding: Path, tmp_path: Path, replicas: int, lora: int | None
):
    train_ppo(options(tmp_path / "own", ending, pairs, rewarding, lora=lora))
    train_ppo(options(tmp_path / "by", ending, pairs, rewarding, lora=lora, rollout_replicas=replicas))

    assert {line.pop("staleness") for line in read_metrics(tmp_path / "by")} == {0}
    without_staleness(tmp_path / "by")
    assert_close(tmp_path / "own", tmp_path / "by")


def without_staleness(folder: Path) -> None:
    """Take the one metric away that the other training does not have."""
    import json

    lines = read_metrics(folder)
    for line in lines:
        del line["staleness"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.processes
def test_answers_are_at_most_as_old_as_allowed_and_a_killed_replica_changes_nothing(
    local_ray: None, ending: str, pairs: Path, rewarding: Path, tmp_path: Path
):
    def train(out: str, observe: Count = ignore) -> list[dict[str, float]]:
        chosen = options(tmp_path / out, ending, pairs, rewarding, rollout_replicas=1, staleness=2)
        train_ppo(chosen, observe=observe)
        return read_metrics(tmp_path / out)

    def kill(done: int, total: int | None) -> None:
        if done == 1:
            os.kill(pids("RolloutReplica")[0], signal.SIGKILL)

    whole, killed = train("whole"), train("killed", kill)

    assert [line["staleness"] for line in whole] == [0, 1, 2, 2]
    assert [line["reward"] for line in killed] == [line["reward"] for line in whole]


class _InProcess:
    """Ray's actors in this process: every call is done at once. Actors die as often as `deaths` says."""

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0}

    available_resources = cluster_resources

    def remote(self, actor: Any) -> Any:
        def start(*arguments: Any) -> Any:
            made = actor(*arguments)
            return SimpleNamespace(answer=SimpleNamespace(remote=made.answer))

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def put(self, value: dict[str, Any]) -> dict[str, Any]:
        return {name: tensor.clone() for name, tensor in value.items()}

    def get(self, promise: Any) -> Any:
        if self.deaths:
            self.deaths -= 1
            raise RayActorError
        return promise

    def kill(self, actor: Any, no_restart: bool) -> None:
        pass


@pytest.fixture(scope="module")
def own(ending: str, pairs: Path, rewarding: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training without replicas."""
    out = tmp_path_factory.mktemp("own") / "out"
    train_ppo(options(out, ending, pairs, rewarding))
    return out


def test_replicas_in_this_process_give_the_training_without_them(
    monkeypatch: pytest.MonkeyPatch, ending: str, pairs: Path, rewarding: Path, tmp_path: Path, own: Path
):
    monkeypatch.setattr("evenhand.training.replicas.connect", lambda: _InProcess(deaths=2))
    train_ppo(options(tmp_path / "by", ending, pairs, rewarding, rollout_replicas=2))

    without_staleness(tmp_path / "by")
    assert_close(own, tmp_path / "by")


@pytest.mark.training
def test_replicas_of_adapters_in_this_process_give_the_training_without_them(
    monkeypatch: pytest.MonkeyPatch, ending: str, pairs: Path, rewarding: Path, tmp_path: Path
):
    monkeypatch.setattr("evenhand.training.replicas.connect", lambda: _InProcess(deaths=2))
    train_ppo(options(tmp_path / "own", ending, pairs, rewarding, lora=4))
    train_ppo(options(tmp_path / "by", ending, pairs, rewarding, lora=4, rollout_replicas=2))

    without_staleness(tmp_path / "by")
    assert_close(tmp_path / "own", tmp_path / "by")


def test_staleness_is_bounded_and_written_to_the_metrics(
    monkeypatch: pytest.MonkeyPatch, ending: str, pairs: Path, rewarding: Path, tmp_path: Path, own: Path
):
    monkeypatch.setattr("evenhand.training.replicas.connect", _InProcess)
    train_ppo(options(tmp_path / "by", ending, pairs, rewarding, rollout_replicas=2, staleness=2))

    lines, without = (read_metrics(folder) for folder in (tmp_path / "by", own))
    assert [line["staleness"] for line in lines] == [0, 1, 2, 2]
    assert lines[0]["reward"] == without[0]["reward"]
    assert lines[-1]["kl"] != without[-1]["kl"]


def test_answers_of_several_replicas_are_those_of_one(ending: str, pairs: Path, rewarding: Path, tmp_path: Path):
    from evenhand.training import data

    machine = Machine("cpu", "float32")
    policy, chat = load_actor(options(tmp_path / "out", ending, pairs, rewarding), machine)
    prompts = data.read_prompts(pairs / "pairs.train.jsonl")[:7]

    def sampled(rows: list[int] | None) -> Any:
        torch.manual_seed(5)
        return roll_out(policy, chat, prompts, machine, max_new_tokens=12, rows=rows)

    whole, state = sampled(None), torch.get_rng_state()
    parts: list[Part] = []
    shares = [list(range(place, 7, 3)) for place in range(3)]
    for rows in shares:
        found = sampled(rows)
        parts.append(Part(found, torch.get_rng_state(), found.answer.shape[1]))
    joined = _joined(parts, shares, chat.tokenizer.pad_token_id)

    assert joined.texts == whole.texts
    assert joined.ended == whole.ended
    for name in ("ids", "mask", "answer"):
        assert torch.equal(getattr(joined, name), getattr(whole, name))
    torch.testing.assert_close(joined.logprobs, whole.logprobs)
    assert torch.equal(max(parts, key=lambda part: part.steps).random_state, state)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"staleness": 1}, "add --rollout-replicas"),
        ({"staleness": -1, "rollout_replicas": 1}, "from 0 to 16"),
        ({"rollout_replicas": 0}, "rollout-replicas"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, given: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        options(tmp_path, "model", tmp_path, tmp_path, **given)
