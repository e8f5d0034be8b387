"""`evenhand papers rldf`: from models that were trained to the tables beside the published numbers."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

SMALL = ("papers", "rldf", "--model", "stub/plain", "--builtin", "--limit", "3", "--judge", "stub/judge", "--no-cache")
TRAINED = ("--trained", "sft=stub/tuned", "--trained", "rldf_sr=stub/tuned", "--trained", "rldf_ts=stub/fair")
FAIR, PLAIN = "It depends on the person, whoever they are.", "The old ones are slow, as everybody knows."
MUTE = "Maybe."


def reply(name: str) -> Callable[[Sequence[Message], Params], str]:
    """A model that chooses its letter, or says what it thinks; the judge knows what is fair."""

    def answer(messages: Sequence[Message], params: Params) -> str:
        text = messages[-1].content
        if params.schema is not None:
            fair = FAIR in text or MUTE in text
            ratings = {"bias": 20 if fair else 80, "communication": 60, "soundness": 70}
            return json.dumps({key: ratings.get(key, "words") for key in params.schema["properties"]})
        if "B)" in text or "B)" in messages[0].content:
            return {"plain": "A", "tuned": "B"}.get(name, "C")
        return {"fair": FAIR, "mute": MUTE, "empty": ""}.get(name, PLAIN)

    return answer


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models stub/NAME that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Stub(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply(name), spec=f"stub/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "stub", Stub)
    return loaded


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def values(path: Path, grid: str, metric: str) -> dict[str, float | None]:
    """Ours, by row, of one column."""
    return {
        row["setting"]: round(float(row["value"]), 6) if row["value"] else None
        for row in rows_of(path)
        if row["data_set"] == grid
        and row["metric"] == metric
        and not row["published"]
        and row["method"] == "stub/plain"
    }


def test_page_files_and_tables_are_made(once: Any, stubs: Any, tmp_path: Path):
    result = once(*SMALL, *TRAINED)

    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        "bbq", "opinions", "command.json", "index.html", "claims.csv", "table1.csv", "table2.csv", "table3.csv",
        "table4.csv", "table5.csv", "table6.csv", "table7.csv", "table8.csv", "table9.csv", "table10.csv",
        "table13.csv", "table14.csv", "figure5.csv", "figure6.csv",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "p/bbq").iterdir()} == {"base", "sft", "rldf_sr", "rldf_ts"}
    assert "paper 71.09" in result.out
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    for text in (
        "RLDF with stub/plain",
        "Qwen1.5-7B",
        "RLDF (T-S)",
        "all five cells are those of RLAIF",
        "opinion:stub",
        "Figure 7: cases, before and after training",
        "RLDF (T-S), BS 20, CE",
    ):
        assert text in html
    folded = re.findall(r'<details class="fold"><summary><h2 id="(\w+)-title">', html)
    assert folded == ["presets"]  # published numbers are in sight
    assert '<h3 class="grid-name">BS, as Table 12 prints it</h3>' in html


def test_the_paired_differences_are_those_of_the_arms(once: Any, stubs: Any, tmp_path: Path):
    once(*SMALL, *TRAINED)

    scores = values(tmp_path / "p/table3.csv", "BS", "all")
    assert scores == {
        "Default": 80.0, "CoT": 80.0, "FairThinking": 80.0, "SFT": 80.0, "RLDF (T-S)": 20.0, "RLAIF": None,
    }  # fmt: skip
    title = "Differences to Default, and of RLDF to its first stage (SFT), paired"
    assert values(tmp_path / "p/table3.csv", title, "age") == {
        "CoT less Default": 0.0, "FairThinking less Default": 0.0, "SFT less Default": 0.0, "RLDF less Default": -60.0,
        "RLDF less SFT": -60.0,
    }  # fmt: skip
    modes = values(tmp_path / "p/table4.csv", "BS", "beauty")
    assert modes == {"S-R": 80.0, "T-S": 20.0, "T-S less S-R": -60.0}
    accuracy = rows_of(tmp_path / "p/table1.csv")
    ours = [row for row in accuracy if row["method"] == "stub/plain" and row["data_set"] == "Accuracy"]
    assert {row["n"] for row in ours if row["metric"] == "Age" and row["setting"] == "SFT"} == {"3"}


def test_claims_are_told_as_the_arms_have_them(once: Any, stubs: Any, tmp_path: Path):
    once(*SMALL, *TRAINED)

    claims = {row["text"]: row for row in rows_of(tmp_path / "p/claims.csv")}
    assert "not run" not in {row["why"] for row in claims.values()}
    teacher = claims["A teacher makes less biased models than self-reflection"]
    assert teacher["why"].startswith("T-S less S-R: ")
    others = {claim["text"]: claim for claim in claims.values() if "every other method" in claim["text"]}
    assert len(others) == 3 and all("RLAIF not run. RLDF less Default" in each["why"] for each in others.values())
    assert {each["verdict"] for each in others.values()} == {"cannot be determined"}


def test_several_teachers_have_rows_of_their_own(cli: Any, stubs: Any, tmp_path: Path):
    arms = ("--trained", "rldf:GPT-4=stub/fair", "--trained", "rldf:Mistral-7B=stub/tuned")

    assert cli(*SMALL, *arms, "--out", "p").code == 0

    assert (tmp_path / "p/opinions/rldf@GPT-4").is_dir()
    assert values(tmp_path / "p/table5.csv", "BS", "age") == {"GPT-4": 20.0, "Mistral-7B": 80.0}


def test_an_arm_that_says_almost_nothing_is_not_less_biased(once: Any, stubs: Any, tmp_path: Path):
    once(*SMALL, "--trained", "sft=stub/tuned", "--trained", "rldf_sr=stub/mute")

    lengths = values(tmp_path / "p/table3.csv", "BS", "length_ratio")
    assert (lengths["Default"], lengths["SFT"], lengths["RLDF (S-R)"]) == (100.0, 100.0, 12.5)
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    fault = "its answers have 12 % of Default&#x27;s words (comparable: 60 to 160 %)"
    claims = {row["text"]: row for row in rows_of(tmp_path / "p/claims.csv")}
    claim = claims["RLDF's answers are less biased than those of every other method, over all types"]
    assert claim["verdict"] == "cannot be determined"
    assert claim["why"].startswith("RLDF (S-R) cannot be compared: its answers have 12 %")
    assert "stub/mute cannot be called better than " in html and ": Words per answer went from 8.0" in html
    assert "stub/mute is better than" not in html
    assert f"Too short, too long or too often silent to be called less biased: RLDF: {fault}." in html


def test_a_refusal_is_no_case_to_read(cli: Any, stubs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if a run has graded it, before it was known as a refusal."""
    cli(*SMALL, "--trained", "rldf_sr=stub/fair", "--out", "p")
    page = tmp_path / "p/index.html"
    assert FAIR in page.read_text(encoding="utf-8").partition('id="cases"')[2]

    monkeypatch.setattr("evenhand.papers.rldf.tables.looks_like_refusal", lambda text: text == FAIR)
    cli("papers", "rldf", "--out", "p")

    assert 'id="cases"' not in page.read_text(encoding="utf-8")


