"""rescore, and what compare, report and show make of it, from the command line."""

import json
import re
from pathlib import Path

import pytest

RUDE = "you are a stupid idiot, and I hate you"
TEXTS = ("-b", "realtoxicity_builtin", "--limit", "2", "--set", "completions=3", "--scorer", "builtin_b")
STARDTOX = ("--method", "default", "--method", "stardtox:performance=false,iterations=1")


@pytest.fixture
def run(cli) -> str:
    """A run of texts: `default` and StarDTox, whose revisions do not help."""
    cli("run", "--model", f"fake/{RUDE}", *TEXTS, *STARDTOX, "--out", "r")
    return "r"


def test_rescore_prints_means_per_arm_and_the_agreement(cli, run: str):
    result = cli("run", "rescore", run, "--scorer", "builtin")

    assert result.code == 0
    assert "builtin@2.4: 24 new scores, 0 texts without one" in result.out
    assert re.search(r"toxicity +0\.\d{3} +0\.\d{3}\s", result.out)
    assert "Agreement of builtin_b@2.4 and builtin@2.4" in result.out
    assert "Kappa" in result.out
    assert "Next: evenhand compare r --scorer builtin" in result.out


def test_a_second_time_there_is_nothing_left_to_score(cli, run: str):
    cli("run", "rescore", run, "-s", "builtin")

    assert "builtin@2.4: 0 new scores" in cli("run", "rescore", run, "-s", "builtin").out


def test_compare_and_report_use_the_scorer(cli, run: str, tmp_path: Path):
    cli("run", "rescore", run, "--scorer", "builtin")

    compared = cli("compare", run, "--scorer", "builtin")
    reported = cli("report", run, "--scorer", "builtin", "--iterations", "--out", "page.html")

    assert (compared.code, reported.code) == (0, 0)
    assert "iteration 1" not in compared.out
    assert "stardtox · iteration 1" in reported.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Scores are by builtin@2.4." in page
    assert "Do the scorers agree?" in page
    assert "By iteration" in page


def test_json_has_the_numbers_that_the_report_shows(cli, run: str):
    cli("run", "rescore", run, "--scorer", "builtin")

    def toxicity(*options: str) -> float:
        [shown] = json.loads(cli("compare", run, *options, "--json").out)["runs"]
        return shown["arms"][0]["metrics"][0]["value"]

    shown = cli("compare", run, "--scorer", "builtin").out

    assert f" {toxicity('--scorer', 'builtin'):.1f} [" in shown
    assert toxicity("--scorer", "builtin") != toxicity()


def test_json_has_the_comparison_of_two_runs(cli):
    for name in ("A", "B"):
        cli("run", "--model", f"fake/{name}", "--limit", "22", "--out", f"runs/{name}")

    found = json.loads(cli("compare", "runs/A", "runs/B", "--json").out)["comparison"]

    assert "fake/B" in found["verdicts"][0]
    assert {(each["before"], each["after"]) for each in found["differences"]} == {("fake/A", "fake/B")}
    assert {"accuracy_ambig", "bias_ambig"} <= {each["metric"] for each in found["differences"]}


def test_compare_of_runs_can_show_iterations(cli, run: str):
    assert "stardtox · iteration 1" in cli("compare", run, "--iterations").out


def test_scores_that_were_not_made_are_asked_for(cli, run: str):
    result = cli("report", run, "--scorer", "builtin")

    assert (result.code, result.out) == (2, "")
    assert "make them with `evenhand run rescore r --scorer builtin`" in result.err


def test_a_command_that_makes_scores_is_suggested_only_where_it_works(cli, run: str):
    wrong = cli("report", run, "--scorer", "bultin")
    options = cli("report", run, "--scorer", "judge:openai/m?base_url=http://localhost:1/v1&key=KEY")

    assert (wrong.code, options.code) == (2, 2)
    assert "did you mean builtin" in wrong.err and "rescore" not in wrong.err
    assert "`evenhand run rescore r --scorer 'judge:openai/m?base_url=http://localhost:1/v1&key=KEY'`" in options.err


def test_a_judge_that_gives_no_scores_ends_it_with_one_sentence(cli, run: str):
    result = cli("run", "rescore", run, "--scorer", "judge:fake/nonsense", "--no-cache")

    assert result.code == 2
    assert result.err.startswith("evenhand: judge:fake/nonsense does not work: ")
    assert result.err.count("\n") == 1
    assert "has no scores by" in cli("compare", run, "--scorer", "judge").err


def test_choices_are_refused_in_one_sentence(cli):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "c")

    results = [cli(*command, "c", "--scorer", "builtin") for command in (("run", "rescore"), ("report",), ("compare",))]

    assert [result.code for result in results] == [2, 2, 2]
    assert {result.err for result in results} == {
        "evenhand: Scorers rate texts, but the answers of bbq_builtin are choices; there is nothing to rescore.\n"
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "rescore", "nowhere", "--scorer", "builtin"), "nowhere holds no run"),
        (("run", "rescore", "r"), "Missing option '--scorer'"),
        (("run", "rescore", "r", "--scorer", "bultin"), "did you mean builtin"),
        (("run", "rescore", "r", "--scorer", "builtin:x"), "takes no argument"),
    ],
)
def test_bad_input_is_one_sentence(cli, run: str, arguments: tuple[str, ...], message: str):
    result = cli(*arguments)

    assert result.code == 2
    assert message in result.err
    assert not Path("nowhere").exists()


def test_show_tells_a_story_and_the_calls_when_asked(cli, run: str):
    sample = cli("run", "show", run, "--list").out.split()[0]

    story = cli("run", "show", run, sample).out.split("── stardtox")[1]
    turns = cli("run", "show", run, sample, "--turns").out.split("── stardtox")[1]

    parts = ["The first answer:", f"    {RUDE}", "✗ toxicity evaluator: It insults", "coordinator asks for a revision"]
    places = [story.index(part) for part in [*parts, "Revision 1:", "coordinator stops", "⇒ graded"]]
    assert places == sorted(places)
    assert "Continue the text below" not in story
    assert "Continue the text below" in turns
    assert "words [" not in story


def test_show_tells_what_a_method_without_critics_did(cli):
    cli("run", "--model", "fake/A", "--limit", "4", "--method", "self_debias_reprompt", "--out", "c")
    sample = cli("run", "show", "c", "--list").out.split()[0]

    story = cli("run", "show", "c", sample).out

    assert "The first answer:" in story
    assert "Revision 1:" in story
    assert "evaluator" not in story
