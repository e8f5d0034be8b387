"""Code that a file names runs only if the user says so: call/ models in plans and stored runs, changed Python files."""

from pathlib import Path

import pytest

MODEL = "call/./team.py:answer"
TEAM = "open('was-run', 'w').close()\n\ndef answer(prompt):\n    return 'A'\n"
SMALL = ("--limit", "8", "--no-cache", "--out", "r")


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """The file that is there once the team's code was executed."""
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path / "was-run"


@pytest.mark.parametrize(
    "plan",
    [
        f"models: {MODEL}",
        f"models: [{{base: fake/A, judge: '{MODEL}'}}]",
        f"models: {{spec: {MODEL}, provider: call}}",
        "models: {spec: innocent/./team.py:answer, provider: call}",
        f"{{models: fake/A, scorers: ['judge:{MODEL}']}}",
    ],
)
def test_a_plan_file_that_names_code_needs_the_flag(cli, tmp_path: Path, team: Path, plan: str):
    (tmp_path / "plan.yaml").write_text(plan)

    result = cli("run", "--config", "plan.yaml", *SMALL)

    assert result.code == 2
    assert "plan.yaml names" in result.err and "--allow-call" in result.err
    assert not team.exists()


def test_with_the_flag_the_plan_runs(cli, tmp_path: Path, team: Path):
    (tmp_path / "plan.yaml").write_text(f"models: {MODEL}")

    assert cli("run", "--config", "plan.yaml", "--allow-call", *SMALL).code == 0
    assert team.exists()


def test_on_the_command_line_no_flag_is_needed(cli, team: Path):
    assert cli("run", "--model", MODEL, *SMALL).code == 0
    assert team.exists()


def test_a_judge_in_a_config_file_may_not_be_code(cli, tmp_path: Path, team: Path):
    (tmp_path / "evenhand.toml").write_text(f'judge = "{MODEL}"\n')

    result = cli("audit", "fake/A", "--method", "mabrf", *SMALL)

    assert result.code == 2
    assert "evenhand.toml names" in result.err
    assert not team.exists()


def test_a_provider_in_a_config_file_may_not_hide_code(cli, tmp_path: Path, team: Path):
    (tmp_path / "evenhand.toml").write_text('[providers.mine]\ntype = "call"\n')
    (tmp_path / "plan.yaml").write_text("models: mine/./team.py:answer")

    assert "--allow-call" in cli("run", "--config", "plan.yaml", *SMALL).err
    assert not team.exists()


def test_a_stored_run_of_code_is_resumed_with_the_flag(cli, team: Path):
    stopped = cli("run", "--model", MODEL, *SMALL, "--budget", "3 calls")
    assert "evenhand resume r --budget '6 calls' --allow-call\n" in stopped.out
    team.unlink()

    refused = cli("resume", "r", "--budget", "100 calls")

    assert refused.code == 2
    assert "The stored plan names" in refused.err
    assert cli("resume", "r", "--budget", "100 calls", "--allow-call").code == 0