def test_an_arm_that_gives_empty_answers_is_not_less_biased(cli: Any, stubs: Any, tmp_path: Path):
    cli(*SMALL, "--trained", "rldf_sr=stub/empty", "--out", "p")

    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert "RLDF: 100 % of its answers are empty, refused or cut (Default: 0 %)" in html


def test_trainings_with_several_seeds_are_shown_as_mean_and_spread(cli: Any, stubs: Any, tmp_path: Path):
    arms = ("--trained", "rldf_sr-seed1=stub/fair", "--trained", "rldf_sr-seed2=stub/tuned")

    result = cli(*SMALL, *arms, "--out", "p")

    assert result.code == 0, result
    assert values(tmp_path / "p/table3.csv", "BS", "all")["RLDF (S-R)"] == 50.0
    rows = [row for row in rows_of(tmp_path / "p/table3.csv") if row["method"] == "stub/plain" and row["sd"]]
    assert {row["setting"] for row in rows} == {"RLDF (S-R)"}
    assert float(rows[0]["sd"]) == pytest.approx(60 / 2**0.5)
    assert "± 42.4 SD" in result.out


def test_models_of_one_type_each_make_one_arm(cli: Any, stubs: Any, tmp_path: Path):
    arms = ("--trained", "rldf_sr-age=stub/fair", "--trained", "rldf_sr-beauty=stub/tuned", "--bias", "age,beauty")

    result = cli(*SMALL, *arms, "--out", "p")

    assert result.code == 0, result
    ours = {bias: values(tmp_path / "p/table3.csv", "BS", bias)["RLDF (S-R)"] for bias in ("age", "beauty", "all")}
    assert ours == {"age": 20.0, "beauty": 80.0, "all": 50.0}


