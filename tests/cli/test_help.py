"""Help, the names of commands and options, and old names of both."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click
import pytest

from evenhand.cli.groups import SECTIONS, Command, Group
from evenhand.cli.main import main
from evenhand.core.version import versions


def _commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command)
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from _commands(found, (*path, name))


COMMANDS = dict(_commands())


def test_commands_are_grouped_under_headings(cli):
    out = cli("--help").out

    headings = re.findall(r"^(\w+):$", out, re.MULTILINE)
    assert headings == ["Options", "Measure", "Look", "Reduce", "Prepare", "More"]
    measure = out[out.index("Measure:") : out.index("Look:")]
    assert re.findall(r"^  (\w+) ", measure, re.MULTILINE)[:3] == ["audit", "compare", "gate"]
    assert re.search(r"^  train +\w", out[out.index("Reduce:") : out.index("Prepare:")], re.MULTILINE)


def test_help_imports_no_command():
    code = (
        "import sys; from evenhand.cli.main import main; main(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.startswith('evenhand.')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = {"evenhand.core", "evenhand.core.errors", "evenhand.cli", "evenhand.cli.groups", "evenhand.cli.main"}
    assert set(ast.literal_eval(done.stdout.splitlines()[-1])) == loaded


def test_options_are_shown_in_sections(cli):
    out = cli("audit", "--help-all").out

    assert re.findall(r"^([A-Z]\w+):$", out, re.MULTILINE) == ["Plan", "Model", "Method", "Cost", "Cluster", "Output"]
    assert out.index("Cost:") < out.index("--budget") < out.index("Output:") < out.index("--out")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_shows_all_its_options_and_an_example(command: click.Command):
    assert isinstance(command, Command | Group)
    context = click.Context(command, info_name="evenhand")
    context.meta["evenhand.help_all"] = True
    out = command.get_help(context)

    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.opts[0] in out
            assert param.help
    assert "evenhand " in out.partition("Usage: ")[2].partition("\n")[2]


def test_the_short_help_shows_what_most_people_need_and_names_the_whole(cli):
    short, whole = cli("audit", "--help").out, cli("audit", "--help-all").out

    assert "--limit" in short
    assert "--judge-pool" not in short
    assert "--help-all" in short
    assert "--judge-pool" in whole
    assert len(short.splitlines()) < 60


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_have_options(section: str):
    found = {getattr(param, "section", "Options") for command in COMMANDS.values() for param in command.params}

    assert section in found


@pytest.mark.parametrize("words", [("audit", "-m", "cot"), ("compare", "-m", "fake/A", "-m", "weigh:calls=3")])
def test_a_method_in_place_of_a_model_is_refused_with_the_option_for_it(cli, words: tuple[str, ...]):
    result = cli(*words)

    assert result.code == 2
    assert f"pass --method {words[-1]}." in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    "group", [(), ("train",), ("metrics",), ("annotate",), ("serve", "audit"), ("papers",), ("run",), ("list",)]
)
def test_a_bare_group_shows_its_help(cli, group: tuple[str, ...]):
    result = cli(*group)

    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: evenhand")
    assert result.out == cli(*group, "--help").out


def test_a_word_has_one_letter_and_a_letter_one_word_in_all_commands():
    options = [param for command in COMMANDS.values() for param in command.params if isinstance(param, click.Option)]
    letters = {word: {tuple(param.opts[1:]) for param in options if param.opts[0] == word} for word in _words(options)}

    assert {word: found for word, found in letters.items() if len(found) > 1} == {}
    given = [letter for found in letters.values() for (letter, *_) in found - {()}]
    assert len(given) == len(set(given))


def _words(options: list[click.Option]) -> set[str]:
    return {param.opts[0] for param in options}


@pytest.mark.parametrize("word", ["--judge", "--model", "--data", "--limit", "--out", "--seed", "--dry-run"])
def test_a_word_takes_the_same_kind_of_value_in_all_commands(word: str):
    options = [param for command in COMMANDS.values() for param in command.params if word in param.opts]

    assert len({isinstance(param, click.Option) and param.is_flag for param in options}) == 1


def test_judge_is_short_for_the_model_of_its_role(cli, tmp_path):
    plan = ("run", "--model", "fake/A", "--method", "stardtox", "--limit", "1")

    cli(*plan, "--judge", "fake/B", "--out", "short")
    cli(*plan, "--model", "judge=fake/B", "--out", "long")

    identities = [re.search(r"identity (\w+)", cli("run", "show", run).out) for run in ("short", "long")]
    assert identities[0]
    assert identities[0][0] == identities[1][0]
    assert "fake/B" in cli("run", "show", "short").out


def test_the_version_is_that_of_the_tree_without_installed_metadata():
    code = (
        "import importlib.metadata as m, sys\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.version = m.distribution = missing\n"
        "from evenhand.cli.main import main; main(['--version'], standalone_mode=False)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert re.fullmatch(r"evenhand, version \d+\.\d+\.\d+\S*\n", done.stdout)


def test_a_copy_of_the_source_alone_still_records_its_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("evenhand.core.version._PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr("evenhand.core.version.version", missing)

    assert versions()["evenhand"] == "unknown"
