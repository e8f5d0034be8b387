"""`evenhand serve`, its keys, `spent` and `audit`: what the people who run the server type."""

import asyncio
import contextlib
import json
import re
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
import yaml

from evenhand.server.config import StateConfig, make_config
from evenhand.server.state.state import load_state
from evenhand.server.state.types import Settle
from evenhand.server.telemetry.audit import AuditLog
from evenhand.server.telemetry.events import Event, Recorded
from evenhand.web.keys import Auth, BudgetConfig

EVENT = Event("r1", time.time(), "chat", "/v1/chat/completions", action="revised", prompt="Hello")
LIMITS = ("--route", "a", "--expires", "2027-01-31", "--at-once", "3")
BUDGET = ("--budget", "2M tokens", "--budget", "$20", "--per", "month")


def test_a_new_key_comes_with_the_line_that_lets_it_in(cli):
    result = cli(
        "serve", "keys", "web:app", "--may", "score", "--may", "metrics", "--per-minute", "60", *LIMITS, *BUDGET
    )

    assert result.code == 0
    key = re.search(r"^evh-\S{40,}$", result.out, re.MULTILINE)
    assert key
    config = make_config(
        {**yaml.safe_load(result.out[result.out.index("keys:") :]), "routes": {"a": {"model": "fake/x"}}}
    )
    assert config.keys["web:app"].may == ("score", "metrics")
    assert config.keys["web:app"].per_minute == 60
    assert config.keys["web:app"].at_once == 3
    assert config.keys["web:app"].budget == BudgetConfig(tokens=2_000_000, money=20, per="month")
    assert config.keys["web:app"].routes == ("a",)
    assert config.keys["web:app"].expires == datetime(2027, 1, 31, tzinfo=UTC)
    assert key[0] not in str(config)
    Auth(config.keys, "0.0.0.0")


@pytest.mark.parametrize(
    "arguments",
    [
        ["a b"],
        ["x", "--may", "all"],
        ["x", "--per-minute", "0"],
        ["x", "--expires", "soon"],
        ["x", "--route", "a b"],
        [],
    ],
)
def test_bad_keys_are_refused_in_a_sentence(cli, arguments: list[str]):
    result = cli("serve", "keys", *arguments)

    assert result.code == 2
    assert "Traceback" not in result.err
    assert "evh-" not in result.out
    assert "Value error" not in result.err


def test_the_audit_file_is_written_as_json_lines(cli, tmp_path: Path):
    log = AuditLog(tmp_path / "audit.sqlite", texts="full")
    log(EVENT)
    log.close()

    shown = cli("serve", "audit", "export", "audit.sqlite")
    filed = cli(
        "serve", "audit", "export", "audit.sqlite", "--action", "revised", "--since", "2026-01-01", "--out", "out.jsonl"
    )
    none = cli("serve", "audit", "export", "audit.sqlite", "--action", "blocked")

    assert json.loads(shown.out)["prompt"] == "Hello"
    assert json.loads((tmp_path / "out.jsonl").read_text()) == json.loads(shown.out)
    assert "1 requests" in filed.out
    assert none.out == ""


def test_every_action_that_is_recorded_can_be_exported(cli, tmp_path: Path):
    log = AuditLog(tmp_path / "audit.sqlite")
    for action in get_args(Recorded):
        log(replace(EVENT, id=action, action=action))
    log.close()

    for action in ("bypassed", "scored", "embedded"):
        result = cli("serve", "audit", "export", "audit.sqlite", "--action", action)
        assert [json.loads(line)["id"] for line in result.out.splitlines()] == [action], result.err


