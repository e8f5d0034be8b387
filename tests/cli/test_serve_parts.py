"""`evenhand serve keys` and `evenhand serve audit`: what the people who run the server type."""

import contextlib
import json
import re
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from evenhand.server.access.auth import Auth
from evenhand.server.config import make_config
from evenhand.server.telemetry.audit import AuditLog
from evenhand.server.telemetry.events import Event

EVENT = Event("r1", time.time(), "chat", "/v1/chat/completions", action="revised", prompt="Hello")
LIMITS = ("--route", "a", "--expires", "2027-01-31")


def test_a_new_key_comes_with_the_line_that_lets_it_in(cli):
    result = cli("serve", "keys", "web:app", "--may", "score", "--may", "metrics", "--per-minute", "60", *LIMITS)

    assert result.code == 0
    key = re.search(r"^evh-\S{40,}$", result.out, re.MULTILINE)
    assert key
    config = make_config(
        {**yaml.safe_load(result.out[result.out.index("keys:") :]), "routes": {"a": {"model": "fake/x"}}}
    )
    assert config.keys["web:app"].may == ("score", "metrics")
    assert config.keys["web:app"].per_minute == 60
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


def _audit_file(file: Path, requests: int = 3) -> Path:
    log = AuditLog(file, texts="full")
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


def test_deleted_rows_are_told(cli, tmp_path: Path):
    _change(_audit_file(tmp_path / "audit.sqlite"), "DELETE FROM requests WHERE number = 2")

    result = cli("serve", "audit", "verify", "audit.sqlite")

    assert result.code == 0
    assert "1 row numbers between the first and the last are missing" in result.out


def _change(file: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute(statement)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


DAMAGES = {
    "half a record": (
        lambda file: _change(file, "UPDATE requests SET body = '{' WHERE number = 2"),
        "request 2 cannot",
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