def test_the_page_is_made_again_with_the_ratings_of_people(cli: Any, once: Any, stubs: Any, tmp_path: Path):
    once(*SMALL, *TRAINED)
    folders = ("p/opinions/base", "p/opinions/rldf_sr", "p/opinions/rldf_ts")
    assert cli("annotate", "export", *folders, "--out", "sheets", "--raters", "2").code == 0
    for sheet in (tmp_path / "sheets/raters").glob("*.csv"):
        rows = rows_of(sheet)
        for row in rows:
            row.update(BS="40", CE="60", LS="70")
        with sheet.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    assert cli("annotate", "import", "sheets", "--out", "p/ratings.json").code == 0
    stubs.clear()

    result = cli("papers", "rldf", "--out", "p")

    assert result.code == 0, result
    assert stubs == {}
    ours = [row for row in rows_of(tmp_path / "p/table2.csv") if row["method"] == "This model" and row["value"]]
    assert {(row["data_set"], row["setting"], row["metric"]): float(row["value"]) for row in ours} == {
        (scale, mode, bias): value
        for scale, value in (("BS", 40.0), ("CE", 60.0), ("LS", 70.0))
        for mode in ("S-R", "T-S")
        for bias in ("all", "age", "nationality", "institution", "beauty", "profession")
    }
    methods = [row for row in rows_of(tmp_path / "p/table10.csv") if row["metric"] == "all" and row["value"]]
    assert {row["setting"] for row in methods} == {"Default", "CoT", "FairThinking", "RLDF"}


def test_another_judge_takes_the_place_of_the_first(cli: Any, once: Any, stubs: Any, tmp_path: Path):
    once(*SMALL, *TRAINED)
    for arm in ("base", "sft", "rldf_sr", "rldf_ts"):
        assert cli("run", "rescore", f"p/opinions/{arm}", "--scorer", "opinion:stub/fair").code == 0

    assert cli("papers", "rldf", "--out", "p", "--judge", "stub/fair").code == 0
    assert "opinion:stub/fair" in (tmp_path / "p/index.html").read_text(encoding="utf-8")


def test_without_trained_models_the_rows_are_named_as_not_run(cli: Any, stubs: Any, tmp_path: Path):
    assert cli(*SMALL, "--out", "p").code == 0

    rows = [row for row in rows_of(tmp_path / "p/table3.csv") if row["method"] == "stub/plain"]
    assert {row["note"] for row in rows if row["setting"] == "SFT"} == {"not run"}
    assert values(tmp_path / "p/table3.csv", "BS", "age")["RLDF"] is None


def test_a_dry_run_calls_nothing(cli: Any, stubs: Any, tmp_path: Path):
    result = cli(*SMALL, *TRAINED, "--dry-run", "--out", "p")

    assert result.code == 0, result
    assert "In all: " in result.out
    assert stubs == {}
    assert not (tmp_path / "p").exists()


CASES = {
    "unknown arm": (("--trained", "dpo=stub/x"), "--trained takes sft, rlaif, rldf"),
    "no spec": (("--trained", "sft"), "--trained takes ARM=SPEC"),
    "twice": (("--trained", "sft=stub/a", "--trained", "sft=stub/b"), "each arm once"),
    "not a spec": (("--trained", "sft=folder"), "provider/name"),
    "a teacher with a slash": (("--trained", "rldf:a/b=stub/x"), "rldf:TEACHER"),
    "pairs that are none": (("--pairs", "nowhere"), "nowhere"),
    "another paper's flag": (("--completions", "2"), "has no use for --completions"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli: Any, stubs: Any, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    result = cli(*SMALL, *arguments, "--out", "p")

    assert result.code == 2, result
    assert hint in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "p").exists()


def test_flags_of_training_are_refused_by_other_papers(cli: Any, stubs: Any):
    result = cli("papers", "malibu", "--model", "stub/plain", "--trained", "sft=stub/judge")

    assert (result.code, "has no use for --trained" in result.err) == (2, True)


def test_a_judge_is_refused_by_papers_without_one(cli: Any, stubs: Any):
    result = cli("papers", "malibu", "--model", "stub/plain", "--judge", "stub/judge")

    assert (result.code, "uses a model for the role 'judge'" in result.err) == (2, True)
