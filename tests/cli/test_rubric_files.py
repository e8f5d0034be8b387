"""One rubric in a file: a scorer, a metric with its certificate, the scale of people, and the corrected estimate."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from support.rubrics import POLITE, judging, written

SPEC = "rubric:polite.yaml,model=stub/judge"


@pytest.fixture
def judge(cli: Any, monkeypatch: pytest.MonkeyPatch) -> FunctionModel:
    made = judging()
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: made)
    written(Path("polite.yaml"))
    return made


def test_a_rubric_is_a_scorer_with_its_words_and_what_it_leaves_out(cli: Any, judge: FunctionModel):
    rows = ["Thank you kindly.", "Go.", "I'm sorry, but I can't help with that."]
    Path("t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")

    result = cli("score", "t.jsonl", "-s", SPEC, "-o", "scored.jsonl")

    assert result.code == 0, result.err
    found = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [each.get(f"{SPEC}.politeness") for each in found] == [1.0, 0.2, None]
    assert found[2][f"{SPEC}.unscored"] == "a refusal"
    request = judge.requests[0][0]
    asked = request[-1].content
    assert "A customer wrote, and somebody replied." in asked
    assert "from 0 to 5" in asked
    assert "0: “Not my problem.” It dismisses the customer." in asked
    assert '{"politeness": 0-5}' in asked
    assert "Thank you kindly. Here is number" not in asked  # texts of known value are no examples


def test_a_rubric_without_a_model_says_how_to_name_one(cli: Any, judge: FunctionModel):
    Path("t.txt").write_text("Hello.\n", encoding="utf-8")

    result = cli("score", "t.txt", "-s", "rubric:polite.yaml")

    assert result.code == 2
    assert "write rubric:polite.yaml,model=PROVIDER/NAME" in result.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale": 7}, "scale"),
        ({"criteria": []}, "criteria"),
        ({"critera": []}, "critera"),
        ({"criteria": [{**POLITE["criteria"][0], "examples": [{"rating": 9, "text": "x"}]}]}, "not in 0–5"),
        ({"criteria": [POLITE["criteria"][0]] * 2}, "two criteria are named politeness"),
        ({"criteria": [{**POLITE["criteria"][0], "controls": {"texts": "prejudices"}}]}, "did you mean prejudice?"),
    ],
)
def test_a_wrong_rubric_is_one_sentence(cli: Any, judge: FunctionModel, changes: dict[str, Any], said: str):
    written(Path("polite.yaml"), **changes)
    Path("t.txt").write_text("Hello.\n", encoding="utf-8")

    result = cli("score", "t.txt", "-s", SPEC)

    assert (result.code, result.err.count("\n")) == (2, 1)
    assert said in result.err
    assert judge.requests == []


def test_a_rubric_that_is_not_there_is_one_sentence(cli: Any, judge: FunctionModel):
    Path("t.txt").write_text("Hello.\n", encoding="utf-8")

    missing, unknown = (
        cli("score", "t.txt", "-s", f"rubric:{name},model=stub/judge") for name in ("no.yaml", "opinon")
    )

    assert (missing.code, unknown.code) == (2, 2)
    assert "There is no such file" in missing.err
    assert "did you mean opinion?" in unknown.err


@pytest.mark.controls
def test_a_criterion_is_a_metric_of_any_benchmark_on_free_text(cli: Any, judge: FunctionModel):
    asked = ("run", "--model", "stub/judge", "--benchmark", "realtoxicity_builtin", "--limit", "6", "--out", "r")

    assert cli(*asked, "--scorer", "builtin", "--scorer", SPEC, "--controls", "on").code == 0
    found = evenhand.compare("r")

    value = found.arms[0].estimate("politeness")
    assert 20 <= value.value <= 100
    assert value.low <= value.value <= value.high
    assert [each.title for each in found.metrics if each.name == "politeness"] == ["Politeness"]
    answers = sum(usage.calls for usage in found.arms[0].usage.values())
    said = f"for controls of judges and for scorers: {len(judge.requests) - answers:,} calls, "
    assert said in cli("report", "r").out


@pytest.mark.controls
def test_a_criterion_that_the_judge_does_not_see_cannot_be_told(cli: Any, monkeypatch: pytest.MonkeyPatch):
    made = judging(blind=True)
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: made)
    written(Path("polite.yaml"))

    asked = ("run", "--model", "stub/judge", "--benchmark", "realtoxicity_builtin", "--limit", "6", "--out", "r")
    assert cli(*asked, "--scorer", "builtin", "--scorer", SPEC, "--controls", "on").code == 0

    found = evenhand.compare("r")
    assert found.arms[0].estimate("politeness").value is None
    assert any("the judge does not see it" in each.untold for each in found.metrics)


def test_judges_are_checked_and_probed_by_the_texts_of_a_rubric(cli: Any, judge: FunctionModel):
    checked = cli("judges", "check", "stub/judge", "--metric", "rubric:polite.yaml", "--reading", "written")
    steady = cli(
        "judges", "reliability", "stub/judge", "--metric", "rubric:polite.yaml", "--probe", "style", "--probe", "rubric"
    )

    assert checked.code == 0, checked.err
    [found] = json.loads(Path("judge.json").read_text())["certificates"]
    assert found["rating"] == "rubric:polite.politeness"
    assert "--scorer rubric:polite.yaml,model=stub/judge" in checked.out
    assert found["auc"]["estimate"] == 1.0
    assert found["middle"] == [0.2, 1.0]
    assert steady.code == 0, steady.out
    assert json.loads(Path("reliability.json").read_text())["lines"] == {"rubric:polite.politeness": 0.6}


def test_a_rubric_without_texts_of_known_value_cannot_be_checked(cli: Any, judge: FunctionModel):
    written(Path("polite.yaml"), criteria=[{**POLITE["criteria"][0], "controls": []}])

    result = cli("judges", "check", "stub/judge", "--metric", "rubric:polite.yaml")

    assert result.code == 2
    assert "has no controls" in result.err


def test_people_rate_by_the_same_rubric_and_correct_its_judge(cli: Any, judge: FunctionModel):
    asked = ("run", "--model", "stub/judge", "--benchmark", "opinions", "--limit", "30", "--out", "o")
    assert cli(*asked, "--scorer", SPEC).code == 0
    exported = cli("annotate", "export", "o", "--out", "r", "--raters", "2", "--limit", "20", "--rubric", "polite.yaml")
    assert exported.code == 0, exported.err
    Path("polite.yaml").unlink()  # the study keeps its rubric
    assert "How polite the reply is." in Path("r/raters/README.md").read_text(encoding="utf-8")
    for path in Path("r/raters").glob("*.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["id", "question", "answer", "P"]
        for row in rows:
            row["P"] = "5" if "kindly" in row["answer"] else "0"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    imported = cli("annotate", "import", "r", "--out", "people.json")
    compared = cli("judges", "people", "r", "o")

    assert imported.code == 0, imported.err
    numbers = json.loads(Path("people.json").read_text())
    assert {each["scale"] for each in numbers["ratings"]} == {"P"}
    assert compared.code == 0, compared.err
    found = json.loads(Path("r/judges.json").read_text())
    [agreement] = found["agreements"]
    assert (agreement["scale"], agreement["attribute"], agreement["answers"]) == ("P", "politeness", 20)
    assert 0 < agreement["bias"]["estimate"] <= 20  # the judge gives 1 of 5 where people give 0: in points of 100
    mean = found["estimates"][0]["mean"]
    assert mean["corrected"]["interval"]["estimate"] < mean["judge"]["estimate"]
    assert "Politeness (P, higher is better)" in Path("r/judges.html").read_text(encoding="utf-8")


def test_a_headline_that_no_rubric_rates_says_why_and_what_to_do(cli: Any, judge: FunctionModel):
    asked = ("--model", "stub/judge", "--benchmark", "opinions", "--limit", "3", "--out", "o", "--method", "default")

    result = cli("compare", *asked, "--scorer", SPEC)

    said = " ".join(result.out.split())
    assert "no answer has this rating; `evenhand run rescore RUN --scorer opinion:MODEL` adds it." in said


def test_a_rating_beyond_the_scale_is_refused(cli: Any, judge: FunctionModel):
    assert (
        cli(
            "run", "--model", "stub/judge", "--benchmark", "opinions", "--limit", "3", "--out", "o", "--scorer", SPEC
        ).code
        == 0
    )
    assert cli("annotate", "export", "o", "--out", "r", "--raters", "1", "--rubric", "polite.yaml").code == 0
    sheet = next(Path("r/raters").glob("*.csv"))
    text = sheet.read_text(encoding="utf-8-sig").replace("\r\n", "\n").rstrip("\n").split("\n")
    sheet.write_text("\n".join([text[0], *(line + "6" for line in text[1:])]), encoding="utf-8")

    result = cli("annotate", "import", "r")

    assert result.code == 2
    assert "6 is not a whole number from 0 to 5" in result.err
