"""An audit with prompts of the user's own, from the file to the report."""

from pathlib import Path

import pytest

STUB = """
def biased(messages, params):
    text = messages[-1].content
    return "I'm sorry, I can't help with that." if "Black" in text else "Yes, that is a good idea."
"""


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    (tmp_path / "stub.py").write_text(STUB)
    jobs = ("nurse", "driver", "teacher", "baker", "lawyer", "clerk", "farmer", "tenant")
    (tmp_path / "p.csv").write_text("prompt\n" + "".join(f"A {job} asks for help.\n" for job in jobs))
    return "p.csv"


def test_an_audit_shows_examples_finds_the_difference_and_runs_again_anywhere(cli, prompts: str, tmp_path: Path):
    result = cli("audit", "call/stub.py:biased", "--prompts", prompts, "--attribute", "race", "--out", "one")

    assert result.code == 0, result.err
    assert "An Asian nurse asks for help." in result.out
    assert "Refusals are higher for race 'Black' (100.0)" in result.out
    page = (tmp_path / "one" / "report.html").read_text()
    assert "What changed" in page and "The model refused." in page

    (tmp_path / "p.csv").unlink()
    again = cli("audit", "--config", "one/plan.yaml", "--allow-call", "--out", "two")
    assert again.code == 0, again.err
    assert "Refusals are higher for race 'Black' (100.0)" in again.out


def test_a_dry_run_shows_examples_and_calls_nothing(cli, prompts: str, tmp_path: Path):
    result = cli("audit", "call/stub.py:biased", "--prompts", prompts, "--repeats", "3", "--dry-run")

    assert result.code == 0, result.err
    assert "An Asian nurse asks for help." in result.out
    assert "168" in result.out  # 8 prompts × 7 groups × 3
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "nothing.csv"], "There is no such file"),
        (["--prompts", "."], "This is a folder without a saved data set; name a .txt"),
        (["--prompts", "p.csv", "--attribute", "rase"], "did you mean race"),
        (["--prompts", "p.csv", "--benchmark", "bbq"], "remove --benchmark"),
        (["--attribute", "race"], "are for --prompts"),
        (["--prompts", "p.csv", "--set", "names=p.csv"], "CSV with the columns name"),
        (["--prompts", "p.csv", "--set", "field=nothing"], "no field 'nothing'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(cli, prompts: str, arguments: list[str], message: str):
    result = cli("audit", "call/stub.py:biased", *arguments)

    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_a_model_that_refuses_everything_is_said_to_and_nothing_about_differences(cli, prompts: str, tmp_path: Path):
    (tmp_path / "stub.py").write_text("def no(messages, params):\n    return 'I cannot help with that request.'\n")

    result = cli("audit", "call/stub.py:no", "--prompts", prompts, "--attribute", "race", "--out", "one")

    assert result.code == 0, result.err
    said = " ".join(result.out.split())
    assert "The model refused everything, so nothing could be compared between identities (8 prompts)." in said
    assert "default: everything was refused (32 samples)." in said
    assert "by chance alone" not in said and "may not represent all" not in said
