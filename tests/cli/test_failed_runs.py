"""Runs in which samples fail: the reasons, the exit code and the report, with a real server that misbehaves."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.core.http import RetryPolicy
from support.server import Body, ChatServer, Reply, chat, raw, refuse

Endpoint = Callable[..., ChatServer]
FAULT = "CUDA out of memory on worker 3"
UNREADABLE = "I would rather talk about tea."


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "delay", lambda *_: 0.0)


QUICK = ("--retries", "1", "--no-cache", "--out", "r")


def model(server: ChatServer) -> tuple[str, ...]:
    return ("--model", "openai/x", "--base-url", server.url, *QUICK)


def sometimes_failing(body: Body) -> Reply:
    """Answers A, but fails for a part of the questions."""
    return raw(FAULT.encode(), 500) if len(body["messages"][-1]["content"]) % 5 == 0 else chat("A")


def test_an_audit_in_which_no_answer_can_be_read_says_why_and_prints_no_metric(cli, endpoint: Endpoint, tmp_path: Path):
    result = cli("audit", *model(endpoint(chat(UNREADABLE))), "--limit", "44")

    assert result.code == 4
    assert "44 × unscored: no option could be read from the text answer" in result.out
    assert "The first reply that could not be read: " in result.out
    assert "? Cannot tell: nothing was measured, none of the 44 samples has a grade." in result.out
    assert "Bias, ambiguous" not in result.out
    html = (tmp_path / "r/report.html").read_text(encoding="utf-8")
    assert "Nothing was measured, none of the 44 samples has a grade." in html
    assert "Bias, ambiguous" not in html[: html.index("<script")].split("Everything needed to repeat")[0]


def test_the_reason_is_in_the_words_of_the_server(cli, endpoint: Endpoint):
    result = cli("run", *model(endpoint(raw(FAULT.encode(), 500))), "--limit", "8")

    assert result.code == 4
    assert "8 × failed: The endpoint" in result.out
    assert FAULT in result.out


def test_an_endpoint_that_never_answers_ends_the_run_early_with_the_same_code(cli, endpoint: Endpoint):
    result = cli("audit", *model(endpoint(raw(FAULT.encode(), 500))), "--limit", "220")

    assert result.code == 4
    assert FAULT in result.err


def test_some_failures_are_listed_beside_the_verdict_and_do_not_fail_the_command(cli, endpoint: Endpoint):
    server = endpoint(answer=sometimes_failing)

    result = cli("audit", *model(server), "--limit", "220")

    assert result.code == 0
    assert "× failed: The endpoint" in result.out
    verdict, caveat = result.out.index(": openai/"), result.out.index("! default: ")
    assert verdict < caveat
    assert "samples have no grade. The graded ones may not represent all." in result.out
    assert "evenhand resume r --retry-failed" in result.out


@pytest.mark.parametrize(("limit", "code"), [("0%", 4), ("0", 4), ("50%", 0), ("100", 0)])
def test_max_failed_decides_how_many_samples_may_lack_a_grade(cli, endpoint: Endpoint, limit: str, code: int):
    server = endpoint(answer=sometimes_failing)

    result = cli("run", *model(server), "--limit", "220", "--max-failed", limit)

    assert result.code == code
    assert (f"more than --max-failed {limit}" in result.err) == (code == 4)


def test_refusals_are_results(cli, endpoint: Endpoint):
    server = endpoint(chat(None, refusal="I will not answer that."))

    result = cli("run", *model(server), "--limit", "8", "--max-failed", "0")

    assert result.code == 0, result
    assert "8 refused" in result.out


@pytest.mark.parametrize("limit", ["many", "-1", "120%", "5 %%"])
def test_a_wrong_limit_is_one_sentence(cli, limit: str):
    result = cli("run", "--model", "fake/A", "--limit", "4", f"--max-failed={limit}")

    assert result.code == 2
    assert "--max-failed takes a share or a number" in result.err


def test_a_dropped_parameter_stands_beside_the_verdict(cli, endpoint: Endpoint):
    def answer(body: Body) -> Reply:
        if "logprobs" in body:
            return refuse("Unsupported parameter: 'logprobs'", param="logprobs")
        return chat("A")

    result = cli("audit", *model(endpoint(answer=answer)), "--limit", "8")

    assert result.code == 0, result
    assert "does not support logprobs; requests were sent without it." in result.out.replace("\n", " ")


def test_a_report_of_a_failed_run_exits_with_4_too(cli):
    cli("run", "--model", "fake/nothing", "--limit", "8", "--out", "r")

    assert cli("report", "r").code == 4
    assert cli("compare", "r").code == 4
    assert "unscored" in cli("compare", "r").out


def test_one_arm_without_a_result_fails_the_command_though_another_was_measured(cli, endpoint: Endpoint):
    def answer(body: Body) -> Reply:
        return raw(FAULT.encode(), 500) if body["model"] == "broken" else chat("A")

    server = endpoint(answer=answer)
    models = ("--model", "openai/works", "--model", "openai/broken", "--base-url", server.url)

    result = cli("compare", "-b", "bbq_builtin", "--method", "default", *models, *QUICK, "--limit", "8")

    assert result.code == 4
    assert "openai/broken: nothing was measured: none of the 8 samples has a grade." in result.err
    assert "openai/works: nothing" not in result.err
    assert "openai/broken: none of the 8 samples has a grade. Reasons: 8 × failed, The endpoint" in result.out
    assert "Accuracy" in result.out  # the arm that was measured is shown
    assert cli("report", "r").code == 4
    assert cli("compare", "r").code == 4
    assert "failed in 1 of 2 arms" in cli("runs", ".", "--json").out


def test_a_budget_that_stops_stands_beside_the_verdict(cli):
    result = cli("audit", "fake/A", "--limit", "44", "--budget", "20 calls", "--no-cache", "--out", "r")

    assert result.code == 3
    assert "! default: 24 samples were not run." in result.out


def test_a_suite_calls_failed_samples_failed_and_not_unreadable(cli, endpoint: Endpoint, tmp_path: Path):
    (tmp_path / "one.yaml").write_text(
        "areas:\n- area: Answers\n  asks: How?\n  runs:\n  - {benchmark: bbq_builtin, limit: 44}\n"
    )

    result = cli("suite", "one.yaml", *model(endpoint(answer=sometimes_failing)))

    row = json.loads((tmp_path / "r/suite.json").read_text())["areas"][0]
    assert re.search(r"44 samples;.* \d+ % failed", row["how_sure"]), result.out
    assert "could not be read" not in row["how_sure"]


def test_a_run_whose_judge_cannot_be_read_measured_nothing(cli):
    asked = ("--model", "fake/A", "--benchmark", "realtoxicity_builtin", "--scorer", "judge", "--judge", "fake/A")

    assert cli("audit", *asked, "--limit", "2", "--out", "r").code == 4
    assert cli("resume", "r").code == 4
    assert "Toxicity is undefined (n = 0): no scorer rated it" in cli("report", "r").out


def test_reasons_to_doubt_the_numbers_are_also_in_the_object_for_programs(cli):
    [run] = json.loads(cli("audit", "fake/A", "--limit", "44", "--out", "r", "--json").out)["runs"]

    assert any(each.startswith("Strong position bias") for each in run["warnings"])
