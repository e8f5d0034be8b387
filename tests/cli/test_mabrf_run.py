"""MABRF on the command line: a run that searches, its evidence and its replay, and bad input."""

import json
import re
from pathlib import Path

import pytest

FACTS = {"title": "Forgetting", "url": "https://example.org/1", "text": "People of all ages forget keys. " * 9}
# One reply for all agents: the judge, the search agent and the terminator each find their fields in it.
REPLY = {
    "answer": "A",
    **dict.fromkeys(("stereotyping", "demeaning", "generalisation", "framing"), 6),
    "grounded": 8,
    "relevancy": 8,
    "bias_reason": "A guess.",
    "grounded_reason": "Fine.",
    "groups": [],
    "queries": ["forget keys", "people of all ages"],
    "facts": [{"fact": "People of all ages forget keys.", "source": 1}],
}
RUN = ("run", "--model", f"fake/{json.dumps(REPLY)}", "--limit", "6")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "facts.jsonl"
    path.write_text(json.dumps(FACTS) + "\n")
    return path


def test_the_evidence_of_a_run_replays_it_without_its_corpus(cli, corpus: Path, tmp_path: Path):
    first = cli(*RUN, "--method", "mabrf:calibration=none,search=corpus:facts.jsonl", "--out", "one")
    written = cli("run", "export", "one", "--table", "evidence", "--format", "jsonl", "--out", "evidence.jsonl")
    corpus.unlink()

    again = cli(*RUN, "--method", "mabrf:calibration=none,search=replay:evidence.jsonl", "--out", "two")

    assert (first.code, written.code, again.code) == (0, 0, 0)
    assert "evidence.jsonl: 2 rows" in written.out
    for run in ("one", "two"):
        cli("run", "export", run, "--format", "jsonl", "--out", f"{run}.jsonl")
    outcomes = (tmp_path / "one.jsonl").read_bytes()
    assert outcomes == (tmp_path / "two.jsonl").read_bytes()
    assert len(outcomes.splitlines()) == 6
    assert {json.loads(line)["stop"] for line in outcomes.splitlines()} == {"unchanged"}


def test_evidence_can_be_had_as_a_table_of_cells(cli, corpus: Path, tmp_path: Path):
    cli(*RUN, "--method", f"mabrf:calibration=none,search=corpus:{corpus}", "--out", "one")

    assert cli("run", "export", "one", "--table", "evidence").code == 0

    assert (tmp_path / "one" / "evidence.csv").read_text().splitlines()[0] == "query,provider,time,hits"


MOST = {
    "mabrf": 14,
    "mabrf:calibration=none": 13,
    "mabrf:look=true": 14,
    "mabrf:calibration=none,search=corpus:builtin": 24,
    "mabrf:search=corpus:builtin,look=true": 25,
    "mabrf_first:look=true": 3,
}


@pytest.mark.parametrize(("method", "calls"), MOST.items())
def test_the_dry_run_counts_the_most_calls_a_sample_can_take_and_writes_nothing(
    cli, tmp_path: Path, method: str, calls: int
):
    result = cli(*RUN, "--method", method, "--dry-run", "--out", "r")

    assert result.code == 0
    assert re.search(rf"\D6\D+{6 * calls}\D", result.out)
    assert not (tmp_path / "r").exists()


WRONG = {
    "unknown provider": ("mabrf:search=wikpedia", "did you mean wikipedia"),
    "missing corpus": ("mabrf:search=corpus:nowhere", "nowhere"),
    "missing recording": ("mabrf:search=replay:none.jsonl", "none.jsonl"),
    "provider without its argument": ("mabrf:search=corpus", "needs an argument"),
    "iterations": (
        "mabrf:iterations=-1",
        "The option iterations of the method mabrf must be a whole number from 0 to 100, not -1.",
    ),
    "accept": ("mabrf:accept=0", "The option accept of the method mabrf must be a number from 1 to 10, not 0."),
    "domain": ("mabrf:domain=Age", "The option domain of the method mabrf must be true or false, not 'Age'."),
    "unknown option": ("mabrf:iteration=3", "did you mean iterations"),
    "search of the first half": ("mabrf_first:search=wikipedia", "search"),
    "method for other samples": ("search:provider=wikipedia", "does not support the 'choice'"),
}


@pytest.mark.parametrize(("method", "hint"), WRONG.values(), ids=WRONG.keys())
def test_one_sentence_and_exit_code_2(cli, tmp_path: Path, method: str, hint: str):
    result = cli(*RUN, "--method", method, "--out", "r")

    assert result.code == 2, result
    assert hint in result.err
    assert "Traceback" not in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_a_role_that_mabrf_does_not_have_is_refused(cli):
    result = cli(*RUN, "--model", "jury=fake/B", "--method", "mabrf", "--out", "r")

    assert (result.code, "jury" in result.err) == (2, True)
