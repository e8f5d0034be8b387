"""`evenhand init`: files that the other commands accept as they are."""

import shlex
from pathlib import Path

import pytest
import yaml


def _gate(folder: Path) -> list[str]:
    job = yaml.safe_load((folder / ".github/workflows/evenhand.yml").read_text())["jobs"]["gate"]
    return shlex.split(job["steps"][-1]["run"])


@pytest.mark.parametrize("benchmark", ["bbq_builtin", "overrefusal", "stances"])
def test_the_gate_of_the_workflow_runs_as_it_is(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str):
    made = cli("init", "p", "--model", "fake/A", "--benchmark", benchmark, "--limit", "22")
    assert made.code == 0, made.err
    monkeypatch.chdir(tmp_path / "p")

    words = _gate(tmp_path / "p")
    assert words[0] == "evenhand"
    priced, result = cli(*words[1:], "--dry-run"), cli(*words[1:])

    assert priced.code == 0, priced.err
    assert result.code in (0, 5), result.err
    assert "Gate: " in result.out
    assert (tmp_path / "p/runs/gate/report.html").is_file()


def test_nothing_is_overwritten(cli, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text("mine")

    result = cli("init")

    assert result.code == 2
    assert "plan.yaml exists already" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    assert (tmp_path / "plan.yaml").read_text() == "mine"


def test_a_remote_model_gets_its_key_from_the_secrets(cli, tmp_path: Path):
    cli("init", "a", "--model", "openai/x")
    cli("init", "b")

    remote, local = ((tmp_path / name / ".github/workflows/evenhand.yml").read_text() for name in "ab")
    assert "OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}" in remote
    assert "secrets" not in local
    assert "pip install 'evenhand[local]' && evenhand models pull builtin" in local


def test_a_wrong_name_is_refused_before_anything_is_written(cli, tmp_path: Path):
    assert "bbq_builtin" in cli("init", "p", "--benchmark", "bbq_buildin").err
    assert not (tmp_path / "p").exists()
