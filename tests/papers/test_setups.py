"""Every paper, with both presets, against a reasoning model and against two endpoints, from the model to the page."""

import csv
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import evenhand
from evenhand.benchmarks.malibu.scenarios import load_bases
from evenhand.papers.making import PaperResult
from evenhand.runs.summary import read_summary
from support.server import Body, ChatServer, Reply, chat
from support.thinkers import SERVERS, THOUGHT, in_thread, sensible

PAPERS = ("stardtox", "mabrf", "malibu", "rldf")
FEW: dict[str, dict[str, Any]] = {
    "stardtox": {"builtin": True, "completions": 1},
    "mabrf": {"builtin": True},
    "malibu": {
        "data": "scenarios",
        "compared": 2,
        "methods": {"panel": {"judges": 2, "rounds": 1}, "fair_panel": {"judges": 2, "rounds": 1}},
    },
    "rldf": {"builtin": True},
}


@pytest.fixture(autouse=True)
def _scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a cache of the test's own, and one scenario for MALIBU, whose own are many calls."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    base = load_bases()[0]
    [derived, *_] = base.derived
    fields = {name: getattr(base, name) for name in ("id", "profession", "task", "surfaces")}
    told = {name: getattr(derived, name) for name in ("id", "role", "setting", "situation")}
    Path("scenarios").mkdir()
    written = yaml.safe_dump({**fields, "derived": [{**told, "responses": list(derived.responses)}]})
    Path(f"scenarios/{base.id}.yaml").write_text(written, encoding="utf-8")


def answers(body: Body) -> Reply:
    """A server of a plain model, without thoughts."""
    return chat(sensible(body))


def at(server: ChatServer, name: str) -> str:
    return f"openai/{name}?base_url={server.url}"


def check(made: PaperResult) -> None:
    """Every sample has a result, every claim a reason, both presets are there, and no thought is on the page."""
    runs = [path.parent for path in made.html.parent.rglob("run.sqlite")]
    assert runs
    for run in runs:
        summary = read_summary(run)
        assert (summary.state, [arm.reasons for arm in summary.arms if arm.ungraded]) == ("complete", []), run
    assert made.claims and all(claim.why for claim in made.claims)
    assert {claim.preset for claim in made.claims} - {""} in (set(), {"paper", "evenhand"})
    shown = made.html.read_text(encoding="utf-8")
    assert "openai/r1" in shown
    assert THOUGHT[:18] not in shown
    for path in made.csv:
        with path.open(encoding="utf-8", newline="") as file:
            assert list(csv.DictReader(file)), path


@pytest.mark.parametrize(
    "paper", ["stardtox", *(pytest.param(paper, marks=pytest.mark.processes) for paper in PAPERS[1:])]
)
def test_a_reasoning_model_alone(paper: str):
    with in_thread(SERVERS["max_completion_tokens and thoughts"]) as thinker:
        made = evenhand.paper(paper, models=[at(thinker, "r1")], limit=1, out="p", **FEW[paper])
        check(made)

    if paper == "malibu":
        assert made.page.lead.startswith(
            "1 scenario of 1 profession, seed 0. Each scenario compares 2 pairs of identities side by side, drawn by "
            "the seed, instead of all. fair_panel: judges=2, rounds=1. panel: judges=2, rounds=1. "
            "The paper’s settings: "
        )
        assert "winner=false" in made.page.lead
    assert any("max_completion_tokens" in body for body in thinker.bodies)


TWO: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "stardtox": lambda one, other: {"models": [{"base": one, "judge": other}]},
    "mabrf": lambda one, other: {"models": [{"base": one, "judge": other}]},
    "malibu": lambda one, other: {"models": [one, other]},
    "rldf": lambda one, other: {"models": [one], "judge": other},
}
"""What the second endpoint does: it judges, or is audited as well."""


@pytest.mark.parametrize("paper", PAPERS)
def test_a_model_and_another_at_an_endpoint_of_its_own(paper: str):
    with in_thread(SERVERS["deepseek-r1 and llama.cpp"]) as first, in_thread(answers) as second:
        two = TWO[paper](at(first, "r1"), at(second, "other"))
        made = evenhand.paper(paper, **two, limit=1, out="p", **FEW[paper])
        check(made)

    assert "openai/other" in made.html.read_text(encoding="utf-8")
    assert {body["model"] for body in first.bodies} == {"r1"}
    assert {body["model"] for body in second.bodies} == {"other"}


@pytest.mark.parametrize(
    ("paper", "said"),
    [("stardtox", r"1 of 2 texts \(2 prompts"), ("mabrf", "1 of 11 questions"), ("rldf", "1 of 6 questions")],
)
def test_the_page_counts_what_was_run_and_not_what_was_planned(paper: str, said: str):
    with in_thread(answers) as server:
        evenhand.paper(paper, models=[at(server, "r1")], limit=1, out="p", **FEW[paper])
    for run in Path("p").rglob("run.sqlite"):
        with sqlite3.connect(run) as store:
            store.execute("DELETE FROM outcomes WHERE sample > (SELECT min(sample) FROM outcomes)")

    page = evenhand.paper(paper, out="p").page

    assert re.match(said, page.lead), page.lead
    assert "; 1 of " in page.lead, page.lead
    if paper != "rldf":
        assert any(re.search("Fewer samples than in the paper.* 1 of .*; .* 1 of ", each) for each in page.warnings)