def test_what_is_no_audit_file_is_refused_in_a_sentence_and_nothing_is_overwritten(cli, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no database")
    (tmp_path / "out.jsonl").write_text("from last month")

    for name in ("notes.txt", "missing.sqlite", "."):
        result = cli("serve", "audit", "export", name, "--out", "out.jsonl")
        assert (result.code, "audit file" in result.err) == (2, True)
        assert "Traceback" not in result.err
    assert (tmp_path / "out.jsonl").read_text() == "from last month"


def test_the_audit_file_is_not_written_over_itself(cli, tmp_path: Path):
    AuditLog(tmp_path / "audit.sqlite").close()

    result = cli("serve", "audit", "export", "audit.sqlite", "--out", "./audit.sqlite")

    assert (result.code, "another" in result.err) == (2, True)
    assert (tmp_path / "audit.sqlite").read_bytes().startswith(b"SQLite")


def _audit_file(file: Path, requests: int = 3, key: bytes = b"") -> Path:
    log = AuditLog(file, texts="full", key=key)
    for _ in range(requests):
        log(EVENT)
    log.close()
    return file


def test_an_intact_audit_file_is_counted(cli, tmp_path: Path):
    _audit_file(tmp_path / "audit.sqlite")

    result = cli("serve", "audit", "verify", "audit.sqlite")

    assert (result.code, result.err) == (0, "")
    assert "audit.sqlite is intact: 3 requests (3 revised)." in result.out


def test_an_empty_audit_file_is_intact(cli, tmp_path: Path):
    _audit_file(tmp_path / "audit.sqlite", 0)

    assert "intact: 0 requests." in cli("serve", "audit", "verify", "audit.sqlite").out


def test_several_files_are_verified_each_with_its_rotated_ones(cli, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AUDIT_KEY", "k" * 16)
    for name in ("audit.worker1.sqlite", "audit.worker2.sqlite"):
        _audit_file(tmp_path / name)
    _audit_file(tmp_path / "audit.worker1.sqlite", key=b"k" * 16)
    (rotated,) = tmp_path.glob("audit.worker1-*.sqlite")
    _change(tmp_path / "audit.worker2.sqlite", "DELETE FROM requests WHERE number = 2")

    files = ("audit.worker1.sqlite", rotated.name, "audit.worker2.sqlite")
    result = cli("serve", "audit", "verify", *files, "--key-env", "AUDIT_KEY")

    assert result.code == 1
    assert "audit.worker1.sqlite is intact: 6 requests in 2 files (6 revised)." in result.out
    assert "The chain is signed and ends with row 10, hash" in result.out
    assert "audit.worker2.sqlite is damaged: audit.worker2.sqlite: row 2 is missing" in result.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
        (("--contains", "xyz"), "is not a hash"),
        ((), "signed with a key"),
    ],
)
def test_a_verification_that_lacks_its_key_ends_with_a_sentence(cli, tmp_path: Path, options, words: str):
    _audit_file(tmp_path / "audit.sqlite", key=b"k" * 16)

    result = cli("serve", "audit", "verify", "audit.sqlite", *options)

    assert (result.code, result.out, words in result.err) == (2, "", True)


def _change(file: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute(statement)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


DAMAGES = {
    "half a record": (
        lambda file: _change(file, "UPDATE requests SET body = '{' WHERE number = 2"),
        "row 2 cannot",
    ),
    "another version": (lambda file: _change(file, "PRAGMA user_version=9"), "version 9"),
    "another table": (lambda file: _change(file, "ALTER TABLE requests DROP COLUMN cost"), "no table of requests"),
    "cut off": (_cut, "SQLite says"),
    "no database": (lambda file: file.write_text("no database, but long enough to look at" * 9), "SQLite says"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_audit_file_gets_exit_code_1_and_a_sentence(cli, tmp_path: Path, damage, words: str):
    damage(_audit_file(tmp_path / "audit.sqlite"))

    result = cli("serve", "audit", "verify", "audit.sqlite")

    assert (result.code, result.out) == (1, "")
    assert "audit.sqlite is damaged" in result.err
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_an_audit_file_that_is_not_there_cannot_be_verified(cli):
    result = cli("serve", "audit", "verify", "audit.sqlite")

    assert (result.code, "no such audit file" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "$20"), "needs both"),
        (("--per", "day"), "needs both"),
        (("--budget", "5 calls", "--per", "day"), "not in calls"),
        (("--budget", "much", "--per", "day"), "is not a budget"),
    ],
)
def test_half_a_budget_is_refused(cli, options: tuple[str, ...], words: str):
    result = cli("serve", "keys", "team", *options)

    assert result.code == 2
    assert words in result.err


