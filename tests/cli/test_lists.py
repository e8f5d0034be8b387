"""The commands that tell what there is, and the ones that look at one thing."""

import hashlib
import json
from contextlib import closing
from pathlib import Path

from evenhand.runs.store import Store
from evenhand.runs.stored import prompts_used


def test_methods_lists_each_with_its_options(cli):
    out = cli("list", "methods").out

    assert "fair_prompt" in out
    assert "max_tokens=256" in out


def test_benchmarks_lists_each_with_its_options(cli):
    out = cli("list", "benchmarks").out

    assert "bbq_builtin" in out
    assert "categories, legacy, language, subset" in out


def test_a_method_is_shown_with_its_options_and_presets(cli):
    out = cli("list", "methods", "stardtox").out

    assert "toxicity: a number from 0 to 1, optional\n      Texts with a toxicity below this value pass" in out
    assert "preset: evenhand or paper, default evenhand" in out
    [values] = [line for line in out.splitlines() if line.strip().startswith("paper:")]
    assert "toxicity=0.1" in values
    assert "candidates=1, memory=true, scores=true, keep=last" in values
    assert "It takes no options" in cli("list", "methods", "default").out


def test_an_unknown_method_is_told_with_the_nearest(cli):
    told = cli("list", "methods", "stardtoks")

    assert told.code == 2
    assert "did you mean stardtox" in told.err


def test_a_benchmark_is_shown_with_its_options(cli):
    out = cli("list", "benchmarks", "malibu").out

    assert "A limit counts scenarios" in out
    assert "phase: both or 1 or 2, default both\n      Judge one candidate (1)" in out
    assert "data: a text, optional\n" in out
    assert "It takes no options" in cli("list", "benchmarks", "squad_builtin").out


def test_a_scorer_is_shown_with_its_options(cli):
    out = cli("list", "scorers", "judge").out

    assert "model: a text, needed\n      The model to call" in out


def test_models_says_what_is_ready_and_what_is_missing(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")

    out = cli("models").out

    assert "openai     ready" in out
    assert "not here: evenhand models pull qwen2.5-1.5b" in out
    assert "OPENAI_API_KEY is set" in out
    assert "very-secret" not in out


def test_data_says_where_each_set_lies(cli):
    assert "not here: evenhand data pull bbq" in cli("data").out


def test_pull_tells_a_sum_that_nobody_vouches_for(cli, tmp_path: Path):
    content = b'{"prompt": {"text": "So he", "toxicity": 0.55}}\n'
    (tmp_path / "realtoxicity").mkdir()
    (tmp_path / "realtoxicity" / "prompts.jsonl").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    (tmp_path / "realtoxicity" / "prompts.jsonl.sha256").write_text(f"{found}  prompts.jsonl\n")

    out = cli("data", "pull", "realtoxicity", "--out", str(tmp_path)).out

    assert "0 files fetched, 1 there already" in out
    assert "Apache-2.0" in out
    assert f"could not be checked; its SHA-256 is {found}" in out


def test_doctor_shows_an_answer_and_what_the_model_supports(cli):
    result = cli("doctor", "fake/A")

    assert result.code == 0
    assert "answers   'A'" in result.out
    assert "logprobs  no" in result.out
    assert "schema    no" in result.out


def test_metrics_scores_answers_to_the_built_in_questions(cli, tmp_path: Path):
    from evenhand.data.bbq.generate import builtin_rows

    rows = [row for row in builtin_rows() if row["category"] == "Age"]
    lines = [{"category": "Age", "example_id": row["example_id"], "prediction": row["target_loc"]} for row in rows]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

    table = cli("metrics", "bbq", "p.jsonl", "--builtin")
    scores = json.loads(cli("metrics", "bbq", "p.jsonl", "--builtin", "--json").out)

    assert "100.0" in table.out
    assert scores["Age"]["ambig"]["bias"] == 100.0
    assert scores["Age"]["disambig"]["bias"] == 100.0
    assert scores["Age"]["ambig"]["n"] == len(rows) / 2


def test_an_unexpected_fault_is_one_sentence_and_not_a_traceback(cli, monkeypatch):
    monkeypatch.setattr("evenhand.methods.base.METHODS.names", lambda: 1 / 0)

    result = cli("list", "methods")

    assert result.code == 1
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err


def test_the_prompts_of_a_method_are_listed_written_and_used(cli, tmp_path: Path):
    assert "  methods/cot/reason\n" in cli("list", "methods", "cot").out
    assert cli("list", "methods", "cot", "--prompts", "mine").code == 0
    path = tmp_path / "mine/methods/cot/reason.md"
    path.write_text(path.read_text().replace("# user\n", "# user\nBe slow.\n"))

    audit = ("audit", "fake/A", "--method", "cot", "--limit", "1", "--templates", "mine", "--out", "run")
    assert cli(*audit).code == 0
    path.write_text(path.read_text().replace("slow", "quick"))
    resumed = cli(*audit, "--resume")

    with closing(Store(tmp_path / "run")) as store:
        assert (
            prompts_used(store)["methods/cot/reason"]
            == hashlib.sha256(path.read_bytes().replace(b"quick", b"slow")).hexdigest()[:16]
        )
    assert resumed.code == 2 and "or templates" in resumed.err
    assert cli("list", "methods", "cot", "--prompts", "mine").code == 2
    assert cli("list", "methods", "--prompts", "other").code == 2
