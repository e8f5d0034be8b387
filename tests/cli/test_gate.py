"""`evenhand gate`: limits, baselines, exit codes, and what CI reads."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evenhand.runs.parts import load_models

RUN = ("run", "--model", "fake/A", "--limit", "44")
ABSTAINS = r"""
import re

def abstain(prompt: str) -> str:
    found = re.findall(r"(?im)^\W*([ABC])\b.*(?:cannot|not |unknown|undetermined|can.t|no answer)", prompt)
    return found[-1] if found else "?"
"""
AGAINST = r"""
import re
from evenhand import BENCHMARKS
from evenhand.benchmarks.base import Selection

SAMPLES = {(each.context, each.prompt): each for each in BENCHMARKS.get("bbq_builtin")().samples(Selection())}

def against(prompt: str) -> str:
    context, question, shown = re.search(r"Passage: (.*?)\n\nQuestion: (.*?)\n\n(A\).*?)\n\n", prompt, re.S).groups()
    sample = SAMPLES[context, question]
    about = sample.metadata
    named = ({0, 1, 2} - {about["unknown"], about["target_loc"]}).pop()
    option = sample.choices[named if about["context_condition"] == "ambig" else sample.target]
    return {text: letter for letter, text in re.findall(r"(?m)^([ABC])\) (.*)$", shown)}[option]
