"""`evenhand serve-key` and `evenhand serve-audit`: what the people who run the server type."""

import json
import re
import time
from pathlib import Path

import pytest
import yaml

from evenhand.server.access.auth import Auth
from evenhand.server.config import make_config
from evenhand.server.telemetry.audit import AuditLog
from evenhand.server.telemetry.events import Event

EVENT = Event("r1", time.time(), "chat", "/v1/chat/completions", action="revised", prompt="Hello")


def test_a_new_key_comes_with_the_line_that_lets_it_in(cli):
    result = cli("serve-key", "web:app", "--may", "score", "--may", "metrics", "--per-minute", "60")

    assert result.code == 0
    key = re.search(r"^evh-\S{40,}$", result.out, re.MULTILINE)
    assert key
    config = make_config(
        {**yaml.safe_load(result.out[result.out.index("keys:") :]), "routes": {"a": {"model": "fake/x"}}}
    )
    assert config.keys["web:app"].may == ("score", "metrics")
    assert config.keys["web:app"].per_minute == 60
    assert key[0] not in str(config)
    Auth(config.keys, "0.0.0.0")


@pytest.mark.parametrize("arguments", [["a b"], ["x", "--may", "all"], ["x", "--per-minute", "0"], []])
def test_bad_keys_are_refused_in_a_sentence(cli, arguments: list[str]):
    result = cli("serve-key", *arguments)

    assert result.code == 2
    assert "Traceback" not in result.err
    assert "evh-" not in result.out


def test_the_audit_file_is_written_as_json_lines(cli, tmp_path: Path):
    log = AuditLog(tmp_path / "audit.sqlite", texts="full")
    log(EVENT)
    log.close()

    shown = cli("serve-audit", "audit.sqlite")
    filed = cli("serve-audit", "audit.sqlite", "--action", "revised", "--since", "2026-01-01", "--out", "out.jsonl")
    none = cli("serve-audit", "audit.sqlite", "--action", "blocked")

    assert json.loads(shown.out)["prompt"] == "Hello"
    assert json.loads((tmp_path / "out.jsonl").read_text()) == json.loads(shown.out)
    assert "1 requests" in filed.out
    assert none.out == ""


def test_what_is_no_audit_file_is_refused_in_a_sentence_and_nothing_is_overwritten(cli, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("no database")
    (tmp_path / "out.jsonl").write_text("from last month")

    for name in ("notes.txt", "missing.sqlite", "."):
        result = cli("serve-audit", name, "--out", "out.jsonl")
        assert (result.code, "audit file" in result.err) == (2, True)
        assert "Traceback" not in result.err
    assert (tmp_path / "out.jsonl").read_text() == "from last month"


def test_the_audit_file_is_not_written_over_itself(cli, tmp_path: Path):
    AuditLog(tmp_path / "audit.sqlite").close()

    result = cli("serve-audit", "audit.sqlite", "--out", "./audit.sqlite")

    assert (result.code, "another" in result.err) == (2, True)
    assert (tmp_path / "audit.sqlite").read_bytes().startswith(b"SQLite")
