"""`evenhand data search`: a provider tried out, and what it finds recorded."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "facts.jsonl"
    rows = [
        {"title": "Bees", "url": "https://example.org/bees", "text": "Bees make honey. " * 40},
        {"title": "Bad \u001b[31mguest", "url": "https://example.org/x", "text": "Wasps \u001b[2J sting \u202e too."},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_hits_are_shown_with_title_address_and_a_short_snippet(cli, corpus: Path):
    result = cli("data", "search", "honey", "--provider", "corpus:facts.jsonl")

    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:2] == ["1. Bees", "   https://example.org/bees"]
    assert lines[2].startswith("   Bees make honey.")
    assert lines[2].endswith("…")
    assert lines[3].startswith("1 results of corpus:facts.jsonl, 20")


def test_texts_of_strangers_do_not_reach_the_terminal_as_commands(cli, corpus: Path):
    out = cli("data", "search", "wasps", "--provider", "corpus:facts.jsonl").out

    assert "Wasps ␛[2J sting [U+202E] too." in out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_the_built_in_corpus_is_searched_unless_another_is_named(cli):
    result = cli("data", "search", "older drivers", "--limit", "1", "--json")

    found = json.loads(result.out)
    assert (found["query"], found["provider"]) == ("older drivers", "corpus:builtin")
    assert [hit["url"] for hit in found["hits"]] == ["evenhand:corpus/older-drivers"]


def test_what_is_recorded_is_found_again(cli, corpus: Path):
    first = cli("data", "search", "honey", "-p", "corpus:facts.jsonl", "--json", "--record", "found.jsonl")
    cli("data", "search", "wasps", "-p", "corpus:facts.jsonl", "--record", "found.jsonl")

    assert cli("data", "search", "honey", "-p", "replay:found.jsonl", "--json").out == first.out
    assert "was not recorded in found.jsonl" in cli("data", "search", "ants", "-p", "replay:found.jsonl").err


def test_the_list_says_what_there_is_and_what_is_missing(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evenhand.search.web.ddgs.find_spec", lambda _name: None)

    lines = cli("data", "search", "--list").out.splitlines()

    assert [line.split()[0] for line in lines if not line.startswith(" ")][:4] == [
        "corpus:ARGUMENT",
        "ddgs[:ARGUMENT]",
        "replay:ARGUMENT",
        "wikipedia[:ARGUMENT]",
    ]
    assert any("ddgs" in line and "[search]'" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Say what to search for"),
        (("  ",), "Say what to search for"),
        (("q", "-p", "wikpedia"), "did you mean wikipedia"),
        (("q", "-p", "corpus"), "needs an argument"),
        (("q", "-p", "corpus:none"), "no such file or folder"),
        (("q", "-p", "replay:none.jsonl"), "no such file"),
        (("q", "-p", "wikipedia:e/n"), "language code"),
        (("q", "--limit", "0"), "--limit"),
        (("q", "--record", "x.txt"), ".jsonl"),
        (("q", "--record", "facts.jsonl"), "facts.jsonl, line 1: the field 'query' is missing"),
        (("q", "--record", "no/such/folder.jsonl"), "No such file or directory"),
    ],
)
def test_bad_input_is_one_sentence(cli, corpus: Path, arguments: tuple[str, ...], sentence: str):
    result = cli("data", "search", *arguments)

    assert result.code == 2
    assert sentence in result.err
    assert "Traceback" not in result.err
    assert len(corpus.read_text().splitlines()) == 2
