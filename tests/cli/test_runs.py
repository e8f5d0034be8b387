"""`evenhand runs`: what is there, in which state, and what it found."""

import json
import re
from pathlib import Path

import pytest

from evenhand.runs.file import locked


@pytest.fixture
def several(cli, tmp_path: Path) -> None:
    cli("audit", "fake/A", "--limit", "8", "--out", "runs/first")
    stopped = ("run", "--model", "fake/B", "--limit", "8", "--no-cache", "--budget", "3 calls")
    cli(*stopped, "--out", "runs/deep/x")
    cli("run", "--model", "fake/nothing", "--limit", "8", "--out", "runs/failed")
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/run.sqlite").write_bytes(b"no database" * 1000)


@pytest.mark.usefixtures("several")
def test_every_run_has_its_state_and_a_damaged_one_stops_nothing(cli):
    result = cli("runs", "--json")

    assert result.code == 0
    found = {each["run"]: each for each in json.loads(result.out)}
    assert {name: each["state"] for name, each in found.items()} == {
        "runs/first": "complete",
        "runs/deep/x": "stopped at 3 of 8",
        "runs/failed": "failed",
        "runs/broken": "damaged",
    }
    verdict, _, values = found["runs/first"]["headline"].partition("Bias, ambiguous: ")
    assert re.match(r"(Found|Cannot tell|Nothing found|Measured): .+\. $", verdict)
    assert values
    assert found["runs/failed"]["headline"] is None
    assert (found["runs/deep/x"]["models"], found["runs/deep/x"]["methods"]) == (["fake/B"], ["default"])
    assert found["runs/first"]["cost"] == 0


@pytest.mark.usefixtures("several")
def test_the_table_names_runs_models_methods_and_dates(cli):
    shown = cli("runs").out

    for part in ("runs/first", "fake/B", "default", "stopped at 3 of 8", "damaged", "$0.00", "20"):
        assert part in shown


def test_a_run_in_progress_is_running(cli, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "runs/first")

    with locked(tmp_path / "runs/first"):
        (found,) = json.loads(cli("runs", "--json").out)

    assert found["state"] == "running"


def test_a_headline_of_an_earlier_state_is_not_shown(cli):
    arguments = ("audit", "fake/A", "--limit", "44", "--no-cache", "--out", "runs/first")
    cli(*arguments, "--budget", "20 calls")
    early = json.loads(cli("runs", "--json").out)[0]["headline"]
    cli("resume", "runs/first", "--budget", "90 calls")

    late = json.loads(cli("runs", "--json").out)[0]["headline"]

    assert early != late


def test_no_runs_is_no_fault(cli):
    result = cli("runs")

    assert (result.code, result.out) == (0, "There are no runs in runs.\n")


@pytest.mark.parametrize("command", [("runs", "list"), ("runs",), ("runs", "list", "--json"), ("ui",)])
@pytest.mark.parametrize(
    ("folder", "said"),
    [("nope", "There is no folder nope; name the folder of the runs."), ("t.txt", "t.txt is a file; name the folder")],
)
def test_a_folder_that_is_not_there_is_a_mistake(cli, command: tuple[str, ...], folder: str, said: str):
    Path("t.txt").write_text("text")

    result = cli(*command, folder)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"evenhand: {said}") and result.err.count("\n") == 1
    assert not Path("nope").exists()


def test_an_empty_folder_holds_no_runs(cli):
    Path("empty").mkdir()

    assert cli("runs", "list", "empty").out == "There are no runs in empty.\n"


def test_no_name_is_cut_in_a_narrow_terminal(cli, monkeypatch: pytest.MonkeyPatch):
    run, model = (
        "runs/the-baseline-of-the-release-candidate-2026-11-17",
        "fake/a-model-with-a-name-that-is-quite-long-v2",
    )
    cli("run", "--model", model, "--limit", "4", "--out", run)
    monkeypatch.setenv("COLUMNS", "40")

    shown = cli("runs").out

    assert run in shown
    assert model in shown
