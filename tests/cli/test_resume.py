"""`evenhand resume`: nothing but the folder is needed."""

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenhand.runs.store import Store
from support.server import chat, hang, raw

Endpoint = Any
SMALL = ("--model", "fake/A", "--limit", "44", "--no-cache")


def test_a_budget_stop_prints_the_command_that_goes_on(cli):
    stopped = cli("run", *SMALL, "--budget", "20 calls", "--out", "r")

    assert stopped.code == 3
    assert "Continue with a larger budget: evenhand resume r --budget '40 calls'\n" in stopped.out


def test_resume_completes_the_run_and_ends_as_its_command_would_have(cli, tmp_path: Path):
    cli("compare", *SMALL, "--baseline", "cot", "--budget", "20 calls", "--out", "r")

    result = cli("resume", "r", "--budget", "4000 calls")

    assert result.code == 0, result
    assert "132 of 132 done" in result.out
    assert "points better than cot" in " ".join(result.out.split())
    assert (tmp_path / "r/report.html").is_file()


def test_without_a_new_budget_the_old_one_holds(cli):
    cli("run", *SMALL, "--budget", "20 calls", "--out", "r")

    assert cli("resume", "r").code == 3


def test_resume_of_a_plain_run_writes_no_report(cli, tmp_path: Path):
    cli("run", *SMALL, "--budget", "20 calls", "--out", "r")

    assert cli("resume", "r", "--budget", "90 calls").code == 0
    assert not (tmp_path / "r/report.html").exists()


def test_endpoint_and_prices_are_in_the_folder(cli, endpoint: Endpoint):
    server = endpoint(chat("A"))
    reach = ("--model", "openai/x", "--base-url", server.url, "--price", "openai/x=1000000/0")
    cli("run", *reach, "--limit", "8", "--no-cache", "--budget", "3 calls", "--reading", "text", "--out", "r")
    assert len(server.requests) == 3

    result = cli("resume", "r", "--budget", "$100000", "--json")

    assert result.code == 0, result
    assert len(server.requests) == 8
    assert json.loads(result.out)["cost"] == 8 * 20


def test_failed_samples_are_run_again_where_that_is_asked_for(cli, endpoint: Endpoint):
    replies = [chat("A")] * 4 + [raw(b"oops", 500)] * 4 + [chat("A")]
    reach = ("--model", "openai/x", "--base-url", endpoint(*replies).url, "--retries", "0", "-c", "1")
    first = cli("run", *reach, "--limit", "8", "--no-cache", "--reading", "text", "--out", "r")
    assert "4 failed" in first.out

    assert "4 failed" in cli("resume", "r").out
    assert "8 of 8 done (8 graded)" in cli("resume", "r", "--retry-failed").out


def test_debates_end_with_their_scores(cli):
    arguments = (
        "train",
        "debate",
        "--topics",
        "4",
        "--rounds",
        "1",
        "--model",
        "fake/hello",
        "--no-cache",
        "--out",
        "r",
    )
    cli(*arguments, "--budget", "6 calls")

    result = cli("resume", "r", "--budget", "600 calls")

    assert result.code == 4
    assert "No statement has a score" in result.out


@pytest.mark.parametrize("command", ["run", "audit", "compare"])
def test_resume_without_a_run_is_refused(cli, command: str, tmp_path: Path):
    result = cli(command, *SMALL, "--resume", "--out", "r")

    assert result.code == 2
    assert (
        "There is no run in r to resume; begin one with evenhand audit, compare or run, without --resume." in result.err
    )
    assert not (tmp_path / "r").exists()


def test_what_is_no_run_is_one_sentence(cli, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    cli("audit", *SMALL, "--out", "r")

    assert "There is no run in empty to resume" in cli("resume", "empty").err
    assert "There is no run in nowhere to resume" in cli("resume", "nowhere").err
    file = cli("resume", "r/report.html")
    assert file.code == 2
    assert "r/report.html is a file; name the folder of its run: r." in file.err


def test_an_interrupted_run_prints_the_command_and_goes_on(cli, endpoint: Endpoint, tmp_path: Path):
    server = endpoint(chat("A"), hang())
    command = [sys.executable, "-m", "evenhand", "run", "--model", "openai/x", "--base-url", server.url]
    command += ["--limit", "8", "--no-cache", "--reading", "text", "-c", "1", "--out", "r"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    endpoint.has_seen(server, 2)

    process.send_signal(signal.SIGINT)
    _, told = process.communicate()

    assert process.returncode == 130
    assert told.splitlines()[-1] == "evenhand: Interrupted. Continue with: evenhand resume r"
    assert "Traceback" not in told
    server._replies = [chat("A")]
    result = cli("resume", "r")
    assert result.code == 0, result
    assert "8 of 8 done (8 graded)" in result.out


@pytest.mark.parametrize("origin", [{}, {"report": None, "how": {"baseline": "cot"}}], ids=["Python", "version 0.2"])
def test_a_run_that_names_no_command_ends_with_a_report(cli, tmp_path: Path, origin: dict[str, Any]):
    cli("compare", *SMALL, "--method", "default", "--method", "cot", "--budget", "20 calls", "--out", "r")
    with closing(Store(tmp_path / "r")) as store:
        store.put(settings={**store.get("settings"), "origin": origin})

    result = cli("resume", "r", "--budget", "4000 calls")

    assert result.code == 0, result
    assert "Report: r/report.html" in " ".join(result.out.split())


def test_a_folder_of_version_0_2_is_refused_in_one_sentence(cli):
    Path("p").mkdir()
    Path("p/command.json").write_text(json.dumps({"paper": "stardtox", "given": {"limit": 1}}), encoding="utf-8")

    result = cli("resume", "p")

    assert result.code == 2
    assert result.err.splitlines()[-1].endswith(
        "p/command.json is damaged or of another version; repeat the command with --resume."
    )


def test_what_was_asked_is_stored_by_the_names_of_its_fields(cli, tmp_path: Path):
    cli("compare", *SMALL, "--baseline", "cot", "--max-tokens", "base=40", "--price", "fake/A=1/2", "--out", "r")

    with closing(Store(tmp_path / "r")) as store:
        origin = store.get("settings")["origin"]

    assert origin["command"] == "compare"
    assert origin["asked"]["baseline"] == "cot"
    assert origin["asked"]["max_tokens"] == {"base": 40}
    assert origin["asked"]["prices"] == {"fake/A": {"input": 1.0, "output": 2.0}}
    assert "out" not in origin["asked"]
