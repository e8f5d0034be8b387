"""The words of errors: arguments for Python, flags for the command line, and the command that installs an extra."""

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

import evenhand
from evenhand.core.errors import MissingExtraError, UsageError, in_python_words, python_words


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("pass --resume to go on with it, or another --out.", "pass resume=True to go on with it, or another out."),
        ("give its folder with --data FOLDER (or X)", "give its folder with data=FOLDER (or X)"),
        ("pass --model, e.g. --model local/builtin.", "pass model, e.g. model=local/builtin."),
        ("pass --model judge=SPEC.", "pass model=judge=SPEC."),
        ("raise --max-new-tokens.", "raise max_new_tokens."),
        ("run `evenhand run rescore r --scorer builtin`.", "run `evenhand run rescore r --scorer builtin`."),
        ("pass --no-cache or another --cache.", "pass cache=None or another cache."),
        ("nothing - at -- all", "nothing - at -- all"),
    ],
)
def test_flags_become_arguments(flags: str, arguments: str):
    assert in_python_words(flags) == arguments


def test_an_error_speaks_of_flags_until_it_reaches_python():
    with pytest.raises(UsageError, match="remove out") as caught, python_words():
        raise UsageError("remove --out")
    caught.value.names_arguments = False
    assert str(caught.value) == "remove --out"


def test_the_python_api_names_arguments(tmp_path: Path):
    plan = {"models": ["fake/A"], "limit": 2}
    evenhand.run(plan, tmp_path / "r")

    with pytest.raises(UsageError, match="pass resume=True to go on with it, or another out"):
        evenhand.run(plan, tmp_path / "r")
    with pytest.raises(UsageError, match="pass model, for example model=local/builtin"):
        evenhand.run({"limit": 2}, tmp_path / "s")


class Installed:
    """A distribution as an installer leaves it."""

    def __init__(self, source: object, installer: str) -> None:
        self._files = {"direct_url.json": json.dumps(source), "INSTALLER": installer}

    def read_text(self, name: str) -> str | None:
        return self._files[name]


VCS = {"url": "https://example.org/evenhand.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}


@pytest.mark.parametrize(
    ("source", "installer", "command"),
    [
        ({"url": "FOLDER", "dir_info": {"editable": True}}, "pip", "pip install -e 'FOLDER[hf]'"),
        ({"url": "FOLDER", "dir_info": {}}, "uv\n", "uv pip install 'FOLDER[hf]'"),
        (VCS, "pip", "pip install 'evenhand[hf] @ git+https://example.org/evenhand.git'"),
        ({"url": "file:///gone/evenhand.whl", "archive_info": {}}, "pip", "pip install 'evenhand[hf]'"),
    ],
)
def test_the_command_fits_how_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, object], installer: str, command: str
):
    if source["url"] == "FOLDER":
        source = {**source, "url": tmp_path.as_uri()}
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(source, installer))

    message = str(MissingExtraError("hf/ models", "hf"))

    assert message == f"For hf/ models, install the missing packages: {command.replace('FOLDER', str(tmp_path))}"


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/me/.local/pipx/venvs/evenhand", "pipx install --force"),
        ("/x/uv/tools/evenhand", "uv tool install --force"),
    ],
)
def test_tools_are_installed_again_as_tools(monkeypatch: pytest.MonkeyPatch, prefix: str, command: str):
    monkeypatch.setattr(sys, "prefix", prefix)

    assert f"{command} 'evenhand[hf]'" in str(MissingExtraError("hf models", "hf"))
