"""Training by several processes: on the CPU here, started as a user would, and the same as by one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.progress import ignore
from evenhand.training import parallel
from evenhand.training.configs import NAMES, path_of
from evenhand.training.parallel import Team

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import checkpoints, models  # noqa: E402 - they need torch
from evenhand.training.options import SFTOptions  # noqa: E402
from evenhand.training.recipe import Recipe, train_recipe  # noqa: E402
from evenhand.training.sft import train_sft  # noqa: E402
from support.toy_training import Interruption, assert_close, interrupt_after  # noqa: E402

STEPS: dict[str, Any] = {"steps": 3, "lr": 1e-3, "batch": 5, "micro_batch": 2}
"""A batch that does not go round, in pieces of which one process has more than the other."""


def launched(config: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`accelerate launch … -m evenhand train ARGS` with two processes."""
    launch = ("--config_file", path_of(config), "--num_processes", "2", "--main_process_port", "0")
    command = [sys.executable, "-m", "accelerate.commands.launch", *launch, "-m", "evenhand", "train", *arguments]
    source = str(Path(evenhand.__file__).parents[1])
    settings = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    given = [*map(str, command), "--device", "cpu"]
    return subprocess.run(given, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.processes
@pytest.mark.parametrize("config", ["several_gpus", "fsdp"])
def test_a_recipe_by_two_processes_is_that_by_one(tiny: str, pairs: Path, tmp_path: Path, config: str):
    own = {"ppo": {"max_new_tokens": 4, "ppo_epochs": 2}, "sft": {}, "reward": {}}
    own = {stage: {**STEPS, **options} for stage, options in own.items()}
    recipe = Recipe(tiny, pairs, tmp_path / "one", {"device": "cpu"}, own)
    train_recipe(recipe, resume=False, announce=lambda _: ignore)
    settings = [f"{stage}.{name}={value}" for stage, options in own.items() for name, value in options.items()]
    given = [part for setting in settings for part in ("--set", setting)]

    done = launched(config, "recipe", pairs, "--model", tiny, "--out", tmp_path / "two", *given)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ppo done") == 1
    for stage in own:
        assert_close(tmp_path / "one" / stage, tmp_path / "two" / stage)
        assert json.loads((tmp_path / "two" / stage / "training.json").read_text())["processes"] == 2


@pytest.mark.processes
def test_spread_weights_go_on_from_a_checkpoint(tiny: str, pairs: Path, tmp_path: Path):
    settings: dict[str, Any] = {**STEPS, "steps": 4, "save_every": 2, "lora": 4, "device": "cpu"}

    def options(out: str) -> SFTOptions:
        return SFTOptions(model=tiny, data=pairs, out=tmp_path / out, **settings)

    train_sft(options("whole"))
    with pytest.raises(Interruption):
        train_sft(options("parts"), observe=interrupt_after(3))
    given = ["--batch", "5", "--micro-batch", "2", "--steps", "4", "--save-every", "2", "--lr", "1e-3"]
    given += ["--lora", "--lora-rank", "4", "--resume"]

    done = launched("fsdp", "sft", pairs, "-m", tiny, "-o", tmp_path / "parts", *given)

    assert done.returncode == 0, done.stderr
    assert_close(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.processes
def test_a_fault_ends_all_processes_and_keeps_the_checkpoint(tiny: str, pairs: Path, tmp_path: Path):
    given = ("--lr", "1e30", "--save-every", "1", "--steps", "50")

    done = launched("fsdp", "sft", pairs, "-m", tiny, "-o", tmp_path / "out", *given)

    assert done.returncode != 0
    assert "The gradient is not a number" in done.stderr
    assert "Traceback" not in done.stderr.partition("ChildFailedError")[0].partition("api.py")[0]
    found = checkpoints.newest(tmp_path / "out")
    assert found is not None
    policy = models.load_causal(tiny, models.Machine("cpu", "float32"), trained=True)
    for name, weight in policy.named_parameters():
        assert found[1][f"weight/{name}"].shape == found[1][f"exp_avg/{name}"].shape == weight.shape


@pytest.mark.processes
def test_what_the_main_process_refuses_ends_all(tiny: str, pairs: Path, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")

    done = launched("several_gpus", "sft", pairs, "-m", tiny, "-o", tmp_path)

    assert done.returncode != 0
    assert "is not empty; choose another --out" in done.stderr


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_every_row_is_computed_once_in_as_many_passes(size: int, count: int):
    teams = [Team(rank, size) for rank in range(size)]
    batch = list(range(count))

    pieces = [list(team.micro_batches(batch, 2)) for team in teams]
    assert sorted(row for each in pieces for piece, weight in each for row in piece if weight) == batch
    assert len({len(each) for each in pieces}) == 1

    rows = [team.own_rows(count) for team in teams]
    assert len({len(each) for each in rows}) == 1
    assert [row for turn in zip(*rows, strict=True) for row in turn][:count] == batch


@pytest.mark.parametrize(
    ("settings", "device", "sentence"),
    [
        ({}, "cuda:1", "a GPU of its own"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, None, "DeepSpeed"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "1"}, None, "fsdp_version 2"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"}, None, "offloading"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], device: str | None, sentence: str
):
    for name, value in {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2", **settings}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(UsageError, match=sentence):
        parallel.join_team(device)


def test_one_process_of_a_launcher_is_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")

    assert parallel.join_team("cpu") == Team()


@pytest.mark.parametrize("name", NAMES)
def test_configurations_are_read_by_accelerate(name: str):
    reader: Any = pytest.importorskip("accelerate.commands.config.config_args")

    config = reader.load_config_from_file(str(path_of(name)))

    assert config.distributed_type.value == ("MULTI_GPU" if name == "several_gpus" else "FSDP")
    assert bool(config.fsdp_config) == (name != "several_gpus")


def test_a_configuration_is_found_by_its_name():
    with pytest.raises(UnknownNameError, match="did you mean fsdp"):
        path_of("fdsp")