def config_with(folder: Path, **fields: object) -> str:
    keys = {"team": {"hash": "0" * 64, "budget": {"tokens": 5000, "per": "day"}}, "free": {"hash": "1" * 64}}
    file = folder / "guard.yaml"
    file.write_text(json.dumps({"routes": {"a": {"model": "fake/x"}}, "keys": keys, **fields}))
    return str(file)


async def spend(file: Path) -> None:
    state = load_state(StateConfig(file=str(file)))
    state.settle(Settle("team", None, 1234, 0.5, time.time()))
    state.settle(Settle("team", None, 10, 0.5, time.time() - 60 * 86_400))
    state.settle(Settle("gone", None, 1, 0, time.time()))
    await state.aclose()


def test_what_keys_have_spent_is_shown_with_their_budgets(cli, tmp_path: Path):
    asyncio.run(spend(tmp_path / "state.sqlite"))
    file = config_with(tmp_path, state={"file": str(tmp_path / "state.sqlite")})

    shown, as_json = cli("serve", "spent", "--config", file), cli("serve", "spent", "--config", file, "--json")

    rows = [re.split("  +", line) for line in shown.out.splitlines()]
    assert rows[0] == ["key", "today", "this month", "in all", "budget"]
    assert rows[1][0] == "team"
    assert rows[1][4] == "5,000 tokens a day"
    assert rows[1][3] == "1,244 tokens, 1.0000 in money"
    assert rows[2] == ["free", "0 tokens", "0 tokens", "0 tokens", "none"]
    assert rows[3][0::4] == ["gone", "(not in the config)"]
    assert json.loads(as_json.out)["team"]["total"]["tokens"] == 1244


def test_without_a_state_it_says_whom_to_ask(cli, tmp_path: Path):
    result = cli("serve", "spent", "--config", config_with(tmp_path))

    assert result.code == 2
    assert "GET /admin/spent" in result.err


@pytest.mark.parametrize(
    ("content", "words"), [(b"no database at all, but a text", "cannot be used"), (None, "does not exist")]
)
def test_a_state_that_cannot_be_used_is_one_sentence(cli, tmp_path: Path, content: bytes | None, words: str):
    file = tmp_path / "state.sqlite" if content else tmp_path / "no folder" / "state.sqlite"
    if content:
        file.write_bytes(content * 100)

    result = cli("serve", "--port", "0", "--config", config_with(tmp_path, state={"file": str(file)}))

    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err


def test_the_command_line_takes_a_policy_for_requests(cli):
    fine = cli("serve", "--model", "fake/x", "--input", "block", "--check")
    wrong = cli("serve", "--model", "fake/x", "--input", "revise", "--check")

    assert (fine.code, wrong.code) == (0, 2)
    assert "'flag', 'block'" in wrong.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "; bias is not checked: --evaluator bias --judge MODEL"),
        (("--evaluator", "bias", "--judge", "fake/No."), "), bias (a judge)"),
        (("--evaluator", "bias"), "), bias (the model itself)"),
    ],
)
def test_a_route_says_which_checks_run(cli, flags: tuple[str, ...], said: str):
    result = cli("serve", "--model", "fake/Yes.", "--check", *flags)

    assert result.code == 0
    line = result.out.splitlines()[-1]
    assert line.startswith("    checks: toxicity (builtin ")
    assert line.endswith(said)


def test_a_config_is_told_in_its_own_words(cli, tmp_path: Path):
    (tmp_path / "guard.yaml").write_text("routes: {a: {model: fake/Yes.}, b: {model: fake/Yes., evaluators: [bias]}}")

    lines = cli("serve", "--config", "guard.yaml", "--check").out.splitlines()

    assert lines[2].endswith("; bias is not checked: evaluators: [toxicity, bias], judge: MODEL")
    assert lines[4] == "    checks: bias (the model itself)"


def test_flags_reach_the_policy(cli):
    wrong = cli("serve", "--model", "fake/Yes.", "--policy", "block", "--on-unrevised", "flag", "--check")

    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)
    assert "on_unrevised is for the policy revise" in wrong.err
