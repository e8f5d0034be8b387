"""The same training in TRL: the folder is complete, TRL trains on it, and its rewards are those of ours."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.core.errors import UsageError
from evenhand.core.types import Message
from evenhand.training.export import ALGORITHMS, TRL_VERSION, export

PAIRS = [
    {
        "prompt": [{"role": "user", "content": f"w{number} cat"}],
        "chosen": [{"role": "assistant", "content": "sun moon"}],
        "rejected": [{"role": "assistant", "content": "tree"}],
        "margin": 2.0,
    }
    for number in range(8)
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"pairs.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    return folder


@pytest.fixture
def reward(tmp_path: Path) -> Path:
    """A folder that looks like a reward model."""
    folder = tmp_path / "reward"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def command(out: Path) -> list[str]:
    """The words of the command in run.sh."""
    subprocess.run(["bash", "-n", str(out / "run.sh")], check=True)
    return shlex.split((out / "run.sh").read_text().partition("pipefail\n")[2].replace("\\\n", " "))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_folder_has_all_that_its_command_names(pairs: Path, reward: Path, tmp_path: Path, algorithm: str):
    out = tmp_path / "out"
    names = export(pairs, out, model="owner/model", reward=None if algorithm == "dpo" else reward, algorithm=algorithm)

    assert {"run.sh", "train.py", "config.yaml", "train.jsonl", "test.jsonl"} <= set(names)
    about = yaml.safe_load((out / "config.yaml").read_text())
    assert ("reward" in about) == (algorithm != "dpo")
    words = " ".join(command(out))
    found = re.findall(rf"{re.escape(str(out))}/[\w.]+", words)
    assert found
    assert all(Path(path).exists() for path in found)


def test_what_trl_does_not_have_is_refused(pairs: Path, reward: Path, tmp_path: Path):
    out = tmp_path / "out"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"algorithm": "ppo", "reward": reward}, "TRL is exported with --algorithm grpo or rloo or dpo"),
        ({}, "needs a reward model"),
        ({"algorithm": "dpo", "reward": reward}, "remove --reward"),
        ({"reward": tmp_path / "nothing"}, "is not a reward model"),
    ]
    for how, words in cases:
        with pytest.raises(UsageError, match=words):
            export(pairs, out, model="owner/model", **how)
    assert not out.exists()


def test_the_reward_is_that_of_our_own_training(pairs: Path, tmp_path: Path):
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    from evenhand.training.options import RewardOptions
    from evenhand.training.reward import RewardModel, train_reward
    from support.tiny import make_model

    make_model(tmp_path / "tiny")
    options: dict[str, Any] = {"model": str(tmp_path / "tiny"), "data": pairs, "device": "cpu", "max_length": 64}
    train_reward(RewardOptions(out=tmp_path / "reward", steps=1, batch=4, ensemble=2, **options))
    export(pairs, tmp_path / "out", model=str(tmp_path / "tiny"), reward=tmp_path / "reward")
    spec = importlib.util.spec_from_file_location("exported_train", tmp_path / "out" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)

    prompts = [[{"role": "user", "content": f"w{i} cat dog"}] for i in range(20)]
    answers = [f"sun w{i}" + " moon" * (i % 5) for i in range(20)]
    own = RewardModel.load(str(tmp_path / "reward"), max_length=64)
    expected = own.score([(Message("user", each[0]["content"]),) for each in prompts], answers)

    assert exported.reward(prompts, [[{"role": "assistant", "content": each}] for each in answers]) == pytest.approx(
        expected, abs=1e-5
    )
    assert exported.score(prompts, answers) == pytest.approx(expected, abs=1e-5)


@pytest.mark.clients
@pytest.mark.parametrize("algorithm", ["dpo", "grpo"])
def test_trl_trains_on_the_folder(pairs: Path, tmp_path: Path, algorithm: str):
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    from evenhand.training.options import RewardOptions
    from evenhand.training.reward import train_reward
    from support.tiny import make_model

    site = tmp_path / "site-packages"  # dill recognizes packages by this name
    pins = [f"trl=={TRL_VERSION}", "datasets>=5", "dill", "multiprocess", "xxhash"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), *pins]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"TRL cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    make_model(tmp_path / "tiny")
    made: Path | None = None
    if algorithm != "dpo":
        made = tmp_path / "reward"
        options: dict[str, Any] = {"model": str(tmp_path / "tiny"), "data": pairs, "device": "cpu", "max_length": 64}
        train_reward(RewardOptions(out=made, steps=1, batch=4, **options))
    export(pairs, tmp_path / "out", model=str(tmp_path / "tiny"), reward=made, algorithm=algorithm)
    file = tmp_path / "out" / "config.yaml"
    about = yaml.safe_load(file.read_text())
    about["config"] |= {"max_steps": 1, "gradient_accumulation_steps": 1, "use_cpu": True, "bf16": False}
    about["config"] |= {"max_length": 48} if algorithm == "dpo" else {"max_completion_length": 8}
    file.write_text(yaml.safe_dump(about))

    run = [sys.executable, str(tmp_path / "out" / "train.py")]
    done = subprocess.run(run, env=environment(site), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "model" / "config.json").is_file()


def environment(site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", "HF_HOME": str(site.parent / "hf")}
