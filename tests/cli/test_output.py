"""What commands show of a run: progress, -v, --log, --quiet and --json."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from evenhand.cli.progress import describe
from evenhand.core.events import Activity
from evenhand.core.http import RetryPolicy
from evenhand.core.progress import Progress
from evenhand.core.types import Usage
from support.server import Body, ChatServer, Reply, chat, raw, refuse

Endpoint = Callable[..., ChatServer]
KEY = "sk-a-very-secret-key"
QUIET = ("--limit", "4", "--no-cache", "--out", "r")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "delay", lambda *_: 0.0)


def model(server: ChatServer) -> tuple[str, ...]:
    return ("--model", "openai/x", "--base-url", server.url, *QUIET)


def test_the_line_shows_everything_from_the_first_second():
    progress = Progress(total=220, stage="")

    line = describe(progress, time.monotonic())

    assert line == "0/220, 0 in flight, 0 retries, 0 cut, 0 failed, 0 tokens, $0.00, time left unknown"


def test_the_line_counts_calls_and_statuses():
    statuses = Counter({"graded": 90, "failed": 3, "cut": 2, "unscored": 4, "refused": 1})
    spent, activity = Usage(1, 1000, 234, cost=None), Activity(calls=70, held=6, retries=5)
    progress = Progress(200, 100, 0, statuses, spent, stage="", activity=activity)

    line = describe(progress, time.monotonic() - 60)

    assert line.startswith("100/200, 64 in flight, 6 waiting, 5 retries, 2 cut, 3 failed, 5 without an answer, 1,234 ")
    assert line.endswith("price unknown, 1:00 left") or line.endswith("price unknown, 0:59 left")


def test_before_the_first_sample_the_line_says_what_is_loaded():
    assert describe(Progress(stage="loading local/big"), time.monotonic()) == "loading local/big"


def test_lines_come_while_nothing_finishes(cli, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch):
    lines: list[str] = []
    seen = threading.Event()

    def echo(text: str, err: bool = False) -> None:
        if not err:
            return
        lines.append(text)
        if "1 in flight" in text:  # the first reply shows what the endpoint can do; the others wait for it
            seen.set()

    async def wait_for_the_line(request: web.Request) -> web.StreamResponse:
        assert await asyncio.to_thread(seen.wait, 600)
        return await chat("A")(request)

    monkeypatch.setattr("evenhand.cli.progress._FIRST", 0.01)
    monkeypatch.setattr("evenhand.cli.progress._EVERY", 0.01)
    monkeypatch.setattr("evenhand.cli.progress.click.echo", echo)

    result = cli("run", *model(endpoint(wait_for_the_line)))

    assert result.code == 0
    assert any(line.startswith("0/4, 1 in flight, 0 retries") for line in lines)


def once_busy() -> Callable[[Body], Reply]:
    """The first request fails, logprobs are not supported, and one question gets no readable answer."""
    asked: list[Body] = []

    def answer(body: Body) -> Reply:
        asked.append(body)
        if len(asked) == 1:
            return raw(b"too busy, come back later", 503)
        if "logprobs" in body:
            return refuse("Unsupported parameter: 'logprobs'", param="logprobs")
        return chat("A")

    return answer


def test_verbose_prints_each_event_as_one_line(cli, endpoint: Endpoint):
    result = cli("run", *model(endpoint(answer=once_busy())), "-v", "-c", "1")

    lines = result.err.splitlines()
    assert sum("tried again in 0.0 s: The endpoint" in line and "too busy" in line for line in lines) == 1
    assert sum("does not support logprobs; it is left out" in line for line in lines) == 1
    assert all(line.startswith("default ") for line in lines)


def test_verbose_prints_failures_with_arm_and_sample(cli):
    result = cli("run", "--model", "fake/nothing", *QUIET, "-v")

    assert len(result.err.splitlines()) == 4
    assert all(": unscored: no option could be read" in line for line in result.err.splitlines())


def test_the_log_has_a_json_object_for_each_event_and_no_prompts(
    cli, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    cli("run", *model(endpoint(answer=once_busy())), "--log", "log.jsonl", "-c", "1")

    text = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    assert Counter(each["event"] for each in events) >= Counter(
        {"retry": 1, "drop": 1, "sample": 4, "call": 4, "stage": 2}
    )
    retry = next(each for each in events if each["event"] == "retry")
    assert retry["arm"] == "default"
    assert retry["sample"]
    assert retry["run"] == "r"
    assert "too busy" in retry["reason"]
    assert "messages" not in text
    assert KEY not in text


def test_with_verbose_the_log_has_prompts_and_replies_and_is_appended_to(cli, tmp_path: Path):
    for name in ("a", "b"):
        cli("run", "--model", "fake/A", "--limit", "4", "--no-cache", "--out", name, "--log", "log.jsonl", "-v")

    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    calls = [each for each in events if each["event"] == "call"]
    assert Counter(each["run"] for each in calls) == {"a": 4, "b": 4}
    assert calls[0]["reply"] == "A"
    assert calls[0]["messages"][0]["role"] == "user"


def test_quiet_prints_errors_only(cli, tmp_path: Path):
    result = cli("audit", "fake/A", *QUIET, "--quiet")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert (tmp_path / "r/report.html").is_file()
    again = cli("audit", "fake/A", *QUIET, "--quiet")
    assert (again.code, again.out) == (2, "")
    assert "holds a run already" in again.err


def test_quiet_and_verbose_exclude_each_other(cli):
    assert cli("audit", "fake/A", *QUIET, "--quiet", "-v").code == 2


def test_json_is_one_object_with_counts_metrics_and_the_report(cli):
    result = cli("audit", "fake/A", "--method", "default", "--method", "cot", *QUIET, "--json")

    summary = json.loads(result.out)
    assert (result.code, summary["exit_code"], summary["state"], summary["cost"]) == (0, 0, "complete", 0.0)
    assert summary["report"] == "r/report.html"
    (run,) = summary["runs"]
    assert (run["run"], run["benchmark"], run["models"]) == ("r", "bbq_builtin", ["fake/A"])
    assert [(arm["arm"], arm["counts"]) for arm in run["arms"]] == [("default", {"graded": 4}), ("cot", {"graded": 4})]
    assert {"metric", "value", "low", "high", "n"} == run["arms"][0]["metrics"][0].keys()


def test_json_of_a_failed_run_has_reasons_and_no_metric(cli):
    result = cli("run", "--model", "fake/nothing", *QUIET, "--json")

    summary = json.loads(result.out)
    assert (result.code, summary["exit_code"], summary["state"]) == (4, 4, "failed")
    (arm,) = summary["runs"][0]["arms"]
    assert arm["metrics"] == []
    assert arm["reasons"] == [
        {"status": "unscored", "reason": "no option could be read from the text answer", "count": 4}
    ]


def test_json_of_bad_input_is_an_object_too(cli):
    result = cli("audit", "fake/A", "--benchmark", "none", "--json")

    assert result.code == 2
    assert json.loads(result.out)["exit_code"] == 2
    assert "There is no benchmark named 'none'" in json.loads(result.out)["error"]


def test_json_of_a_dry_run_is_the_forecast(cli):
    result = cli("audit", "fake/A", *QUIET, "--dry-run", "--json")

    (arm,) = json.loads(result.out)["forecast"]
    assert (arm["arm"], arm["samples"], arm["calls"]) == ("default", 4, 4)


@pytest.mark.parametrize(
    "command", ["run plan", "audit", "compare", "judges malibu", "train debate", "judges framing", "resume"]
)
def test_commands_that_run_plans_have_the_same_options(cli, command: str):
    shown = cli(*command.split(), "--help-all").out

    for option in ("-v, --verbose", "--log FILE", "--quiet", "--json", "--max-failed"):
        assert option in shown


def test_papers_have_them_too(cli):
    assert "--log FILE" in cli("papers", "malibu", "--help-all").out
