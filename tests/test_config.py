"""The config files: what they set, which of them wins, and a sentence with file and line for every mistake."""

from pathlib import Path

import pytest

from evenhand.core.config import Config, read_config
from evenhand.core.errors import DataError
from evenhand.core.types import Price


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the user's file; the current folder is one of a project."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "evenhand").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "deep" / "down")
    return tmp_path / "home" / "evenhand" / "config.toml"


@pytest.fixture
def project(user: Path, tmp_path: Path) -> Path:
    del user
    return tmp_path / "project" / "evenhand.toml"


def test_without_files_nothing_is_set(user: Path):
    assert read_config() == Config()


def test_the_projects_file_is_found_upwards_and_wins(user: Path, project: Path):
    user.write_text('concurrency = 4\nbudget = "$5"\nprices."openai/a" = "1/2"\nprices."openai/b" = "3/4"\n')
    project.write_text('concurrency = 9\njudge = "openai/j"\nprices."openai/b" = "0.5/.6"\n')

    config = read_config()

    assert (config.defaults, config.judge) == ({"concurrency": 9, "budget": ("$5",)}, "openai/j")
    assert config.prices == {"openai/a": Price(1, 2), "openai/b": Price(0.5, 0.6)}
    assert config.sources["judge"] == project and config.sources["budget"] == user


def test_a_folder_that_may_not_be_entered_has_no_file(user: Path, project: Path, monkeypatch: pytest.MonkeyPatch):
    project.write_text('out = "mine"')
    is_file = Path.is_file
    assert read_config().out

    def closed(file: Path) -> bool:
        if file in (user, project):
            raise PermissionError(13, "Permission denied", str(file))
        return is_file(file)

    monkeypatch.setattr(Path, "is_file", closed)
    assert read_config().out is None


def test_a_provider_of_the_project_replaces_the_users_as_a_whole(user: Path, project: Path):
    user.write_text('[providers.vllm]\nbase_url = "http://mine/v1"\nkey = "MY_KEY"\n')
    project.write_text('[providers.vllm]\nbase_url = "http://theirs/v1"\n')

    provider = read_config().providers["vllm"]

    assert dict(provider.fields) == {"base_url": "http://theirs/v1"}
    assert provider.source.is_project and provider.source.path == project


def test_the_folder_of_runs_is_relative_to_the_project(project: Path):
    project.write_text('out = "results"\n')

    assert read_config().out == str(project.parent / "results")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[providers.a\n", "line 1: not valid TOML"),
        ("\nconcurency = 4\n", "line 2: there is no field named 'concurency'; did you mean concurrency"),
        ("# hi\nconcurrency = 0\n", "line 2: concurrency must be a whole number of at least 1"),
        ("budget = 5\n", "line 1: budget must be a text"),
        ('providers = "x"\n', "line 1: providers must be tables"),
        ('[prices]\n"openai/a" = "1"\n', "line 2: the price of openai/a must be INPUT/OUTPUT"),
        ("[provider.a]\n", "line 1: there is no field named 'provider'; did you mean providers"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(project: Path, text: str, words: str):
    project.write_text(text)

    with pytest.raises(DataError) as caught:
        read_config()

    assert str(caught.value).startswith(f"{project}, {words}")
    assert "\n" not in str(caught.value)
