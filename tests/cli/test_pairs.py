"""`evenhand train pairs`: the files, what they say of themselves, and how bad input is told."""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from evenhand.benchmarks.debates import Statement
from evenhand.core.types import Message, Params, Usage
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.runs.store import Store
from evenhand.training.data import read_examples, read_pairs
from support.debates import statements, store_debates
from support.referees import STATEMENT, VERDICT, asked_for, verdict

DEBATES = {f"t{number}": statements(f"t{number}", [(9, 6, 2), (4, 1.5, 0)]) for number in range(20)}
FILES = ["README.md", "pairs.json", "pairs.test.jsonl", "pairs.train.jsonl", "sft.test.jsonl", "sft.train.jsonl"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return store_debates(tmp_path / "run", DEBATES)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_folder_holds_pairs_and_answers_split_by_topic(cli: Any, run: Path, tmp_path: Path):
    result = cli("train", "pairs", "run", "--out", "p")

    assert result.code == 0
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == FILES
    train, test = lines(tmp_path / "p" / "pairs.train.jsonl"), lines(tmp_path / "p" / "pairs.test.jsonl")
    assert {row["topic"] for row in train}.isdisjoint(row["topic"] for row in test)
    assert (len(train), len(test)) == (18 * 8, 2 * 8)
    sides = {f"{side}_{name}" for side in ("chosen", "rejected") for name in ("score", "round", "role")}
    assert set(train[0]) == {"prompt", "chosen", "rejected", "topic", "bias", "margin", *sides}
    topic = train[0]["topic"]
    assert train[0]["prompt"] == [{"role": "user", "content": f"What about {topic}?"}]
    assert train[0]["chosen"][0]["role"] == "assistant"
    assert [train[0][name] for name in ("chosen_score", "rejected_score", "margin")] == [0, 9, 9]
    assert [train[0][name] for name in ("chosen_round", "chosen_role")] == [2, "engineer"]
    assert [train[0][name] for name in ("rejected_round", "rejected_role")] == [1, "doctor"]
    answers = lines(tmp_path / "p" / "sft.train.jsonl")
    assert [message["role"] for message in answers[0]["messages"]] == ["user", "assistant"]
    assert len(answers) == 18 * 3
    assert all(row["score"] <= 3 for row in answers)


def test_sides_of_unlike_lengths_are_told(cli: Any, tmp_path: Path):
    debates = {
        topic: [replace(each, text=each.text * (2 if (each.score or 0) > 5 else 1)) for each in said]
        for topic, said in DEBATES.items()
    }
    store_debates(tmp_path / "run", debates)

    uneven = cli("train", "pairs", "run", "--out", "p", "--length-ratio", "0").out
    assert "! A reward model may only learn that better answers are shorter" in uneven
    even = cli("train", "pairs", "run", "--out", "q")
    assert even.code == 0
    assert "!" not in even.out
    assert "had answers of unlike length" in even.out


def test_what_was_made_is_told_and_recorded(cli: Any, run: Path, tmp_path: Path):
    result = cli("train", "pairs", "run")

    about = json.loads((tmp_path / "run" / "pairs" / "pairs.json").read_text(encoding="utf-8"))
    assert "144 pairs to train on and 16 to test, of 20 of 20 topics" in result.out
    assert "BBQ is not on this machine" in result.out
    assert [(row["round"], row["n"]) for row in about["rounds"]] == [(1, 60), (2, 60)]
    assert about["rounds"][0]["mean"] == pytest.approx(17 / 3)
    assert about["rounds"][0]["high_share"] == pytest.approx(2 / 3)
    assert [k for k, count in enumerate(about["rounds"][1]["bins"]) if count] == [0, 2, 4]
    assert about["options"] == {
        "policy": "threshold", "threshold": 3.0, "margin": 2.0, "length_ratio": 1.5, "per_topic": 8, "test_share": 0.1,
        "seed": 0, "personas": False,
    }  # fmt: skip
    assert len(about["held_out"]) == 2
    assert set(about["held_out"][0]) == {"id", "bias", "question"}
    assert about["leaks"]["unchecked"]
    assert about["made"][0]["run"] == "run"
    assert set(about["sha256"]) == set(FILES) - {"pairs.json", "README.md"}
    assert str(tmp_path) not in json.dumps(about)


def test_the_median_is_told_and_recorded_with_its_value(cli: Any, tmp_path: Path):
    scores = {f"t{number}": statements(f"t{number}", [(9, 8, 6), (7, 5, 4)]) for number in range(4)}
    store_debates(tmp_path / "run", scores)

    result = cli("train", "pairs", "run", "--threshold", "median")

    assert result.code == 0, result.err
    assert "high is above 6.5" in result.out
    about = json.loads((tmp_path / "run" / "pairs" / "pairs.json").read_text(encoding="utf-8"))
    assert (about["options"]["threshold"], about["threshold"]) == ("median", 6.5)
    assert (about["counts"]["low"], about["counts"]["high"]) == (12, 12)
    assert [row["high_share"] for row in about["rounds"]] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    answers = lines(tmp_path / "run" / "pairs" / "sft.train.jsonl")
    assert max(row["score"] for row in answers) == 6


def test_the_same_debates_give_the_same_bytes(cli: Any, run: Path, tmp_path: Path):
    cli("train", "pairs", "run", "--out", "one")
    cli("train", "pairs", "run", "--out", "two")

    assert [(tmp_path / "one" / name).read_bytes() for name in FILES] == [
        (tmp_path / "two" / name).read_bytes() for name in FILES
    ]


def test_several_runs_make_one_folder(cli: Any, run: Path, tmp_path: Path):
    store_debates(tmp_path / "other", {"x": statements("x", [(9, 1)])}, bias="age")

    cli("train", "pairs", "run", "other", "--out", "p")

    about = json.loads((tmp_path / "p" / "pairs.json").read_text(encoding="utf-8"))
    assert about["counts"]["topics"] == 21
    assert [each["run"] for each in about["made"]] == ["run", "other"]


def test_a_folder_with_something_in_it_is_not_touched(cli: Any, run: Path, tmp_path: Path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine.txt").write_text("mine", encoding="utf-8")

    result = cli("train", "pairs", "run", "--out", "p")

    assert result.code == 2
    assert "is not empty, and nothing is overwritten" in result.err
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["mine.txt"]


def test_what_fails_leaves_nothing_behind(cli: Any, tmp_path: Path):
    store_debates(tmp_path / "run", {"a": statements("a", [(1, 2)])})

    result = cli("train", "pairs", "run", "--out", "p")

    assert result.code == 2
    assert "There is no high-bias statement" in result.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["run"]


def test_a_run_that_is_not_complete_is_refused(cli: Any, tmp_path: Path):
    store_debates(tmp_path / "run", DEBATES, pending=1)

    assert "is not complete; resume it first" in cli("train", "pairs", "run").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing",), "holds no run"),
        (("run", "--policy", "best"), "is not one of"),
        (("run", "--threshold", "10"), "threshold must be at least 0 and below 10"),
        (("run", "--threshold", "mean"), "threshold must be at least 0 and below 10, median or topic, not mean"),
        (("run", "--threshold", "nan"), "threshold must be at least 0 and below 10, median or topic, not nan"),
        (("run", "--margin", "0"), "'--margin': 0.0 is not in the range 0<x<=10"),
        (("run", "--test-share", "1"), "'--test-share': 1.0 is not in the range 0<x<1"),
        (("run", "--data", "nowhere"), "The data set bbq is not in nowhere"),
        ((), "Missing argument"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(cli: Any, run: Path, arguments: tuple[str, ...], words: str):
    result = cli("train", "pairs", *arguments)

    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_run_without_debates_is_refused(cli: Any, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "other")

    assert "holds no debate; make one with `evenhand train debate`" in cli("train", "pairs", "other").err


def debater(messages: Sequence[Message], params: Params) -> str:
    """Speaks harshly at first and gently later; as the referee it hears that."""
    if asked_for(params) == VERDICT:
        return verdict([8 if manner == "Harshly" else 1 for manner in _manners(messages)])
    manner = "Gently" if any(message.role == "assistant" for message in messages) else "Harshly"
    return f"{manner} put, people are people, say I and {crc32(repr(messages).encode())}."


def _manners(messages: Sequence[Message]) -> list[str]:
    return re.findall("Harshly|Gently", messages[-1].content)


def echoing(messages: Sequence[Message], params: Params) -> str:
    """Says its instruction again in the first round, and speaks for itself in the second."""
    if asked_for(params) == VERDICT or any(message.role == "assistant" for message in messages):
        return debater(messages, params)
    return f"{messages[-1].content.splitlines()[0]} Harshly, say I and {crc32(repr(messages).encode())}."


def test_echoes_of_the_prompt_are_dropped_and_shown(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(
        PROVIDERS._things, "stub", lambda *_: FunctionModel(echoing, spec="stub/one", features=("schema", "seed"))
    )
    plan = ("--model", "stub/one", "--benchmark", "debates", "--method", "debate:rounds=2", "--limit", "4")
    cli("run", *plan, "--out", "d")

    result = cli("train", "pairs", "d", "--out", "p")

    assert result.code == 2
    assert "There is no high-bias statement: all 12 usable scores" in result.err


def test_every_drop_is_on_screen_and_on_the_card(cli: Any, tmp_path: Path):
    spoilt = [
        Statement("doctor", 3, "They are all the same to me.", 9),
        Statement("doctor", 4, "Too short.", 9),
        Statement("doctor", 5, "Nobody could score what I said here."),
        Statement("lawyer", 4, DEBATES["t0"][0].text, 9),
    ]
    store_debates(tmp_path / "run", DEBATES | {"t0": [*DEBATES["t0"], *spoilt]})

    result = cli("train", "pairs", "run", "--out", "p", "--per-topic", "4")

    assert "Statements dropped: 1 had no score, 1 were too short, 1 were repetitions." in result.out
    assert "Possible pairs left out: 3 had answers of unlike length, 100 were more than a topic may give." in result.out
    card = (tmp_path / "p" / "README.md").read_text(encoding="utf-8")
    assert "| statements that were repetitions | 1 |" in card
    assert "| statements that repeated their prompt | 0 |" in card
    assert "| possible pairs that were more than a topic may give | 100 |" in card


def test_from_debates_to_held_out_opinions(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(
        PROVIDERS._things, "stub", lambda *_: FunctionModel(debater, spec="stub/one", features=("schema", "seed"))
    )
    model = ("--model", "stub/one")
    cli("run", *model, "--benchmark", "debates", "--method", "debate:rounds=2", "--limit", "10", "--out", "d")

    result = cli("train", "pairs", "d", "--out", "p")
    opinions = ("--benchmark", "opinions", "--set", "data=p", "--scorer", "opinion:fake/x", "--out", "o")
    asked = cli("run", *model, *opinions)

    assert result.code == 0
    assert "72 pairs to train on and 8 to test, of 10 of 10 topics" in result.out
    about = json.loads((tmp_path / "p" / "pairs.json").read_text(encoding="utf-8"))
    assert [(row["round"], row["mean"]) for row in about["rounds"]] == [(1, 8), (2, 1)]
    assert about["made"][0]["methods"][0]["options"]["rounds"] == 2
    assert len(about["made"][0]["prompts"]) == 3
    assert len(read_pairs(tmp_path / "p" / "pairs.train.jsonl")) == 72
    assert len(read_examples(tmp_path / "p" / "sft.test.jsonl")) == 3
    assert f"{len(about['held_out'])} of {len(about['held_out'])} done" in asked.out


class Answerer(FunctionModel):
    """Answers harshly or gently by its seed; as the referee it hears that. It can be planned without being called."""

    free = True
    features = frozenset({"schema", "seed"})

    def __init__(self, *_: object) -> None:
        super().__init__(_answer, spec="plain/one", features=("schema", "seed"))


def _answer(messages: Sequence[Message], params: Params) -> str:
    kind = asked_for(params)
    if kind == STATEMENT:
        return f"{'Gently' if (params.seed or 0) % 2 else 'Harshly'} put, people are people, number {params.seed}."
    if kind == VERDICT:
        return verdict([8 if manner == "Harshly" else 1 for manner in _manners(messages)])
    return "Yes" if "Harshly" in _manners(messages) else "No"


@pytest.mark.parametrize(("scoring", "calls", "low", "high"), [("numbers", 5, 1, 8), ("odds", 9, 0, 10)])
def test_answers_without_a_debate_make_pairs_as_well(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scoring: str, calls: int, low: int, high: int
):
    monkeypatch.setitem(PROVIDERS._things, "plain", Answerer)
    plan = ("--model", "plain/one", "--benchmark", "debates", "--method", f"rlaif:scoring={scoring}", "--limit", "12")

    forecast = cli("run", *plan, "--dry-run")
    made = cli("run", *plan, "--out", "answers")
    result = cli("train", "pairs", "answers", "--out", "p")

    assert f" {12 * calls} " in forecast.out
    assert made.code == 0, made.err
    with closing(Store(tmp_path / "answers")) as store:
        assert sum(store.usage().values(), Usage()).calls == 12 * calls
    assert result.code == 0, result.err
    about = json.loads((tmp_path / "p" / "pairs.json").read_text(encoding="utf-8"))
    assert [(row["round"], row["n"]) for row in about["rounds"]] == [(1, 48)]
    assert (about["pairs"]["chosen_score"], about["pairs"]["rejected_score"]) == (low, high)
    assert about["made"][0]["methods"][0]["name"] == "rlaif"
    train = lines(tmp_path / "p" / "pairs.train.jsonl")
    assert all(row["chosen"][0]["content"].startswith("Gently") for row in train)
    assert all(row["rejected"][0]["content"].startswith("Harshly") for row in train)
