"""Evenhand's command line as a user calls it, in this process."""

from pathlib import Path

import pytest

from evenhand.cli.main import entry


class Shell:
    """Runs `evenhand ARGS`; what it printed is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        self._monkeypatch.setattr("sys.argv", ["evenhand", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            entry()
        self.out, self.err = self._capsys.readouterr()
        return int(ended.value.code or 0)
