"""Pairs → SFT → reward → PPO → hf/, through the command line, as a user would."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.core.types import Message, Params
from evenhand.models.base import ModelOptions
from evenhand.models.load import load_model
from evenhand.training import models
from support.shell import Shell

FAST = ("--device", "cpu", "--steps", "2", "--lr", "1e-3")
SMALL = ("--set", "sft.steps=2", "--set", "reward.steps=2", "--set", "ppo.steps=2", "--set", "ppo.max_new_tokens=4")


async def answer_of(folder: str) -> str:
    async with load_model(f"hf/{folder}", ModelOptions(extra={"device": "cpu"})) as model:
        return (await model.generate([Message("user", "w1 w2")], Params(temperature=1, seed=1, max_tokens=8))).text


def trained(shell: Shell, tiny: str, pairs: Path) -> None:
    """The three stages, one after the other."""
    assert shell("train", "sft", pairs, "--model", tiny, "--out", "sft", *FAST) == 0
    assert shell("train", "reward", pairs, "--model", "sft", "--out", "reward", *FAST) == 0


@pytest.mark.training
async def test_from_pairs_to_a_model_that_answers(shell: Shell, tiny: str, pairs: Path):
    trained(shell, tiny, pairs)
    assert "held out accuracy:" in shell.out

    code = shell("train", "ppo", pairs, "-m", "sft", "--reward", "reward", "-o", "ppo", *FAST, "--max-new-tokens", "4")

    assert code == 0
    assert "Use it as hf/ppo" in shell.out
    assert "held out reward after:" in shell.out
    assert not list(Path("ppo").rglob("*.bin")) + list(Path("ppo").rglob("*.pt"))  # noqa: ASYNC240 - a tiny folder
    assert isinstance(await answer_of("ppo"), str)


async def test_other_algorithms(shell: Shell, tiny: str, pairs: Path):
    trained(shell, tiny, pairs)
    short = ("--max-new-tokens", "4", "--algorithm", "rloo", "--answers", "2", "--sample-every", "1")

    assert shell("train", "ppo", pairs, "-m", "sft", "--reward", "reward", "-o", "rloo", *FAST, *short) == 0
    assert shell("train", "dpo", pairs, "-m", "sft", "-o", "dpo", *FAST, "--beta", "0.2") == 0

    assert "held out accuracy:" in shell.out
    assert "Use it as hf/dpo" in shell.out
    assert len(Path("rloo/samples.jsonl").read_text().splitlines()) == 2 * 4  # noqa: ASYNC240 - a tiny file
    for folder in ("rloo", "dpo"):
        assert isinstance(await answer_of(folder), str)


async def test_an_adapter_alone_answers_as_the_merged_model_does(shell: Shell, tiny: str, pairs: Path):
    given = ("train", "sft", pairs, "--model", tiny, *FAST, "--lora", "--lora-rank", "4", "--lr", "0.1")
    assert shell(*given, "--out", "merged") == 0
    assert shell(*given, "--out", "adapter", "--keep-adapter") == 0

    assert (Path("adapter") / models.ADAPTER).is_file()
    assert not (Path("adapter") / "model.safetensors").exists()
    assert await answer_of("adapter") == await answer_of("merged") != await answer_of(tiny)


@pytest.mark.training
def test_a_stage_can_begin_with_an_adapter(shell: Shell, tiny: str, pairs: Path):
    shell("train", "sft", pairs, "--model", tiny, *FAST, "--lora", "--keep-adapter", "--out", "adapter")

    assert shell("train", "reward", pairs, "--model", "adapter", *FAST, "--lora", "--out", "reward") == 0
    assert shell("train", "sft", pairs, "--model", "adapter", *FAST, "--out", "all_weights") == 0


def test_the_recipe_makes_all_stages_and_resumes_by_stage(shell: Shell, tiny: str, pairs: Path):
    given = ("train", "recipe", pairs, "--model", tiny, "--out", "age", "--device", "cpu", *SMALL)
    assert shell(*given) == 0
    assert "age/sft: sft done" in shell.out
    assert "Use it as hf/age/ppo" in shell.out
    before = Path("age/reward/model.safetensors").stat().st_mtime_ns

    shutil.rmtree("age/ppo")
    assert shell(*given) == 2
    assert "go on with --resume" in shell.err
    assert shell(*given, "--resume") == 0

    assert Path("age/reward/model.safetensors").stat().st_mtime_ns == before
    record = json.loads(Path("age/ppo/training.json").read_text())
    assert record["finished"]
    assert record["options"]["steps"] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sft", "absent", "-m", "m", "-o", "out"), "absent: There is no sft.train.jsonl here"),
        (("sft", "PAIRS", "-m", "absent.gguf", "-o", "out"), "There is no model folder or GGUF file"),
        (("ppo", "PAIRS", "-m", "TINY", "--reward", "TINY", "-o", "out"), "is not a reward model"),
        (("recipe", "PAIRS", "-m", "TINY", "-o", "out", "--set", "ppo.speed=9"), "should be STAGE.OPTION=VALUE"),
        (("recipe", "PAIRS", "-m", "TINY", "-o", "out", "--set", "sft.batch=many"), "batch must be a whole number"),
        (("sft", "PAIRS", "-m", "TINY", "-o", "out", "--steps", "0"), "'--steps': 0 is not in the range x>0"),
        (("sft", "PAIRS", "-m", "TINY", "-o", "out", "--keep-adapter"), "only with --lora"),
    ],
)
def test_bad_input_is_one_sentence(shell: Shell, tiny: str, pairs: Path, arguments: tuple[str, ...], sentence: str):
    places = {"PAIRS": str(pairs), "TINY": tiny}

    code = shell("train", *(places.get(argument, argument) for argument in arguments))

    assert code == 2
    last = shell.err.splitlines()[-1]
    assert last.startswith("evenhand: ")
    assert sentence in last


def test_without_the_packages_the_pip_line_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    assert shell("train", "sft", "d", "-m", "m", "-o", "o") == 2
    assert "[train]'" in shell.err


def test_a_limit_that_truncates_many_answers_is_told(shell: Shell, tiny: str, pairs: Path, rewarding: Path):
    code = shell("train", "ppo", pairs, "-m", tiny, "--reward", rewarding, "-o", "ppo", *FAST, "--max-new-tokens", "2")

    assert code == 0
    assert "of the answers do not end within 2 tokens before anything is trained" in shell.err
    assert "--max-new-tokens 4" in shell.err
    assert "do not end within 2 tokens" in Path("ppo/README.md").read_text()
    assert json.loads(Path("ppo/training.json").read_text())["results"]["reference_unfinished"] > 0.5
