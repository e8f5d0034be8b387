"""run, audit, compare, report, show and export, from flags and from files."""

import csv
import json
from pathlib import Path

import pytest

SMALL = ("--model", "fake/A", "--limit", "44")


def test_run_stores_every_sample_and_says_what_comes_next(cli, tmp_path: Path):
    result = cli("run", *SMALL, "--out", "r")

    assert result.code == 0
    assert "44 of 44 done (44 graded)" in result.out
    assert "evenhand report r" in result.out
    assert (tmp_path / "r" / "run.sqlite").is_file()


def test_audit_prints_the_verdict_and_writes_one_html_file(cli, tmp_path: Path):
    result = cli("audit", "fake/A", "--limit", "44", "--out", "r")

    assert result.code == 0
    assert "Bias, ambiguous" in result.out
    html = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>") or html.startswith("<!DOCTYPE html>")
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_compare_runs_three_methods_by_default(cli):
    result = cli("compare", "--model", "fake/A", "--limit", "22", "--out", "r")

    assert result.code == 0
    assert "? Cannot tell: fair_prompt may be anything from " in result.out
    assert "? Cannot tell: cot may be anything from " in result.out
    assert result.out.index("? Cannot tell") < result.out.index("Requests per sample")


def test_compare_of_stored_runs_makes_no_call(cli):
    cli("run", *SMALL, "--out", "first")
    cli("run", *SMALL, "--method", "fair_prompt", "--out", "second")

    result = cli("compare", "first", "second", "--out", "both")

    assert result.code == 0
    assert "? Cannot tell: fair_prompt may be anything from " in result.out


def test_a_plan_file_gives_the_same_run_as_flags(cli, tmp_path: Path):
    plan = "benchmark: bbq_builtin\nmodels: [fake/A]\nmethods: [default, cot]\nlimit: 22\nseeds: [3]\n"
    (tmp_path / "plan.yaml").write_text(plan)
    toml = 'benchmark = "bbq_builtin"\nmodels = ["fake/A"]\nmethods = ["default", "cot"]\nlimit = 22\nseeds = [3]\n'
    (tmp_path / "plan.toml").write_text(toml)
    flags = ("--model", "fake/A", "--method", "default", "--method", "cot", "--limit", "22", "--seed", "3")

    for name, arguments in {
        "yaml": ("--config", "plan.yaml"),
        "toml": ("--config", "plan.toml"),
        "flags": flags,
    }.items():
        assert cli("run", *arguments, "--out", name).code == 0
        assert cli("run", "export", name, "-o", f"{name}.jsonl").code == 0

    texts = {(tmp_path / f"{name}.jsonl").read_bytes() for name in ("yaml", "toml", "flags")}
    assert len(texts) == 1


def test_dry_run_prints_calls_tokens_and_money_and_writes_nothing(cli, tmp_path: Path):
    result = cli(
        "compare", "--model", "openai/x", "--limit", "100", "--dry-run", "--price", "openai/x=1/2", "--out", "r"
    )

    assert result.code == 0
    row = next(line for line in result.out.splitlines() if "cot" in line)
    assert "200" in row
    assert "$" in row
    assert not (tmp_path / "r").exists()


def test_dry_run_counts_the_calls_that_the_run_then_makes(cli):
    forecast = cli("run", "--model", "fake/A", "--method", "cot", "--limit", "22", "--dry-run")
    cli("run", "--model", "fake/A", "--method", "cot", "--limit", "22", "--out", "r", "--no-cache")
    cli("run", "export", "r", "--usage", "-o", "usage.jsonl")

    made = sum(json.loads(line)["calls"] for line in Path("usage.jsonl").read_text().splitlines())
    assert made == 44
    assert f" {made} " in forecast.out


def test_budget_stops_with_its_own_exit_code_and_resume_completes(cli):
    stopped = cli("run", *SMALL, "--no-cache", "--budget", "20 calls", "--out", "r")
    assert stopped.code == 3
    assert "20 of 44 done" in stopped.out

    resumed = cli("run", *SMALL, "--no-cache", "--resume", "--out", "r")

    assert resumed.code == 0
    assert "44 of 44 done" in resumed.out


