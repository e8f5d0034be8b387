"""`evenhand papers`: from a model to the page, the CSV files and the tables."""

import contextlib
import csv
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import ModelError
from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.studies.study import study

SMALL = ("papers", "stardtox", "--builtin", "--limit", "2", "--completions", "2", "--preset", "evenhand")
HOSTILE = "x</title><script>alert(1)</script>"


def reply(messages: Sequence[Message], params: Params) -> str:
    """Rude at first, kind when asked again; as a judge always content; chooses B."""
    if "Yes or No" in messages[-1].content:
        return "Yes"
    if params.schema is not None:
        return json.dumps({name: _value(name, each) for name, each in params.schema["properties"].items()})
    if "B)" in messages[-1].content or "B)" in messages[0].content:
        return "B"
    at_first = "Continue the text below" in messages[-1].content
    return "a stupid idiot who should shut up" if at_first else "a kind man with a garden"


def _value(name: str, schema: dict[str, Any]) -> Any:
    if name == "settled":
        return 10
    return 90 if schema.get("type") in ("integer", "number") else "words"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models `rude/NAME` that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Rude(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply, spec=f"rude/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "rude", Rude)
    return loaded


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_the_files_and_the_tables_are_made(once, models, tmp_path: Path):
    result = once(*SMALL, "--model", "rude/one")

    for part in ("Table II: sentence completion (moderate)", "(high)", "Table III", "Figure 3", "paper 12.09"):
        assert part in result.out
    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        "realtoxicity", "bbq", "command.json", "index.html", "claims.csv", "figure3.csv",
        "table1.csv", "table2.csv", "table3.csv",
    }  # fmt: skip
    html = (tmp_path / "p" / "index.html").read_text(encoding="utf-8")
    for text in (
        "StarDTox with rude/one",
        "Self-Debias (Gen)",
        "GPT-2 XL",
        "w/o performance",
        "Iter. 2",
        "Reprompting",
    ):
        assert text in html
    assert "needs logits: hf/ models" in html
    assert "58 % below Default" in html
    assert "our own data, not comparable" in html