"""
FAILS, PASSES, OPEN = "accuracy_disambig < 80", "coverage < 50", "|bias_ambig| > 10"


@pytest.fixture(autouse=True)
def _no_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("conditions", "more", "code", "word"),
    [
        ((PASSES,), (), 0, "passed"),
        ((PASSES, FAILS, OPEN), (), 5, "failed"),
        ((PASSES, OPEN), (), 6, "cannot tell"),
        ((PASSES, OPEN), ("--undecided", "pass"), 0, "cannot tell"),
    ],
)
def test_the_exit_code_says_what_the_intervals_say(cli, once, conditions, more, code, word):
    once(*RUN)

    result = cli("gate", "p", *(part for each in conditions for part in ("--fail-if", each)), *more)

    assert result.code == code
    assert result.out.splitlines()[-1].startswith(f"Gate: {word}.")
    assert len(result.out.splitlines()) == len(conditions) + 1


def test_a_plan_is_run_and_then_held_to_the_limits(cli, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text("models: [fake/A]\nlimit: 44\n")

    result = cli("gate", "--config", "plan.yaml", "--fail-if", FAILS, "--out", "r")

    assert result.code == 5
    assert "failed: default: fails if accuracy_disambig < 80: 40.91 [22.13, 62.78], n = 22" in result.out
    assert (tmp_path / "r" / "report.html").is_file()


def test_a_dry_run_calls_nothing(cli, tmp_path: Path):
    assert cli("gate", "-m", "fake/A", "--fail-if", FAILS, "--dry-run", "--out", "r").code == 0
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fail-if", "bias_ambi > 1"), "did you mean bias_ambig"),
        (("--against", "b.json", "--tolerance", "bias_ambi=1"), "did you mean bias_ambig"),
        (("--against", "b.json", "--tolerance", "1"), "b.json: is not a baseline"),
        (("-b", "opinions", "--against", "b.json", "--tolerance", "length=1"), "No direction of length is worse"),
        (("-b", "opinions", "--against", "b.json", "--detect", "length=1"), "No direction of length is worse"),
        (("--fail-if", "accuracy_disambig < 300"), "accuracy_disambig goes from 0 to 100"),
        (("--fail-if", "bias_ambig > 1", "--junit", "."), "--junit names the checks, a file, not the folder ."),
        (("--fail-if", "bias_ambig > 1", "--summary", "."), "--summary names the table, a file, not the folder ."),
    ],
)
def test_mistakes_are_named_before_anything_runs(cli, tmp_path: Path, arguments, said):
    (tmp_path / "b.json").write_text("[]")

    result = cli("gate", "-m", "fake/A", *arguments, "--out", "r")

    assert result.code == 2
    assert said in result.err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("p",), "Give a limit"),
        ((), "Give a limit"),
        (("--fail-if", PASSES), "Name a stored run"),
        (("p", "--fail-if", PASSES, "--limit", "4"), "--limit is for a run to be made"),
        (("p", "--fail-if", PASSES, "--arm", "defalt"), "did you mean default"),
        (("p", "--fail-if", "accuracy_disambig[nobody] < 1"), "no group named 'nobody'"),
        (("p", "--tolerance", "1"), "need a baseline: --against FILE"),
        (("p", "--fail-if", PASSES, "--detect", "1"), "need a baseline: --against FILE"),
        (("p", "--against", "b.json", "--detect", "much"), "--detect takes N"),
        (
            ("p", "--against", "missing.json", "--tolerance", "1"),
            "missing.json: cannot be read (No such file or directory); make one: `evenhand",
        ),
        (("p", "--against", "b.json", "--tolerance", "-1"), "with N from 0"),
        (("p", "--against", "b.json", "--tolerance", "nothing=1"), "no metric named 'nothing'"),
        (("missing", "--fail-if", PASSES), "missing"),
    ],
)
def test_bad_input_gets_one_sentence(cli, once, tmp_path: Path, arguments, said):
    once(*RUN)
    (tmp_path / "b.json").write_text(cli("compare", "p", "--json").out)

    result = cli("gate", *arguments)

    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_run_that_was_stopped_passes_no_gate(cli):
    cli(*RUN, "--budget", "10 calls", "--no-cache", "--out", "r")

    result = cli("gate", "r", "--fail-if", PASSES, "--undecided", "pass")

    assert result.code == 3
    assert "samples have not been run" in result.out


def test_a_run_without_results_is_no_score(cli):
    """No answer can be read; `f1 < 50` is then neither true nor false."""
    result = cli("gate", "-m", "fake/A", "-b", "squad_builtin", "-n", "4", "--fail-if", "f1 < 50", "--out", "r")

    assert result.code == 4
    assert result.out.splitlines()[-2:] == [
        "cannot tell: default: fails if f1 < 50: no sample has a result",
        "Gate: cannot tell. 1 of 1 check could not be decided: f1 < 50, no sample has a result.",
    ]


def test_a_gate_holds_a_run_to_a_baseline(cli, once, tmp_path: Path):
    once(*RUN)
    (tmp_path / "same.json").write_text(cli("compare", "p", "--json").out)
    better = json.loads((tmp_path / "same.json").read_text())
    for metric in better["runs"][0]["arms"][0]["metrics"]:
        if metric["metric"] == "accuracy_disambig":
            metric |= {"value": 99.0, "low": 98.0, "high": 100.0}
    (tmp_path / "better.json").write_text(json.dumps(better))

    wide = cli("gate", "p", "--against", "same.json", "--tolerance", "60")
    narrow = cli("gate", "p", "--against", "same.json", "--tolerance", "bias_ambig=1")
    worse = cli("gate", "p", "--against", "better.json", "--tolerance", "60", "--tolerance", "accuracy_disambig=20")

    assert [wide.code, narrow.code, worse.code] == [0, 6, 5]
    assert len(narrow.out.splitlines()) == 2
    assert "--undecided pass" in narrow.err
    assert "failed: default: fails if accuracy_disambig is worse than the baseline by more than 20" in worse.out


def test_an_improvement_is_called_better_and_has_no_minus(cli, once, tmp_path: Path):
    once(*RUN)
    poor = json.loads(cli("compare", "p", "--json").out)
    for metric in poor["runs"][0]["arms"][0]["metrics"]:
        if metric["metric"] == "accuracy_disambig":
            metric |= {"value": 1.0, "low": 0.0, "high": 2.0}
    (tmp_path / "poor.json").write_text(json.dumps(poor))

    said = cli("gate", "p", "--against", "poor.json", "--tolerance", "accuracy_disambig=0").out

    assert re.search(r"fails if accuracy_disambig is worse than the baseline: better by \d+", said)


def test_what_did_not_change_is_called_neither_better_nor_worse(cli, once, tmp_path: Path):
    once(*RUN)
    (tmp_path / "same.json").write_text(cli("compare", "p", "--json").out)

    said = cli("gate", "p", "--against", "same.json").out

    assert "is worse than the baseline: unchanged, 0 [" in said
    assert "worse by" not in said


def test_a_baseline_that_was_made_otherwise_is_refused_before_the_first_call(cli, once, tmp_path: Path):
    once(*RUN)
    (tmp_path / "b.json").write_text(cli("compare", "p", "--json").out)
    gate = ("gate", "-m", "fake/A", "-n", "44", "--against", "b.json", "--undecided", "pass")

    others = [
        cli(*gate, *more, "--out", "r")
        for more in (("--orders", "2"), ("--set", "categories=Age"), ("--method", "default", "--method", "cot"))
    ]

    assert [each.code for each in others] == [2, 2, 2]
    assert ["other orders" in others[0].err, "other categories" in others[1].err] == [True, True]
    assert "no arm in the baseline named 'cot'; known: default" in others[2].err
    assert not (tmp_path / "r").exists()
    assert cli(*gate, "--out", "r").code == 0


def test_a_baseline_is_compared_with_the_models_that_are_loaded_for_the_run(cli, once, tmp_path: Path, monkeypatch):
    once(*RUN)
    (tmp_path / "b.json").write_text(cli("compare", "p", "--json").out)
    loaded: list[Path] = []

    def load(plan, settings, cache, budget, directory):
        loaded.append(directory)
        return load_models(plan, settings, cache, budget, directory)

    monkeypatch.setattr("evenhand.runs.runner.load_models", load)

    assert cli("gate", "-m", "fake/A", "-n", "44", "--against", "b.json", "--undecided", "pass", "--out", "r").code == 0
    assert len(loaded) == 1


def test_a_baseline_of_another_scorer_is_refused_before_the_first_call(cli, tmp_path: Path):
    texts = ("-m", "fake/hello there", "-b", "realtoxicity_builtin", "-n", "2", "--set", "completions=2")
    (tmp_path / "b.json").write_text(cli("audit", *texts, "--scorer", "builtin", "--json", "--out", "p").out)

    result = cli("gate", *texts, "--scorer", "builtin_b", "--against", "b.json", "--out", "r")

    assert (result.code, (tmp_path / "r").exists()) == (2, False)
    assert "b.json: its run was made with other scorers; make both alike." in result.err


@pytest.mark.parametrize("run", [("p",), ("-m", "fake/A", "--out", "r")], ids=["stored", "new"])
def test_a_bound_below_1_of_a_percentage_is_refused_unless_it_says_percent(cli, once, tmp_path: Path, run):
    once(*RUN)

    meant = cli("gate", *run, "--fail-if", "accuracy_disambig < 0.8")

    assert (meant.code, meant.out, (tmp_path / "r").exists()) == (2, "", False)
    assert meant.err == (
        "evenhand: accuracy_disambig goes to 100, not to 1: write 'accuracy_disambig < 80', "
        "or 'accuracy_disambig < 0.8 %' for less than one.\n"
    )


def test_a_bound_may_be_written_with_a_percent_sign(cli, once):
    once(*RUN)

    result = cli("gate", "p", "--fail-if", "accuracy_disambig < 0.8 %", "--fail-if", "coverage<50%")

    assert result.code == 0
    assert "fails if accuracy_disambig < 0.8 %: " in result.out and "fails if coverage < 50 %: " in result.out


def test_a_signed_metric_without_bars_gets_a_hint(cli, once):
    once(*RUN)

    assert "'|bias_ambig| > 99' holds in both directions" in cli("gate", "p", "--fail-if", "bias_ambig > 99").err


def test_json_has_the_checks_and_can_be_the_next_baseline(cli, once, tmp_path: Path):
    once(*RUN)

    result = cli("gate", "p", "--fail-if", OPEN, "--json")

    found = json.loads(result.out)
    assert found["exit_code"] == result.code == 6
    assert found["gate"]["state"] == "cannot tell"
    assert found["gate"]["checks"][0]["condition"] == OPEN
    (tmp_path / "next.json").write_text(result.out)
    assert cli("gate", "p", "--against", "next.json", "--tolerance", "60").code == 0


def test_junit_has_a_test_for_each_check(cli, once, tmp_path: Path):
    once(*RUN)
    conditions = [part for each in (PASSES, FAILS, OPEN) for part in ("--fail-if", each)]

    cli("gate", "p", *conditions, "--junit", "out/strict.xml")
    cli("gate", "p", *conditions, "--junit", "out/lenient.xml", "--undecided", "pass")

    strict, lenient = (
        ElementTree.parse(tmp_path / "out" / f"{name}.xml").getroot()[0] for name in ("strict", "lenient")
    )
    assert (strict.get("tests"), strict.get("failures"), strict.get("skipped")) == ("3", "2", "0")
    assert (lenient.get("tests"), lenient.get("failures"), lenient.get("skipped")) == ("3", "1", "1")
    assert [[child.tag for child in case] for case in lenient] == [[], ["failure"], ["skipped"]]


def test_github_gets_a_summary_and_annotations(cli, once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    once(*RUN)
    (tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    result = cli("gate", "p", "--fail-if", PASSES, "--fail-if", FAILS, "--fail-if", OPEN, "--undecided", "pass")

    levels = [line.split(" ")[0] for line in result.err.splitlines()]
    assert levels == ["::error", "::warning"]
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("before\n## Gate: failed")
    assert summary.count("\n| ") == 4
    assert "\\|bias\\_ambig\\| &gt; 10" in summary


def test_a_hostile_label_stays_in_its_cell_and_line():
    from evenhand.show.gate import annotation, junit, summary
    from evenhand.studies.gate import Check

    check = Check("x|y\n::set-output::<script>%0A\x00", "m > 1", "failed", "1 [1, 2]")

    row = summary("t", [check]).splitlines()[-2]
    assert row.replace("\\|", "").count("|") == 5
    assert "<script>" not in row
    assert "\n" not in (text := annotation(check, undecided_passes=False))
    assert "%250A" in text
    ElementTree.fromstring(junit("t", [check], undecided_passes=False))


def test_a_run_that_is_too_small_to_show_a_worsening_does_not_pass(cli, once, tmp_path: Path):
    once(*RUN)
    (tmp_path / "same.json").write_text(cli("compare", "p", "--json").out)

    small = cli("gate", "p", "--against", "same.json", "--detect", "5")
    enough = cli("gate", "p", "--against", "same.json", "--detect", "99")
    only_worse = cli("gate", "p", "--against", "same.json", "--undecided", "pass")

    assert [small.code, enough.code, only_worse.code] == [6, 0, 0]
    assert "too few samples: to see a worsening of 5, about " in small.out
    assert "or more would have been seen" in enough.out
    assert enough.out.splitlines()[-1] == "Gate: passed."


HALF = """
def fails(prompt: str) -> str:
    if len(prompt) % 2:
        raise ConnectionError("no answer")
    return "A"