def test_show_prints_the_plan_and_one_samples_story(cli):
    cli("run", *SMALL, "--method", "cot", "--out", "r")

    overview = cli("run", "show", "r")
    sample = cli("run", "show", "r", "--list").out.split()[0]
    story = cli("run", "show", "r", sample)

    assert "cot: 44 graded, 0 pending" in overview.out
    assert "reasoner" in story.out
    assert "⇒ graded" in story.out


def test_show_does_not_obey_terminal_controls_in_model_text(cli):
    cli("run", "--model", "fake/\x1b[31mA) red", "--limit", "4", "--out", "r")
    sample = cli("run", "show", "r", "--list").out.split()[0]

    assert "\x1b" not in cli("run", "show", "r", sample).out


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_export_writes_one_row_per_outcome(cli, tmp_path: Path, ending: str):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    cli("run", *SMALL, "--method", "default", "--method", "cot", "--out", "r")

    result = cli("run", "export", "r", "-o", f"t.{ending}")

    assert "88 rows" in result.out
    if ending == "csv":
        with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 88
        assert {row["status"] for row in rows} == {"graded"}


@pytest.mark.parametrize("name", ["t.xlsx", "t.html", "t.md", "t.json", "t.csv.gz"])
def test_export_to_an_unknown_ending_is_refused(cli, tmp_path: Path, name: str):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")

    result = cli("run", "export", "r", "-o", name)

    assert result.code == 2
    assert f"{name} should end in .csv, .jsonl, .parquet, .tex or .eval; or give a --format." in result.err
    assert not (tmp_path / name).exists()
    assert cli("run", "export", "r", "-o", name, "--format", "csv").code == 0
    assert cli("run", "export", "r", "-o", "T.CSV").code == 0


def test_a_parquet_table_is_written_in_pieces_of_one_schema(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("evenhand.studies.export._BATCH", 10)
    cli("run", *SMALL, "--method", "default", "--method", "cot", "--out", "r")

    assert cli("run", "export", "r", "-o", "t.parquet").code == 0

    file = parquet.ParquetFile(tmp_path / "t.parquet")
    assert (file.metadata.num_rows, file.num_row_groups) == (88, 9)
    cli("run", "export", "r", "-o", "t.jsonl")
    with (tmp_path / "t.jsonl").open(encoding="utf-8") as lines:
        samples = [json.loads(line)["sample"] for line in lines]
    assert file.read().column("sample").to_pylist() == samples


def test_export_writes_a_table_for_a_paper(cli, tmp_path: Path):
    cli("run", *SMALL, "--out", "r")

    assert "booktabs" in cli("run", "export", "r", "--format", "latex").out
    assert r"\toprule" in (tmp_path / "r" / "metrics.tex").read_text(encoding="utf-8")
    refused = cli("run", "export", "r", "--table", "turns", "-o", "turns.tex")
    assert (refused.code, "metrics and effects" in refused.err) == (2, True)


def test_export_of_metrics_and_effects(cli):
    cli("run", *SMALL, "--method", "default", "--method", "cot", "--out", "r")

    assert cli("run", "export", "r", "--table", "metrics", "-o", "m.jsonl").code == 0
    assert cli("run", "export", "r", "--table", "effects", "-o", "e.csv").code == 0
    assert cli("run", "export", "r", "--table", "turns", "-o", "turns.jsonl").code == 0
    metrics = [json.loads(line) for line in Path("m.jsonl").read_text().splitlines()]
    assert {"metric", "value", "low", "high", "n"} <= metrics[0].keys()
    turns = [json.loads(line) for line in Path("turns.jsonl").read_text().splitlines()]
    with Path("e.csv").open(encoding="utf-8", newline="") as file:
        effects = list(csv.DictReader(file))
    assert {(row["before"], row["after"]) for row in effects} == {("default", "cot")}
    for row in (metrics[0], turns[0], effects[0]):
        assert (row["benchmark"], row["model"], str(row["seed"])) == ("bbq_builtin", "fake/A", "0")
        assert row["arm"] == row["method"]


def test_same_plan_seed_and_cache_give_the_same_bytes(cli, tmp_path: Path):
    for name in ("a", "b"):
        cli("run", *SMALL, "--out", name)
        cli("run", "export", name, "-o", f"{name}.csv")

    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
