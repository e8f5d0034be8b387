"""Checkpoints on disk, and folders of trainings that are found again."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import PlanError
from evenhand.training.options import DPOOptions, PPOOptions, RewardOptions, SFTOptions, StageOptions

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")

from evenhand.training import checkpoints, stage  # noqa: E402 - they need torch
from evenhand.training.loop import Optimizer, Schedule  # noqa: E402


def tensors(value: float) -> dict[str, Any]:
    return {"weight/a": torch.tensor([value])}


def value_of(folder: Path) -> tuple[int, float]:
    found = checkpoints.newest(folder)
    assert found is not None
    return found[0], float(found[1]["weight/a"])


def test_the_newest_is_found_and_two_are_kept(tmp_path: Path):
    for step in (1, 2, 10):
        checkpoints.save(tmp_path, step, tensors(step / 2))

    assert value_of(tmp_path) == (10, 5.0)
    assert len(list((tmp_path / checkpoints.FOLDER).iterdir())) == 2


def test_nothing_is_pickled(tmp_path: Path):
    checkpoints.save(tmp_path, 1, tensors(1))

    files = {path.suffix for path in (tmp_path / checkpoints.FOLDER).rglob("*") if path.is_file()}
    assert files == {".safetensors", ".json"}


@pytest.mark.parametrize("harm", ["truncated", "no json", "partial"])
def test_a_broken_checkpoint_is_passed_over(tmp_path: Path, harm: str):
    checkpoints.save(tmp_path, 1, tensors(1))
    checkpoints.save(tmp_path, 2, tensors(2))
    last = tmp_path / checkpoints.FOLDER / "step-00000002"
    if harm == "truncated":
        file = last / "state.safetensors"
        file.write_bytes(file.read_bytes()[:-2])
    elif harm == "no json":
        (last / "state.json").write_text("{")
    else:
        last.rename(last.with_suffix(".partial"))

    assert value_of(tmp_path) == (1, 1.0)


def test_an_interrupted_save_leaves_the_last_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkpoints.save(tmp_path, 1, tensors(1))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(tmp_path, 2, tensors(2))

    assert value_of(tmp_path) == (1, 1.0)


def test_the_learning_rate_rises_and_falls():
    shares = [Schedule(10, warmup=2).factor(step) for step in range(10)]

    assert shares == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert Schedule(10, warmup=2, decay="constant").factor(9) == 1
    cosine = [Schedule(10, warmup=2, decay="cosine").factor(step) for step in (2, 4, 6, 8)]
    assert cosine == pytest.approx([1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])


def test_by_default_it_rises_in_three_steps_of_a_hundred_and_in_none_if_so_asked():
    assert [Schedule(100).factor(step) for step in range(4)] == pytest.approx([1 / 3, 2 / 3, 1, 1])
    assert Schedule(100, warmup=0).factor(0) == 1


def test_a_warm_up_that_is_longer_than_the_training_never_reaches_the_rate():
    assert [Schedule(102, warmup=200).factor(step) for step in (0, 101)] == pytest.approx([1 / 200, 102 / 200])


@pytest.mark.parametrize("kind", [SFTOptions, RewardOptions, DPOOptions, PPOOptions])
def test_every_stage_takes_warm_up_and_decay_from_its_options(kind: type[StageOptions], tmp_path: Path):
    named = {"reward": "r"} if kind is PPOOptions else {}
    asked = kind(model="m", data=Path("d"), out=tmp_path, steps=8, warmup=4, lr_decay="cosine", **named)

    assert Schedule.of(asked, 100) == Schedule(8, 4, "cosine")


def test_weight_decay_shrinks_weights_that_nothing_moves():
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    weight.grad = torch.zeros(1)
    optimizer = Optimizer([({"a": weight}, 0.5)], Schedule(4, decay="constant"), weight_decay=0.1)
    optimizer.begin(0)
    optimizer.update()

    assert float(weight.detach()) == pytest.approx(2 * (1 - 0.5 * 0.1))


def options(out: Path, **changed: Any) -> SFTOptions:
    return SFTOptions(model="m", data=Path("d"), out=out, **changed)


def begin(given: SFTOptions, *, resume: bool, sums: dict[str, str] | None = None) -> bool:
    return stage.open_folder("sft", given, sums or {"a": "1"}, resume=resume)


def test_a_training_is_begun_once_and_then_resumed(tmp_path: Path):
    out = tmp_path / "out"
    assert not begin(options(out), resume=False)
    checkpoints.save(out, 1, tensors(1))

    with pytest.raises(PlanError, match="go on with --resume"):
        begin(options(out), resume=False)
    assert not begin(options(out), resume=True)
    stage.finish_folder(out, "done", {}, {})
    assert begin(options(out), resume=True)
    assert checkpoints.newest(out) is None


def test_a_training_that_has_nothing_to_lose_is_begun_anew(tmp_path: Path):
    begin(options(tmp_path / "out"), resume=False)

    assert not begin(options(tmp_path / "out", lr=1.0), resume=False)
    assert stage.read_record(tmp_path / "out")["options"]["lr"] == 1.0


def test_it_is_resumed_only_as_it_was_begun(tmp_path: Path):
    begin(options(tmp_path), resume=False)

    with pytest.raises(PlanError, match=r"began with lr = 2e-05, not 1\.0"):
        begin(options(tmp_path, lr=1.0), resume=True)
    with pytest.raises(PlanError, match="data has changed"):
        begin(options(tmp_path), resume=True, sums={"a": "2"})
    with pytest.raises(PlanError, match="a training of sft, not ppo"):
        stage.open_folder("ppo", options(tmp_path), {"a": "1"}, resume=True)


def test_it_is_resumed_with_less_memory(tmp_path: Path):
    begin(options(tmp_path, micro_batch=8), resume=False)

    assert not begin(options(tmp_path, micro_batch=4, gradient_checkpointing=True), resume=True)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")

    with pytest.raises(PlanError, match="not empty"):
        begin(options(tmp_path), resume=False)
