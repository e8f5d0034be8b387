"""The recipe with other algorithms, and with the models measured at its end; through the command line."""

import json
import shutil
from pathlib import Path

import pytest

from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.studies.study import study
from support.shell import Shell

SMALL = (
    *("--device", "cpu", "--set", "sft.steps=2", "--set", "reward.steps=2"),
    *("--set", "ppo.steps=2", "--set", "ppo.max_new_tokens=4"),
)
BY_DPO = ("--device", "cpu", "--set", "sft.steps=2", "--set", "dpo.steps=2", "--algorithm", "dpo")
MEASURED = ("--evaluate", "--judge", "stub/judge", "--limit", "6")


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model stub/judge, which finds all answers alike."""
    ratings = json.dumps({"bias": 30, "communication": 60, "soundness": 70})
    model = FunctionModel(lambda _messages, _params: ratings, spec="stub/judge")
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: model)


@pytest.fixture
def folder(pairs: Path, tmp_path: Path) -> Path:
    """The pairs, with topics that are held out."""
    held_out = [{"id": f"t{i}", "bias": "age", "question": f"w{i} w{i + 1}"} for i in range(8)]
    whole = Path(shutil.copytree(pairs, tmp_path / "pairs"))
    (whole / "pairs.json").write_text(json.dumps({"format": "evenhand-pairs-1", "held_out": held_out}))
    return whole


@pytest.mark.usefixtures("judge")
def test_the_models_are_measured_before_between_and_after(shell: Shell, tiny: str, folder: Path):
    given = ("train", "recipe", folder, "--model", tiny, "--out", "age", *SMALL, *MEASURED)
    assert shell(*given) == 0, shell.err

    for benchmark in ("bbq_builtin", "opinions"):
        runs = [Path("age/evaluation") / benchmark / name for name in ("base", "sft", "ppo")]
        found = study(runs)
        assert [arm.label for arm in found.arms] == [f"hf/{tiny}", "hf/age/sft", "hf/age/ppo"]
        assert {arm.models["base"] for arm in found.arms} == {f"hf/{tiny}", "hf/age/sft", "hf/age/ppo"}
        assert {sum(arm.statuses.values()) for arm in found.arms} == {6}
        assert found.effects
        assert (runs[0].parent / "report.html").is_file()
    assert "Paired differences from" in shell.out
    assert "(BS)" in shell.out


@pytest.mark.usefixtures("judge")
def test_what_is_measured_already_is_kept(shell: Shell, tiny: str, folder: Path):
    given = ("train", "recipe", folder, "--model", tiny, "--out", "age", *BY_DPO)
    assert shell(*given) == 0, shell.err
    assert shell(*given, "--resume", *MEASURED) == 0, shell.err
    kept, lost = (Path("age/evaluation/opinions") / name for name in ("sft", "dpo"))
    before = (kept / "run.sqlite").stat().st_ino
    shutil.rmtree(lost)

    assert shell(*given, "--resume", *MEASURED) == 0, shell.err

    assert (kept / "run.sqlite").stat().st_ino == before
    assert (lost / "run.sqlite").is_file()
    assert shell(*given, "--resume", *MEASURED[:-1], "7") == 2  # another measurement than was begun
    assert "Traceback" not in shell.err


def test_a_recipe_by_dpo_has_no_reward_model(shell: Shell, tiny: str, pairs: Path):
    assert shell("train", "recipe", pairs, "--model", tiny, "--out", "age", *BY_DPO) == 0, shell.err

    assert "Use it as hf/age/dpo" in shell.out
    assert sorted(path.name for path in Path("age").iterdir()) == ["dpo", "sft"]
    assert json.loads(Path("age/dpo/training.json").read_text())["options"]["model"] == "age/sft"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(("--set", "ppo.algorithm=rloo", "--set", "ppo.answers=2"), marks=pytest.mark.training),
        ("--algorithm", "remax"),
    ],
)
def test_the_last_stage_may_be_a_relative_of_ppo(shell: Shell, tiny: str, pairs: Path, given: tuple[str, ...]):
    assert shell("train", "recipe", pairs, "--model", tiny, "--out", "age", *SMALL, *given) == 0, shell.err

    record = json.loads(Path("age/ppo/training.json").read_text())
    assert record["options"]["algorithm"] in ("rloo", "remax")
    assert "value_loss" not in Path("age/ppo/metrics.jsonl").read_text()
    assert "trained by R" in Path("age/ppo/README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--set", "ppo.algorithm=best"), "algorithm must be one of ppo, rloo, grpo, remax, not 'best'"),
        (("--set", "sft.model=other"), "should be STAGE.OPTION=VALUE"),
        (("--set", "ppo.reward=other"), "should be STAGE.OPTION=VALUE"),
        (("--set", "ppo.lr=1e-5", "--algorithm", "dpo"), "A recipe by dpo has no stage ppo; it has sft, dpo."),
        (("--judge", "fake/x"), "add --evaluate"),
        (("--evaluate",), "pairs.json"),
        (("--evaluate", "--data", "absent"), "absent"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_trained(
    shell: Shell, tiny: str, pairs: Path, arguments: tuple[str, ...], sentence: str
):
    assert shell("train", "recipe", pairs, "--model", tiny, "--out", "age", *arguments) == 2

    last = shell.err.splitlines()[-1]
    assert last.startswith("evenhand: ")
    assert sentence in last
    assert not Path("age").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--judge", "nobody"), "is not a model spec"),
        (("--judge", "hf/absent/in/deep"), "absent"),
        (("--limit", "0"), "limit"),
    ],
)
def test_what_cannot_be_measured_is_told_before_anything_is_trained(
    shell: Shell, tiny: str, folder: Path, arguments: tuple[str, ...], sentence: str
):
    assert shell("train", "recipe", folder, "--model", tiny, "--out", "age", "--evaluate", *arguments) == 2

    assert sentence in shell.err.splitlines()[-1]
    assert not Path("age").exists()


def test_one_file_holds_nothing_out_to_ask_about(shell: Shell, tiny: str, pairs: Path):
    file = pairs / "pairs.train.jsonl"

    assert shell("train", "recipe", file, "--model", tiny, "--out", "age", "--evaluate") == 2
    assert "must be a folder of `evenhand train pairs`" in shell.err


def test_several_processes_do_not_measure(shell: Shell, tiny: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert shell("train", "recipe", folder, "--model", tiny, "--out", "age", "--evaluate") == 2
    assert "Evaluation runs in one process" in shell.err