def test_every_number_in_the_files_is_the_studys(once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")

    texts = {arm.label: arm for arm in study([tmp_path / "p/realtoxicity"], iterations=True).arms}
    choices = {arm.label: arm for arm in study([tmp_path / "p/bbq"], iterations=True).arms}
    # Nothing needed a second iteration, so that its row is the final result.
    arms = {
        ("Default", ""): "default",
        ("Fairness-aware prompt", ""): "fair_prompt",
        ("StarDTox w/ performance", "evenhand, Iter. 1"): "stardtox · iteration 1",
        ("StarDTox w/ performance", "evenhand, Iter. 2"): "stardtox",
        ("StarDTox w/o performance", "evenhand, Iter. 1"): "stardtox(performance=False) · iteration 1",
        ("StarDTox w/o performance", "evenhand, Iter. 2"): "stardtox(performance=False)",
        ("StarDTox", "evenhand, Iter. 1"): "stardtox",
        ("StarDTox", "evenhand, Iter. 2"): "stardtox",
        ("Self-Debias (QA)", "Explanation"): "self_debias_explain",
        ("Self-Debias (QA)", "Reprompting"): "self_debias_reprompt",
    }
    seen = set()
    for name, found, groups in (("table2", texts, None), ("table3", choices, "all")):
        for row in rows_of(tmp_path / f"p/{name}.csv"):
            key = (row["method"], row["setting"])
            if key not in arms:
                assert (row["value"], row["n"]) == ("", "0")
                continue
            seen.add(key)
            estimate = found[arms[key]].estimate(row["metric"], groups or row["data_set"])
            values = (None, None, None, 0) if estimate is None else (
                estimate.value, estimate.low, estimate.high, estimate.n,
            )  # fmt: skip
            assert tuple(row[each] for each in ("value", "low", "high", "n")) == tuple(
                "" if value is None else str(value) for value in values
            ), row
    assert seen == arms.keys()


def test_revision_shows_in_the_rows_and_in_the_figure(once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")

    toxicity = {
        (row["data_set"], row["method"], row["setting"]): float(row["value"])
        for row in rows_of(tmp_path / "p/table2.csv")
        if row["metric"] == "toxicity" and row["value"]
    }
    assert toxicity["high", "StarDTox w/ performance", "evenhand, Iter. 1"] < toxicity["high", "Default", ""]
    refined = {
        (row["data_set"], row["setting"], row["part"]): (float(row["value"]), int(row["n"]))
        for row in rows_of(tmp_path / "p/figure3.csv")
    }
    for band in ("moderate", "high"):
        for setting in ("evenhand, w/ performance", "evenhand, w/o performance"):
            assert refined[band, setting, "Iteration 1"] == (100.0, 4)
            assert refined[band, setting, "Iteration 2"] == (0.0, 4)
    # The judge finds everybody proved, so that only abstentions, where B is the unknown option, are revised.
    assert refined["BBQ", "evenhand", "Iteration 1"] == (pytest.approx(100 * 8 / 22), 22)


def test_the_items_are_as_many_of_each_kind(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")
    cli("run", "export", "p/bbq", "-o", "bbq.jsonl")
    cli("run", "export", "p/realtoxicity", "-o", "texts.jsonl")

    questions = {row["sample"] for row in map(json.loads, Path("bbq.jsonl").read_text().splitlines())}
    completions = {row["sample"] for row in map(json.loads, Path("texts.jsonl").read_text().splitlines())}
    assert len(questions) == 22
    assert sum(name.startswith("moderate") for name in completions) == 4
    assert sum(name.startswith("high") for name in completions) == 4


def test_the_page_is_made_again_without_a_call(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")
    files = ("index.html", "table2.csv", "table3.csv", "figure3.csv")
    before = {name: (tmp_path / "p" / name).read_bytes() for name in files}
    for name in files:
        (tmp_path / "p" / name).unlink()
    models.clear()

    result = cli("papers", "stardtox", "--out", "p")

    assert result.code == 0, result
    assert models == {}
    assert {name: (tmp_path / "p" / name).read_bytes() for name in files} == before


@pytest.mark.filterwarnings("default")  # as outside of tests
@pytest.mark.parametrize("again", [("papers", "stardtox", "--out", "p"), ("resume", "p")])
def test_the_page_is_made_without_a_damaged_row_if_asked_for(cli, once, models, again: Sequence[str]):
    once(*SMALL, "--model", "rude/one")
    with contextlib.closing(sqlite3.connect("p/bbq/run.sqlite")) as db, db:
        db.execute("UPDATE samples SET body = x'ff' WHERE number = 3")
        [damaged] = db.execute("SELECT id FROM samples WHERE number = 3").fetchone()

    refused = cli(*again)
    made = cli(*again, "--skip-damaged")

    assert refused.code == 2, refused
    assert f"the sample {damaged} cannot be read" in refused.err
    assert "paper and resume go on without it if given --skip-damaged" in refused.err
    assert made.code == 0, made
    assert f"! p/bbq is damaged; left out: the sample {damaged}." in made.out
    assert f"p/bbq is damaged; left out: the sample {damaged}." in Path("p/index.html").read_text(encoding="utf-8")


def test_resuming_a_finished_paper_asks_nothing(cli, once, models):
    once(*SMALL, "--model", "rude/one")

    result = cli(*SMALL, "--model", "rude/one", "--out", "p", "--resume", "--no-cache")

    assert result.code == 0, result
    assert models["one"].requests == []


def test_one_budget_covers_both_runs_and_resume_completes(cli, models):
    budget = ("--no-cache", "--budget", "200 calls")
    first = cli(*SMALL, "--model", "rude/one", "--out", "p", *budget)

    assert first.code == 3, first
    assert "p/realtoxicity: 32 of 32 done" in first.out
    assert "evenhand resume p --budget '400 calls'\n" in first.out
    cli("run", "export", "p/bbq", "--usage", "-o", "usage.jsonl")
    in_bbq = sum(json.loads(line)["calls"] for line in Path("usage.jsonl").read_text().splitlines())
    assert 0 < in_bbq < 200 - 32

    second = cli("resume", "p", "--budget", "4000 calls")
    assert second.code == 0, second
    assert "p/bbq: 110 of 110 done" in second.out


def test_resume_of_a_paper_begins_the_runs_that_were_not_begun(cli, models, tmp_path: Path):
    cli(*SMALL, "--model", "rude/one", "--out", "p", "--no-cache", "--budget", "20 calls")

    result = cli("resume", "p", "--budget", "4000 calls")

    assert result.code == 0, result
    assert "p/bbq: 110 of 110 done" in result.out
    assert "Table III" in result.out


def test_a_damaged_command_of_a_paper_is_one_sentence(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")
    (tmp_path / "p" / "command.json").write_text("{")

    result = cli("resume", "p")

    assert result.code == 2
    assert "command.json is damaged" in result.err


def test_a_paper_in_which_every_sample_failed_exits_with_4_and_prints_no_table(
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    broken = FunctionModel(lambda *_: ModelError("The server is out of memory."), spec="rude/one")
    monkeypatch.setitem(PROVIDERS._things, "rude", lambda *_: broken)
    monkeypatch.setattr("evenhand.runs.runner.HOPELESS", 10**6)

    result = cli(*SMALL, "--model", "rude/one", "--out", "p", "--no-cache")

    assert result.code == 4, result
    assert "Nothing was measured: no sample has a grade." in result.out
    assert "× failed: The server is out of memory." in result.out
    assert "Table II" not in result.out
    assert "Nothing was measured" in (tmp_path / "p/index.html").read_text(encoding="utf-8")


def test_a_budget_spent_on_the_first_run_leaves_the_other_table_empty(cli, models, tmp_path: Path):
    result = cli(*SMALL, "--model", "rude/one", "--out", "p", "--no-cache", "--budget", "20 calls")

    assert result.code == 3
    assert "bbq was not run; its cells are empty." in result.out
    assert not (tmp_path / "p/bbq").exists()
    assert {row["note"] for row in rows_of(tmp_path / "p/table3.csv")} == {"not run"}


def test_dry_run_counts_both_runs_and_writes_nothing(cli, tmp_path: Path):
    result = cli("papers", "stardtox", "--model", "openai/x", "--builtin", "--limit", "4", "--completions", "2",
                 "--price", "openai/x=1/2", "--dry-run", "--out", "p")  # fmt: skip

    assert result.code == 0, result
    assert "realtoxicity_builtin" in result.out
    assert "bbq_builtin" in result.out
    assert "In all: " in result.out
    assert "$" in next(line for line in result.out.splitlines() if "self_debias_explain" in line)
    assert not (tmp_path / "p").exists()


def test_the_default_folder_depends_on_what_is_run(cli, models, tmp_path: Path):
    cli(*SMALL, "--model", "rude/one", "--budget", "1 calls")
    cli(*SMALL, "--model", "rude/one", "--budget", "1 calls", "--seed", "1")

    folders = [path.name for path in (tmp_path / "runs").iterdir()]
    assert len(folders) == 2
    assert all(name.startswith("paper-stardtox-") for name in folders)


def test_a_hostile_model_name_is_only_text(cli, models, tmp_path: Path):
    assert cli(*SMALL, "--model", f"rude/{HOSTILE}", "--budget", "20 calls", "--out", "p").code == 3

    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert "rude/x&lt;/title&gt;&lt;script&gt;alert(1)" in html


def test_a_model_that_gives_logits_has_its_own_row_of_self_debiasing(cli, models, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(PROVIDERS._things["rude"], "features", frozenset({"seed", "schema", "logits"}))

    assert cli(*SMALL, "--model", "rude/one", "--out", "p").code == 0

    rows = [row for row in rows_of(tmp_path / "p/table2.csv") if row["method"] == "Self-Debias (Gen)"]
    assert {row["n"] for row in rows if row["setting"] == "this model" and row["metric"] == "toxicity"} == {"4"}
    assert {row["n"] for row in rows if row["setting"] == "GPT-2 XL"} == {"0"}
    assert {row["note"] for row in rows if row["setting"] == "this model"} == {""}
    assert all("--base-model hf/gpt2" in row["note"] for row in rows if row["setting"] == "GPT-2 XL")


def test_a_scorer_of_the_users_choice_measures_the_texts_only(cli, models, tmp_path: Path):
    result = cli(*SMALL, "--model", "rude/one", "--model", "judge=rude/two", "--scorer", "builtin", "--out", "p")

    assert result.code == 0, result
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert "measured by builtin;" in html
    assert "rude/two as judge" in html
    fluency = [row for row in rows_of(tmp_path / "p/table2.csv") if row["metric"] == "fluency"]
    assert {row["value"] for row in fluency} == {""}


def test_another_runs_folder_is_refused(cli, models):
    cli("run", "--model", "rude/one", "--limit", "2", "--out", "p/realtoxicity")

    result = cli("papers", "stardtox", "--out", "p")

    assert result.code == 2
    assert "p/realtoxicity holds a run of bbq_builtin, not of realtoxicity" in result.err


CASES = {
    "unknown paper": (("papers", "stardtx", "--model", "fake/A"), "did you mean stardtox"),
    "no model": (("papers", "stardtox"), "No model is named; pass --model"),
    "only a judge": ((*SMALL, "--model", "judge=fake/A"), "No model is named"),
    "two models": ((*SMALL, "--model", "fake/A", "--model", "fake/B"), "one model"),
    "not a spec": ((*SMALL, "--model", "gpt"), "provider/name"),
    "data missing": (("papers", "stardtox", "--model", "fake/A"), "evenhand data pull realtoxicity"),
    "data missing, dry": (("papers", "stardtox", "--model", "fake/A", "--dry-run"), "evenhand data pull realtoxicity"),
    "data folder and built-in": ((*SMALL, "--model", "fake/A", "--data", "d"), "remove --data"),
    "no limit": ((*SMALL, "--model", "fake/A", "--limit", "0"), "--limit"),
    "nothing to show": (("papers", "stardtox", "--out", "none"), "holds no runs of a paper"),
    "a role that nobody has": ((*SMALL, "--model", "fake/A", "--model", "critic=fake/B"), "critic"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    result = cli(*arguments)

    assert result.code == 2, result
    assert hint in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_page_of_one_paper_is_not_overwritten_by_another(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")
    before = (tmp_path / "p/index.html").read_bytes()

    result = cli("papers", "mabrf", "--out", "p")

    assert result.code == 2
    assert result.err == "evenhand: p holds the paper stardtox; its page: evenhand papers stardtox --out p\n"
    assert (tmp_path / "p/index.html").read_bytes() == before


def test_a_folder_with_runs_names_them(cli, once, models):
    once(*SMALL, "--model", "rude/one")

    result = cli("evidence", "p")

    assert result.code == 2
    assert "name one of the runs in it: p/bbq, p/realtoxicity." in result.err


def test_data_of_the_second_run_is_missed_before_the_first_is_paid_for(cli, models, tmp_path: Path):
    line = {"prompt": {"text": "He is", "toxicity": 0.55}}, {"prompt": {"text": "She is", "toxicity": 0.9}}
    (tmp_path / "d").mkdir()
    (tmp_path / "d/prompts.jsonl").write_text("\n".join(map(json.dumps, line)))

    result = cli("papers", "stardtox", "--model", "rude/one", "--data", "d", "--out", "p")

    assert result.code == 2
    assert "evenhand data pull bbq" in result.err
    assert not (tmp_path / "p").exists()


def test_running_twice_needs_resume(cli, once, models):
    once(*SMALL, "--model", "rude/one")

    result = cli(*SMALL, "--model", "rude/one", "--out", "p")

    assert result.code == 2
    assert "pass --resume" in result.err


def test_scores_that_were_added_later_can_take_the_place_of_the_planned_ones(cli, once, models, tmp_path: Path):
    once(*SMALL, "--model", "rude/one")
    planned = rows_of(tmp_path / "p/table2.csv")
    assert cli("run", "rescore", "p/realtoxicity", "--scorer", "builtin").code == 0

    result = cli("papers", "stardtox", "--out", "p", "--scorer", "builtin")

    assert result.code == 0, result
    assert "measured by quality:rude/one and builtin;" in (tmp_path / "p/index.html").read_text(encoding="utf-8")
    changed = {
        before["metric"]
        for before, after in zip(planned, rows_of(tmp_path / "p/table2.csv"), strict=True)
        if before != after
    }
    assert changed
    assert changed <= {"toxicity", "expected_max_toxicity", "any_toxic"}


OPTIONS_OF = {
    "stardtox": {"--completions", "--scorer"},
    "mabrf": {"--search", "--accept", "--look"},
    "malibu": set(),
    "rldf": {"--trained", "--pairs", "--bias", "--train", "--teacher", "--ablate", "--set"},
}


@pytest.mark.parametrize("paper", OPTIONS_OF)
def test_the_help_of_a_paper_has_its_own_options_only(cli, paper: str):
    shown = [line.strip().partition(" ")[0] for line in cli("papers", paper, "--help-all").out.splitlines()]
    shown += [word for line in cli("papers", paper, "--help-all").out.splitlines() for word in line.split()[1:2]]

    assert {option for options in OPTIONS_OF.values() for option in options if option in shown} == OPTIONS_OF[paper]
    assert {"--model", "--limit", "--out", "--budget", "--dry-run"} <= set(shown)


def test_without_a_paper_the_help_is_shown(cli):
    bare = cli("papers")

    assert (bare.code, bare.out) == (0, cli("papers", "--help").out)


def test_the_help_lists_every_paper(cli):
    shown = cli("papers", "--help").out.partition("Commands:")[2]

    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2] != " "] == [
        "mabrf", "malibu", "rldf", "stardtox",
    ]  # fmt: skip
    assert "Table II" in shown
