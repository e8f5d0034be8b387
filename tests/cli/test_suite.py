"""`evenhand suite`: one page on many areas; what is missing is named; resumed and forecast as a whole."""

import json
from pathlib import Path

import pytest

from evenhand.core.types import Usage
from evenhand.studies.results import Verdict
from evenhand.suite import SUITES, AreaResult, SuiteResult, finding_of, read_suite

SMALL = """
areas:
  - area: Stereotypes in answers
    asks: By stereotype?
    runs:
      - {benchmark: bbq, limit: 11}
      - {benchmark: bbq_builtin, limit: 11}
  - area: Reading
    asks: Can it read?
    runs:
      - {benchmark: bbq_builtin, limit: 22}
  - area: Decisions
    asks: By race?
    runs:
      - {benchmark: decisions}
  - area: Something else
    asks: Else?
    runs:
      - {benchmark: not_there}
  - area: Opinions
    asks: Free answers?
    needs_judge: true
    runs:
      - {benchmark: opinions, limit: 1}
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "small.yaml").write_text(SMALL)
    return str(tmp_path / "small.yaml")


def test_one_page_names_what_was_found_and_what_is_missing(cli, small: str, tmp_path: Path):
    result = cli("suite", small, "--model", "fake/A", "--out", "suite")

    assert result.code == 0, result.err
    assert "Stereotypes in answers" in result.out
    assert "11 samples" in result.out
    assert "In all: " in result.out
    assert "Decisions (no data: evenhand data pull discrimeval)" in result.out
    assert "Something else (no benchmark not_there is installed)" in result.out
    assert "Opinions (needs a judge: --judge SPEC)" in result.out
    assert (tmp_path / "suite/stereotypes-in-answers/report.html").is_file()
    page = json.loads((tmp_path / "suite/suite.json").read_text())
    assert page["suite"] == "small" and "Suite small: fake/A" in result.out
    assert " of 2 areas (3 not measured): " in result.out
    assert [row["benchmark"] for row in page["areas"]] == ["bbq_builtin", "bbq_builtin"]
    assert len(page["not_measured"]) == 3
    html = (tmp_path / "suite/suite.html").read_text()
    assert '<a href="stereotypes-in-answers/report.html">Stereotypes in answers</a>' in html
    assert "no benchmark not_there is installed" in html
    assert all(row["found"] in html and "fake/A" not in row["found"] for row in page["areas"])


def test_a_judge_reads_only_where_one_is_needed(cli, small: str, tmp_path: Path):
    result = cli("suite", small, "--model", "fake/A", "--judge", "fake/B", "--dry-run")

    assert result.code == 0, result.err
    assert "opinions" in result.out
    assert "needs a judge" not in result.out


def test_a_budget_stops_it_and_resume_goes_on(cli, small: str):
    stopped = cli("suite", small, "--model", "fake/A", "--out", "suite", "--budget", "5 calls", "--no-cache")
    assert stopped.code == 3
    assert "Reading (not run: the budget ended before)" in stopped.out

    resumed = cli("resume", "suite", "--budget", "1000 calls")

    assert resumed.code == 0, resumed.err
    assert "Reading (not run" not in resumed.out
    assert "11 samples" in resumed.out


def test_a_dry_run_calls_nothing_and_names_what_is_missing(cli, small: str, tmp_path: Path):
    result = cli("suite", small, "--model", "fake/A", "--dry-run", "--out", "suite")

    assert result.code == 0, result.err
    assert "Nothing was called" in result.out
    assert "Not measured:" in result.out
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "--model", "fake/A"), "There is no suite 'nothing'; name quick or full"),
        (("quick",), "No model is named"),
        (("quick", "--model", "fake/A", "--model", "fake/B"), "A suite measures one model"),
        (("bad.yaml", "--model", "fake/A"), "is not a suite"),
        (("list.yaml", "--model", "fake/A"), "list.yaml: is not a suite: it begins with a line 'areas:'."),
        (("absent.yaml", "--model", "fake/A"), "cannot be read"),
    ],
)
def test_mistakes_get_one_sentence(cli, tmp_path: Path, arguments: tuple[str, ...], said: str):
    (tmp_path / "bad.yaml").write_text("areas: [{area: 1}]")
    (tmp_path / "list.yaml").write_text("- a\n")

    result = cli("suite", *arguments)

    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize("name", SUITES)
def test_every_area_of_a_suite_has_runs_or_a_reason(name: str):
    for area in read_suite(name).areas:
        assert bool(area.runs) != bool(area.missing), area.area


def row(area: str, verdict: Verdict) -> AreaResult:
    return AreaResult(area, "?", "toy", Path(area), "M", None, "9 samples", "Text.", "", Usage(), 1.0, verdict)


def test_an_area_that_could_not_be_measured_is_not_one_without_a_finding():
    rows = [row("Reading", "cannot tell"), row("Hiring", "nothing found"), row("Answers", "found")]

    text = finding_of(SuiteResult("quick", Path("suite"), rows, [], None, "fake/A")).text

    assert (
        "1 of 3 areas: “Answers”; nothing beyond chance in “Hiring”; undecided or not measurable in “Reading”" in text
    )


def test_a_letter_that_is_preferred_is_said_beside_the_finding(cli, small: str, tmp_path: Path):
    cli("suite", small, "--model", "fake/A", "--out", "suite")

    areas = json.loads((tmp_path / "suite/suite.json").read_text())["areas"]

    assert "it prefers one letter" in areas[1]["how_sure"]


@pytest.mark.controls
def test_controls_of_a_judge_do_not_take_the_budget_of_the_areas(cli, small: str, tmp_path: Path):
    """The controls of opinions take more than 100 calls; its one sample and the other areas take about 40."""
    suite = ("suite", small, "--model", "fake/A", "--judge", "fake/B", "--out", "suite", "--no-cache")

    stopped = cli(*suite, "--budget", "150 calls")

    assert stopped.code == 3
    assert "opinions is not run: the controls of its judge may take " in stopped.out
    assert "Opinions (not run: the budget ended before)" in stopped.out
    assert not (tmp_path / "suite/opinions").exists()
    assert cli("resume", "suite", "--budget", "2000 calls").code == 0
    assert (tmp_path / "suite/opinions").exists()


AREA = "  - {area: '%s', asks: '?', runs: [{benchmark: bbq_builtin, limit: 11}]}\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("areas: []\n", "areas: it needs at least 1"),
        ("areas:\n" + AREA % "Hiring" + AREA % "hiring!", "a name of its own with letters, not 'hiring!'"),
        ("areas:\n" + AREA % "???", "a name of its own with letters, not '???'"),
    ],
)
def test_a_suite_whose_areas_have_no_folders_of_their_own_is_refused_before_a_call(
    cli, tmp_path: Path, content: str, said: str
):
    (tmp_path / "own.yaml").write_text(content)

    result = cli("suite", "own.yaml", "--model", "fake/A", "--out", "suite")

    assert result.code == 2
    assert said in result.err
    assert not (tmp_path / "suite").exists()


def test_areas_are_named_in_any_script(cli, tmp_path: Path):
    (tmp_path / "own.yaml").write_text("areas:\n" + AREA % "偏見" + AREA % "就職", encoding="utf-8")

    assert cli("suite", "own.yaml", "--model", "fake/A", "--out", "suite").code == 0
    assert (tmp_path / "suite/偏見/report.html").is_file()
