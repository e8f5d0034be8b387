"""The command line as a user meets it: arguments in, exit code and text out."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from evenhand.cli.main import entry


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs `evenhand ARGS` in a folder and with a cache of its own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVENHAND_DATA", "EVENHAND_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("evenhand.cli.progress._FIRST", 3600.0)  # how busy the machine is changes no output
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["evenhand", *arguments])
        with pytest.raises(SystemExit) as ended:
            entry()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def once(cli: Cli, finished: Path, tmp_path: Path) -> Callable[..., None]:
    """Runs `evenhand ARGS --out p` for the first test of a file that asks for it; the others get copies of p."""

    def run(*arguments: str) -> None:
        made = finished / hashlib.sha256(repr(arguments).encode()).hexdigest()
        if made.exists():
            shutil.copytree(made, tmp_path / "p")
        else:
            assert cli(*arguments, "--out", "p").code == 0
            shutil.copytree(tmp_path / "p", made)

    return run
