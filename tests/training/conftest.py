"""What tests of training share: a tiny model, separable pairs, a reward model of them, made once; a command line."""

from pathlib import Path

import pytest

from support.shell import Shell
from support.toy_training import ending_model, pairs_folder, tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def ending(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with a likelier end, so that most of its answers end."""
    return ending_model(tmp_path_factory.mktemp("ending"))


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs_folder(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def rewarding(tmp_path_factory: pytest.TempPathFactory, tiny: str, pairs: Path) -> Path:
    """A reward model that likes `sun` and dislikes `moon`."""
    from evenhand.training.options import RewardOptions
    from evenhand.training.reward import train_reward

    out = tmp_path_factory.mktemp("reward") / "model"
    train_reward(RewardOptions(model=tiny, data=pairs, out=out, lr=3e-3, epochs=10, device="cpu"))
    return out


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.delenv("EVENHAND_DEBUG", raising=False)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)
