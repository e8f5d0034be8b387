"""The command line as a user meets it: arguments in, exit code and text out."""

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
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["evenhand", *arguments])
        with pytest.raises(SystemExit) as ended:
            entry()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run
