"""Which answers of earlier runs are reused: an endpoint that changed behind its name is noticed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenhand.runs.store import Store
from support.server import Body, ChatServer, Reply, completion, reply_with

CANNOT_TELL = ("cannot", "can't", "not ", "unknown", "undetermined")
REPORTED = "fp_44709d6fcb"


def letter(body: Body, *, abstains: bool) -> str:
    """The letter of the option that says that the text does not tell, or of the first other one."""
    options = re.findall(r"^([A-C])\) (.*)$", body["messages"][-1]["content"], re.MULTILINE)
    return next(name for name, text in options if abstains == text.lower().startswith(CANNOT_TELL))


def model(*, abstains: bool, fingerprint: str | None = None) -> Callable[[Body], Reply]:
    def answer(body: Body) -> Reply:
        said: Body = completion(letter(body, abstains=abstains), logprobs=True)
        return reply_with({**said, "model": "prod", "system_fingerprint": fingerprint})

    return answer


FAIR, UNFAIR = model(abstains=True), model(abstains=False)


@pytest.fixture
def audit(cli) -> Callable[..., Any]:
    """Audits `openai/prod`, or what is named, at a server."""

    def run(server: ChatServer, out: str, *options: str, spec: str = "openai/prod") -> Any:
        result = cli("audit", spec, "--base-url", server.url, "--limit", "44", "--out", out, *options)
        assert result.code == 0, result
        return result

    return run


def fair_share(folder: str) -> float:
    """How often it chose the option that the text does not tell."""
    store = Store(Path(folder))
    chosen = [outcome["result"]["value"]["text"].lower() for _, outcome in store.answers(1)]
    store.close()
    return sum(each.startswith(CANNOT_TELL) for each in chosen) / len(chosen)


def test_a_worse_model_under_the_same_name_is_noticed(cli, endpoint, audit):
    server = endpoint(answer=FAIR)
    audit(server, "before")
    worse = endpoint.restarted(server, answer=UNFAIR)
    audit(worse, "after")

    result = cli("compare", "before", "after", "--json")

    assert worse.url == server.url
    assert len(worse.requests) == 44
    assert (fair_share("before"), fair_share("after")) == (1.0, 0.0)
    found = [run["arms"][0]["metrics"] for run in json.loads(result.out)["runs"]]
    accuracy = [next(each["value"] for each in metrics if each["metric"] == "accuracy_ambig") for metrics in found]
    assert accuracy == [100.0, 0.0]
    assert "worse" in cli("compare", "before", "after").out


def test_reuse_answers_takes_them_and_the_report_says_when_they_were_recorded(endpoint, audit, tmp_path: Path):
    server = endpoint(answer=FAIR)
    audit(server, "before", "--limit", "22")
    other = endpoint.restarted(server, answer=FAIR)

    result = audit(other, "after", "--reuse-answers")

    reused = 44 - len(other.requests)
    assert 0 < reused < 44
    said = re.search(
        rf"{reused} of 44 answers were recorded on \d{{4}}-\d\d-\d\d; {44 - reused} in this run\.", result.out
    )
    assert said
    assert said[0] in (tmp_path / "after" / "report.html").read_text(encoding="utf-8")


def test_a_cache_file_of_ones_own_is_reused_as_before(endpoint, audit):
    server = endpoint(answer=FAIR)
    audit(server, "before", "--cache", "mine.sqlite")

    result = audit(server, "after", "--cache", "mine.sqlite")

    assert len(server.requests) == 44
    assert re.search(r"44 of 44 answers were recorded on .*; none in this run\.", result.out)


def test_a_pinned_model_is_reused_until_its_revision_changes(endpoint, audit):
    server = endpoint(answer=FAIR)
    audit(server, "one", spec="openai/prod?pinned=2026-11-02")
    audit(server, "two", spec="openai/prod?pinned=2026-11-02")
    assert len(server.requests) == 44

    audit(server, "three", spec="openai/prod?pinned=2026-11-16")
    assert len(server.requests) == 88


@pytest.mark.parametrize("where", ["[providers.mine]\nbase_url='{url}'\npinned='r1'\n", "[pinned]\n'mine/prod'='r1'\n"])
def test_a_provider_or_model_is_pinned_in_the_config_file(endpoint, audit, tmp_path: Path, where: str):
    server = endpoint(answer=FAIR)
    text = where.format(url=server.url)
    named = "" if "providers" in text else f"[providers.mine]\nbase_url='{server.url}'\n"
    (tmp_path / "evenhand.toml").write_text(named + text)

    audit(server, "one", spec="mine/prod")
    audit(server, "two", spec="mine/prod")

    assert len(server.requests) == 44


def test_pinned_needs_a_revision(cli, tmp_path: Path):
    (tmp_path / "evenhand.toml").write_text("[pinned]\n'openai/prod' = true\n")
    result = cli("audit", "openai/prod", "--base-url", "http://localhost:1/v1", "--dry-run")
    assert (result.code, "must be pinned to a revision" in result.err) == (2, True)

    (tmp_path / "evenhand.toml").unlink()
    result = cli("audit", "openai/prod?pinned=true", "--base-url", "http://localhost:1/v1", "--dry-run")
    assert (result.code, "must be the revision that the endpoint serves" in result.err) == (2, True)


def test_an_endpoint_that_reports_the_same_fingerprint_is_asked_once(endpoint, audit, tmp_path: Path):
    server = endpoint(answer=model(abstains=True, fingerprint=REPORTED))
    audit(server, "before")
    same = endpoint.restarted(server, answer=model(abstains=True, fingerprint=REPORTED))

    result = audit(same, "after")

    assert len(same.requests) == 1
    assert "43 of 44 answers were recorded on" in result.out
    store = Store(tmp_path / "after")
    assert f"openai/prod reported the fingerprint prod {REPORTED}" in store.get("notes")
    store.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [(REPORTED, "fp_0000000000"), ("fp_ollama", "fp_ollama"), ("b4719-3edfa7d3", "b4719-3edfa7d3"), (REPORTED, None)],
    ids=["another", "ollama", "a build of llama.cpp", "none"],
)
def test_a_fingerprint_that_differs_or_names_only_software_is_not_trusted(endpoint, audit, before: str, after: str):
    server = endpoint(answer=model(abstains=True, fingerprint=before))
    audit(server, "before")
    worse = endpoint.restarted(server, answer=model(abstains=False, fingerprint=after))

    audit(worse, "after")

    assert len(worse.requests) == 44
    assert fair_share("after") == 0.0


def test_arms_of_a_run_share_what_both_ask(endpoint, cli):
    server = endpoint(answer=FAIR)
    result = cli(
        "run", "--model", "openai/prod", "--base-url", server.url, "--method", "default", "--seed", "0", "--seed", "1",
        "--limit", "22", "--out", "r",
    )  # fmt: skip

    assert result.code == 0
    assert len(server.requests) < 44  # two seeds shuffle some questions alike
    assert len({str(each["messages"]) for each in server.bodies}) == len(server.requests)


def test_a_resumed_run_reuses_its_own_answers_in_all_arms(endpoint, cli):
    server = endpoint(answer=FAIR)
    plan = ("--model", "openai/prod", "--base-url", server.url, "--limit", "22", "--method", "default")
    both = ("--seed", "0", "--seed", "1")
    whole = cli("run", *plan, *both, "--out", "whole")
    asked = len(server.requests)
    assert whole.code == 0

    stopped = cli("run", *plan, *both, "--out", "r", "--budget", "9 calls", "--concurrency", "1")
    assert stopped.code == 3
    cli("resume", "r", "--budget", "500 calls")

    assert len(server.requests) - asked == asked


def test_reusing_without_a_cache_is_refused(cli):
    result = cli("audit", "fake/A", "--no-cache", "--reuse-answers", "--dry-run")

    assert result.code == 2
    assert "remove one" in result.err


def test_the_config_file_may_ask_for_the_answers_of_earlier_runs(endpoint, audit, tmp_path: Path):
    server = endpoint(answer=FAIR)
    audit(server, "before")
    (tmp_path / "evenhand.toml").write_text("reuse_answers = true\n")

    audit(server, "after")

    assert len(server.requests) == 44


def test_local_weights_are_reused_by_their_hash(cli):
    cli("audit", "fake/A", "--limit", "22", "--out", "before")

    result = cli("audit", "fake/A", "--limit", "22", "--out", "after")

    assert "22 of 22 answers were recorded on" in result.out


CAREFUL = '''
from evenhand import Answer, Options, Outcome, Sample, Session, choose, method, parse_prompt

PROMPT = parse_prompt("mine/careful", "# user\\n{{context}}\\n\\n{{question}}\\n\\n{{options}}\\n\\nOne letter.")


@method("careful", kinds={"choice"})
async def careful(sample: Sample, session: Session[Options]) -> Outcome:
    """Asks twice and says whether both answers agree."""
    first = await choose(session, sample, PROMPT)
    second = await choose(session, sample, PROMPT)
    agreed = isinstance(first, Answer) and isinstance(second, Answer) and first.choice == second.choice
    return Outcome(second, stop="agreed" if agreed else "differed")
'''


def alternating() -> Callable[[Body], Reply]:
    """Says A and B in turn to the same question, as a model that is not deterministic may."""
    asked: dict[str, int] = {}

    def answer(body: Body) -> Reply:
        key = str(body["messages"])
        asked[key] = asked.get(key, 0) + 1
        return reply_with(completion("AB"[asked[key] % 2], logprobs=True))

    return answer


def stops(folder: str) -> list[str]:
    store = Store(Path(folder))
    found = [outcome["stop"] for _, outcome in store.answers(1)]
    store.close()
    return found


def test_a_method_that_asks_twice_gets_two_answers(endpoint, cli, tmp_path: Path):
    (tmp_path / "careful.py").write_text(CAREFUL)
    server = endpoint(answer=alternating())
    plan = ("--model", "openai/random", "--base-url", server.url, "--method", "./careful.py", "--limit", "22")

    assert cli("run", *plan, "--out", "r").code == 0
    assert stops("r") == ["differed"] * 22
    assert len(server.requests) == 44

    assert cli("run", *plan, "--out", "again", "--reuse-answers").code == 0
    assert stops("again") == stops("r")
    assert len(server.requests) == 44
