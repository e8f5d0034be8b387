"""The config file: what it may hold, and how what is wrong is told."""

import os
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from evenhand.cli.serve import serve
from evenhand.core.errors import DataError, PlanError, StoreError, UsageError
from evenhand.server.config import make_config, read_config
from evenhand.server.process import ServeOptions, check
from evenhand.server.telemetry.audit import AuditLog, verify_audit

EXAMPLE = Path(__file__).parents[2] / "examples" / "guard.yaml"


def test_the_example_is_fine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    config = read_config(EXAMPLE)
    check(ServeOptions(config))
    assert config.keys


def test_defaults_are_careful():
    config = make_config({"routes": {"a": {"model": "fake/x"}}})
    assert config.cors == ()
    assert config.audit.file is None
    assert config.log.texts == "none"
    assert config.routes["a"].policy == "revise"


@pytest.mark.parametrize("best", ["builtin", "cascade"])
def test_texts_are_scored_by_the_scorer_of_the_guard(monkeypatch: pytest.MonkeyPatch, best: str):
    monkeypatch.setattr("evenhand.guards.policy.live_scorer", lambda: best)

    assert make_config({"routes": {"a": {"model": "fake/x"}}}).scorer == best
    assert make_config({"routes": {"a": {"model": "fake/x"}}, "scorer": "builtin_b"}).scorer == "builtin_b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with 'routes:'"),
        ("routes: [", "not valid YAML"),
        ("keys: {}", "has no routes"),
        ("routes: {}", "wrong at routes"),
        ("routes: {a: {}}", "lacks routes.a.model"),
        ("routes: {'a b': {model: fake/x}}", "letters, digits"),
        ("routes: {a: {model: fake/x, methode: cot}}", "method"),
        ("route: {a: {model: fake/x}}", "did you mean routes"),
        ("routes: {a: {model: fake/x, policy: mend}}", "routes.a.policy"),
        ("routes: {a: {model: fake/x, latency: -1}}", "routes.a.latency"),
        ("routes: {a: {model: fake/x, price: {in: 1}}}", "did you mean input"),
        ("{routes: {a: {model: fake/x}}, cors: [app.example.org]}", "like https://"),
        ("{routes: {a: {model: fake/x}}, limits: {body: 3}}", "did you mean body_mb?"),
        ("{routes: {a: {model: fake/x}}, keys: {k: {hash: x, may: [fly]}}}", "keys.k.may, entry 1: it must be"),
        ("{routes: {a: {model: fake/x}}, keys: {k: {hash: x, at_once: 0}}}", "keys.k.at_once"),
        ("{routes: {a: {model: fake/x}}, keys: {k: {hash: x, budget: {tokens: 5}}}}", "lacks keys.k.budget.per"),
        ("{routes: {a: {model: fake/x}}, keys: {k: {hash: x, budget: {per: day}}}}", "give tokens, money or both"),
        ("{routes: {a: {model: fake/x}}, keys: {k: {hash: x, budget: {token: 5}}}}", "did you mean tokens?"),
        ("{routes: {a: {model: fake/x}}, state: {files: x}}", "did you mean file?"),
        ("{routes: {a: {model: fake/x}}, state: {file: x, redis: 'redis://h'}}", "give one of"),
        ("{routes: {a: {model: fake/x}}, state: {redis: 'http://h'}}", "redis://HOST:PORT"),
        ("{routes: {a: {model: fake/x}}, state: {redis: 'redis://:word@h'}}", "name its variable in redis_env"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, words: str):
    file = tmp_path / "guard.yaml"
    file.write_text(text)
    with pytest.raises(DataError) as caught:
        read_config(file)
    assert words in str(caught.value)
    assert "guard.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"model": "nothing"}, "not a model spec"),
        ({"model": "opena/x"}, "no model provider named 'opena'"),
        ({"model": "fake/x", "method": "stardtoxx"}, "did you mean stardtox?"),
        ({"model": "fake/x", "method": "stardtox:toxicity=2"}, "toxicity"),
        ({"model": "fake/x", "method": "stardtox:nothing=2"}, "nothing"),
        ({"model": "fake/x", "evaluators": ["toxicty"]}, "did you mean toxicity?"),
        ({"model": "fake/x", "judge": "fakee"}, "not a model spec"),
        ({"model": "openai/gpt-4o-mini"}, "needs an API key"),
    ],
)
def test_every_route_is_loaded_before_the_server_starts(route: dict, words: str):
    with pytest.raises(PlanError) as caught:
        check(ServeOptions(make_config({"routes": {"a": route}})))
    assert words in str(caught.value)
    assert "The route a" in str(caught.value)


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(PlanError, match="NO_SUCH_STATE"):
        check(
            ServeOptions(make_config({"routes": {"a": {"model": "fake/x"}}, "state": {"redis_env": "NO_SUCH_STATE"}}))
        )


def test_a_check_writes_no_state(tmp_path: Path):
    state = {"file": str(tmp_path / "state.sqlite")}

    check(ServeOptions(make_config({"routes": {"a": {"model": "fake/x"}}, "state": state})))

    assert not list(tmp_path.iterdir())


def test_a_check_finds_an_audit_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    access = os.access  # root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut" and access(path, mode))
    for folder in ("shut", "folder"):
        (tmp_path / folder).mkdir()
    (tmp_path / "notes.txt").write_text("no database, and longer than the head of one")
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        db.execute("CREATE TABLE samples (id TEXT)")
    db.close()
    before = sorted(tmp_path.rglob("*"))

    for name, why in (
        ("shut/sub/audit.sqlite", "nothing can be written in .*shut"),
        ("notes.txt/audit.sqlite", "notes.txt is not a folder"),
        ("notes.txt", "file is not a database"),
        ("folder", "it is a folder"),
        ("run.sqlite", "it holds other data"),
    ):
        config = {"routes": {"a": {"model": "fake/x"}}, "audit": {"file": str(tmp_path / name)}}
        with pytest.raises(StoreError, match=f"{name} cannot be used: .*{why}.*Choose another file"):
            check(ServeOptions(make_config(config)))

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["audit.sqlite", "new/folder/audit.sqlite"])
def test_a_check_leaves_an_audit_file_alone(tmp_path: Path, name: str):
    options = ServeOptions(make_config({"routes": {"a": {"model": "fake/x"}}, "audit": {"file": str(tmp_path / name)}}))
    check(options)
    assert not list(tmp_path.iterdir())

    log = AuditLog(tmp_path / name)
    check(options)
    log.close()
    content = (tmp_path / name).read_bytes()
    check(options)

    assert (tmp_path / name).read_bytes() == content
    assert verify_audit(tmp_path / name).problems == []


def test_other_hosts_than_loopback_need_keys():
    config = make_config({"routes": {"a": {"model": "fake/x"}}})
    with pytest.raises(UsageError, match="needs API keys"):
        check(ServeOptions(config, host="0.0.0.0"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Say what to serve"),
        (["--model", "nothing", "--check"], "not a model spec"),
        (["--config", "missing.yaml", "--check"], "missing.yaml"),
        (["--config", "x.yaml", "--model", "fake/x"], "not in both"),
        (["--model", "fake/x", "--host", "0.0.0.0", "--check"], "needs API keys"),
    ],
)
def test_the_command_refuses_in_a_sentence(arguments: list[str], words: str):
    result = CliRunner().invoke(serve, arguments)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


def test_check_ends_well_for_a_good_route():
    result = CliRunner().invoke(serve, ["--model", "fake/x", "--name", "mine", "--check"], standalone_mode=False)
    assert result.return_value == 0
    assert "mine" in result.output
