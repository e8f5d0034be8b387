"""Training in the workers of Ray Train: two processes on the CPU here, the same as by one, also if one is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.progress import Count, ignore
from evenhand.models.ray.replica import Failure
from evenhand.training.cluster import ProgressBoard, Workers, environment_of, placed
from support.ray_cluster import pids
from support.shell import Shell
from support.tiny import make_byte_model

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("ray", reason="needs pip install 'evenhand[ray]'")

from evenhand.core.progress import Listener  # noqa: E402
from evenhand.training.launch import make_verifiable, train_stage, train_verifiable  # noqa: E402
from evenhand.training.launch import train_recipe as train_recipe_on  # noqa: E402
from evenhand.training.options import SFTOptions  # noqa: E402
from evenhand.training.recipe import Recipe, train_recipe  # noqa: E402
from evenhand.training.sft import train_sft  # noqa: E402
from support.toy_training import assert_close  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # of a Ray that did not start in time
]
ROUNDING = 1e-4
"""A tenth of the learning rate: AdamW makes much of the rounding of gradients near 0."""
STEPS: dict[str, Any] = {"steps": 3, "lr": 1e-3, "batch": 5, "micro_batch": 2}


@pytest.fixture(scope="module")
def two_cores() -> Iterator[None]:
    """A Ray of this machine alone, for all tests of this file."""
    import ray

    from evenhand.models.ray.connect import connect

    connect()
    yield
    ray.shutdown()


@pytest.mark.processes
@pytest.mark.parametrize(("algorithm", "parallel"), [("ppo", "several_gpus"), ("dpo", "fsdp")])
def test_a_recipe_by_two_workers_is_that_by_one_process(
    two_cores: None, tiny: str, pairs: Path, tmp_path: Path, algorithm: str, parallel: str
):
    own = {"ppo": {"max_new_tokens": 4, "ppo_epochs": 2}, "dpo": {}, "sft": {}, "reward": {}}
    chosen = ("sft", "dpo") if algorithm == "dpo" else ("sft", "reward", "ppo")
    stages = {stage: {**STEPS, **own[stage]} for stage in chosen}
    recipes = [Recipe(tiny, pairs, tmp_path / name, {"device": "cpu"}, stages, algorithm) for name in ("one", "two")]
    train_recipe(recipes[0], resume=False, announce=lambda _: ignore)
    shown = Shown()

    records = train_recipe_on(recipes[1], listener=shown, workers=Workers(2, parallel, "cpu"))

    for stage in chosen:
        assert_close(tmp_path / "one" / stage, tmp_path / "two" / stage, tolerance=ROUNDING)
        assert records[stage]["processes"] == 2
    assert shown.stages == list(chosen)
    assert not list(tmp_path.glob(".*"))


class Shown(Listener):
    """Keeps what is shown, and may kill a worker once a step is reached."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.stages: list[str] = []
        self._kill_at = kill_at
        self.killed: list[int] = []

    def stage_began(self, name: str) -> Count:
        self.stages.append(name)
        return self._step

    def _step(self, done: int, total: int | None) -> None:
        if self._kill_at is not None and done >= self._kill_at and not self.killed:
            self.killed = [pids("RayTrainWorker")[-1]]
            os.kill(self.killed[0], signal.SIGKILL)


@pytest.mark.processes
def test_a_killed_worker_is_started_again_and_the_training_goes_on(
    two_cores: None, tiny: str, pairs: Path, tmp_path: Path
):
    options: dict[str, Any] = {**STEPS, "steps": 100, "save_every": 5, "model": tiny, "data": pairs, "device": "cpu"}
    train_sft(SFTOptions(out=tmp_path / "whole", **options))
    shown = Shown(kill_at=10)

    train_stage("sft", {**options, "out": tmp_path / "parts"}, listener=shown, workers=Workers(2, device="cpu"))

    assert shown.killed
    assert_close(tmp_path / "whole", tmp_path / "parts", tolerance=ROUNDING)


@pytest.mark.processes
def test_verifiable_training_by_two_workers_is_that_by_one_process(two_cores: None, tmp_path: Path):
    make_byte_model(tmp_path / "model")

    def options(out: str) -> Any:
        given = {"model": str(tmp_path / "model"), "out": tmp_path / out, "device": "cpu", "forms": ("letter",)}
        return make_verifiable(given, {"sft": {"lr": 1e-3}, "rl": {}}, smoke=True)

    one = train_verifiable(options("one"))
    two = train_verifiable(options("two"), workers=Workers(2, device="cpu"))

    for stage in ("sft", "rl"):
        assert_close(tmp_path / "one" / stage, tmp_path / "two" / stage, tolerance=ROUNDING)
    assert two["results"] == one["results"]


@pytest.mark.processes
def test_what_no_repetition_helps_is_one_sentence(
    two_cores: None, shell: Shell, tiny: str, pairs: Path, tmp_path: Path
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")

    code = shell("train", "sft", pairs, "-m", tiny, "-o", "out", "--device", "cpu", "--on", "ray", "--workers", "2")

    assert code == 2
    assert "out is not empty; choose another --out" in shell.err
    assert "Traceback" not in shell.err


def test_workers_without_ray_are_refused(shell: Shell, tiny: str, pairs: Path):
    assert shell("train", "sft", pairs, "-m", tiny, "-o", "out", "--workers", "2") == 2
    assert "add --on ray" in shell.err
    assert placed(None, None, None, "cpu") is None


def test_a_configuration_gives_the_variables_of_the_launcher():
    assert environment_of("several_gpus") == {}
    sharded = environment_of("fsdp")
    assert sharded["ACCELERATE_USE_FSDP"] == "true"
    assert (sharded["FSDP_VERSION"], sharded["FSDP_RESHARD_AFTER_FORWARD"]) == ("2", "true")
    assert environment_of("fsdp_zero2")["FSDP_RESHARD_AFTER_FORWARD"] == "false"


def test_workers_that_never_get_further_are_given_up():
    board = ProgressBoard()
    board.begin()
    board.tell("sft", 5, 10)
    for _ in range(3):
        assert board.begin()[1] is None
        board.tell("sft", 5, 10)  # where the checkpoint is
        board.fail(Failure("model", "RuntimeError: the connection was closed.\nmore"), is_final=False)
    starts, failure = board.begin()

    assert starts == 4
    assert failure is not None
    assert "died 3 times without a new step: RuntimeError: the connection was closed." in failure.text