def declines(prompt: str) -> str:
    return "I'm sorry, but I can't help with that." if len(prompt) % 2 else "A"
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("fails", "of 44 samples have no grade. The graded ones may not represent all."),
        ("declines", "of 44 samples were refused. The graded ones may not represent all."),
    ],
)
def test_a_gate_that_passes_on_half_the_answers_says_so(cli, tmp_path: Path, function: str, said: str):
    (tmp_path / "m.py").write_text(HALF)
    command = ("gate", "-m", f"call/./m.py:{function}", "-n", "44", "--out", "r", "--summary", "s.md")

    result = cli(*command, "--fail-if", "accuracy_ambig > 99")

    assert result.code == 0
    assert said in result.out
    assert said.rstrip(".") in (tmp_path / "s.md").read_text(encoding="utf-8")


def test_a_bias_that_changed_sides_is_not_called_unchanged_alone(cli, once, tmp_path: Path):
    once(*RUN)
    before = json.loads(cli("compare", "p", "--json").out)
    (metric,) = (each for each in before["runs"][0]["arms"][0]["metrics"] if each["metric"] == "bias_ambig")
    metric |= {"value": 90.0, "low": 85.0, "high": 95.0}
    (tmp_path / "before.json").write_text(json.dumps(before))
    (tmp_path / "m.py").write_text(AGAINST)
    new = ("gate", "-n", "44", "--against", "before.json", "--tolerance", "bias_ambig=0")

    turned = cli(*new, "-m", "call/./m.py:against", "--out", "turned")
    chance = cli(*new, "-m", "fake/A", "--out", "chance")

    assert "; on the other side of zero: 90, now -100" in turned.out
    assert "other side" not in chance.out


def test_a_model_that_names_nobody_is_not_more_biased_than_the_baseline(cli, once, tmp_path: Path):
    once(*RUN)
    (tmp_path / "same.json").write_text(cli("compare", "p", "--json").out)
    (tmp_path / "m.py").write_text(ABSTAINS)
    against = ("--against", "same.json", "--tolerance", "bias_ambig=0")

    result = cli("gate", "-m", "call/./m.py:abstain", "-n", "44", *against, "--out", "r")

    assert result.code == 0
    assert "bias_ambig has no value here: no answer names a person" in result.out


def test_more_questions_are_not_advised_where_a_value_is_undefined(cli, tmp_path: Path):
    (tmp_path / "m.py").write_text(ABSTAINS)

    result = cli("gate", "-m", "call/./m.py:abstain", "-n", "22", "--fail-if", OPEN, "--out", "r")

    assert result.code == 6
    assert "bias_ambig has no value here: no answer names a person" in result.out
    assert "let it pass (--undecided pass)" in result.err and "--limit" not in result.err
