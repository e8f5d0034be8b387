"""Training in other stacks: their own files know every name that is written, and rewards are those of ours."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.core.errors import UsageError
from evenhand.core.types import Message
from evenhand.training.stacks import ALGORITHMS, VERSIONS, export

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


CASES = [(to, name) for to, names in ALGORITHMS.items() for name in names]


@pytest.mark.parametrize(("to", "algorithm"), CASES)
def test_a_folder_has_all_that_its_command_names(pairs: Path, reward: Path, tmp_path: Path, to: str, algorithm: str):
    out = tmp_path / "out"
    names = export(
        pairs, out, to, model="owner/model", reward=None if algorithm == "dpo" else reward, algorithm=algorithm
    )

    assert "run.sh" in names
    assert ("reward.py" in names) == (algorithm != "dpo")
    words = " ".join(command(out))
    for path in re.findall(rf"{re.escape(str(out))}/[\w.]+", words):
        assert Path(path).exists() or path == f"{out}/model"


def test_what_a_stack_does_not_have_is_refused(pairs: Path, reward: Path, tmp_path: Path):
    out = tmp_path / "out"
    for to, how, words in [
        ("trl", {"algorithm": "ppo", "reward": reward}, "trl is exported with --algorithm grpo or rloo or dpo"),
        ("verl", {"algorithm": "dpo"}, "verl is exported with"),
        ("verl", {}, "needs a reward model"),
        ("trl", {"algorithm": "dpo", "reward": reward}, "remove --reward"),
        ("verl", {"reward": tmp_path / "nothing"}, "is no reward model"),
        ("slime", {}, "--to takes openrlhf, verl, trl"),
    ]:
        with pytest.raises(UsageError, match=words):
            export(pairs, out, to, model="owner/model", **how)
    assert not out.exists()


def test_the_reward_is_that_of_our_own_training(pairs: Path, tmp_path: Path):
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    from evenhand.training.options import RewardOptions
    from evenhand.training.reward import RewardModel, train_reward
    from support.tiny import make_model

    make_model(tmp_path / "tiny")
    options: dict[str, Any] = {"model": str(tmp_path / "tiny"), "data": pairs, "device": "cpu", "max_length": 64}
    train_reward(RewardOptions(out=tmp_path / "reward", steps=1, batch=4, ensemble=2, **options))
    export(pairs, tmp_path / "out", "trl", model=str(tmp_path / "tiny"), reward=tmp_path / "reward")
    spec = importlib.util.spec_from_file_location("exported_reward", tmp_path / "out" / "reward.py")
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
    info = {"messages": json.dumps(prompts[3])}
    assert exported.compute_score("evenhand", answers[3], "", info) == pytest.approx(expected[3], abs=1e-5)
    rendered = [f"<user> {each[0]['content']} <end> <assistant> " for each in prompts]
    queries = [f"{start}{answer} <end> " for start, answer in zip(rendered, answers, strict=True)]
    found = exported.reward_func(queries, rendered, [json.dumps(each) for each in prompts])
    assert found["rewards"].tolist() == pytest.approx(expected, abs=1e-5)


def wheel(name: str, folder: Path) -> zipfile.ZipFile:
    """The wheel of a stack, not installed."""
    pin = f"{name}=={VERSIONS[name]}"  # type: ignore[index]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder), pin]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{pin} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def read(archive: zipfile.ZipFile, ending: str) -> str:
    return archive.read(next(name for name in archive.namelist() if name.endswith(ending))).decode()


@pytest.mark.network
@pytest.mark.parametrize("algorithm", ALGORITHMS["openrlhf"])
def test_openrlhf_knows_every_flag(pairs: Path, reward: Path, tmp_path: Path, algorithm: str):
    export(pairs, tmp_path / "out", "openrlhf", model="owner/model", reward=reward, algorithm=algorithm)
    archive = wheel("openrlhf", tmp_path)
    source = read(archive, "openrlhf/cli/train_ppo_ray.py")
    known = set(re.findall(r'"--([\w.]+)"', source))
    for name in re.findall(r'f"--\{prefix\}\.([\w.]+)"', source):
        known |= {f"{prefix}.{name}" for prefix in ("actor", "critic")}

    flags = {word.removeprefix("--") for word in command(tmp_path / "out") if word.startswith("--")}

    assert flags
    assert flags <= known
    assert "self.reward_func = reward_module.reward_func" in read(archive, "openrlhf/utils/agent.py")
    assert "`reward_func(queries, prompts, labels)`" in read(archive, "openrlhf/utils/agent.py")


@pytest.mark.network
@pytest.mark.parametrize("algorithm", ALGORITHMS["verl"])
def test_verl_knows_every_setting(pairs: Path, reward: Path, tmp_path: Path, algorithm: str):
    export(pairs, tmp_path / "out", "verl", model="owner/model", reward=reward, algorithm=algorithm)
    archive = wheel("verl", tmp_path)
    known: Any = yaml.safe_load(read(archive, "verl/trainer/config/_generated_ppo_trainer.yaml"))
    settings = [word.partition("=")[0] for word in command(tmp_path / "out") if "=" in word]

    assert settings
    for setting in settings:
        place: Any = known
        for part in setting.split("."):
            assert part in place, setting
            place = place[part]
    calls = read(archive, "verl/workers/reward_manager/naive.py")
    assert all(f"{name}=" in calls for name in ("data_source", "solution_str", "ground_truth", "extra_info"))


@pytest.mark.clients
@pytest.mark.parametrize("algorithm", ["dpo", "grpo"])
def test_trl_trains_on_the_folder(pairs: Path, tmp_path: Path, algorithm: str):
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    from evenhand.training.options import RewardOptions
    from evenhand.training.reward import train_reward
    from support.tiny import make_model

    site = tmp_path / "site-packages"  # dill recognizes packages by this name
    pins = [f"trl=={VERSIONS['trl']}", "datasets>=5", "dill", "multiprocess", "xxhash"]
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
    export(pairs, tmp_path / "out", "trl", model=str(tmp_path / "tiny"), reward=made, algorithm=algorithm)
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
