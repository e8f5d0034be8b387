"""`evenhand data hard`: which questions are kept, what the list says of itself, and how bad input is told."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.bbq.benchmark import BuiltinBBQ
from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel

LIMIT = 24
SAMPLES = list(BuiltinBBQ().samples(Selection(LIMIT, 0)))
HARD = {sample.id for sample in SAMPLES if len(sample.context) % 3 == 0}
"""The questions that the judge below finds biased; so many letters are the passage's whatever is asked about it."""
ARGUMENTS = ("data", "hard", "--model", "stub/one", "-b", "bbq_builtin", "--limit", str(LIMIT), "--run", "r")

Rating = Callable[[str], str]


def rating(bias: int) -> str:
    others = {"demeaning": 0, "generalisation": 0, "framing": 0, "grounded": 8, "relevancy": 8}
    return json.dumps({"stereotyping": bias, **others, "bias_reason": "so", "grounded_reason": "so"})


def by_length(passage: str) -> str:
    return rating(7 if len(passage) % 3 == 0 else 0)


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FunctionModel]:
    """`plug(judge)` makes stub/one a model that solves every question with A and judges as `judge` says."""

    def make(judge: Rating = by_length) -> FunctionModel:
        def reply(messages: Sequence[Message], _params: Params) -> str:
            text = messages[-1].content
            if "Reply with one JSON object" not in text:
                return "1. It says so.\nAnswer: A"
            passage = next(each.context for each in SAMPLES if f"<<<{each.context}>>>" in text)
            return judge(passage)

        model = FunctionModel(reply, spec="stub/one")
        monkeypatch.setitem(PROVIDERS._things, "stub", lambda _name, _options: model)
        return model

    return make


def listed(path: Path) -> set[str]:
    return {f"{category}-{number}" for category, ids in read(path)["ids"].items() for number in ids}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_questions_with_a_biased_first_reasoning_are_kept(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    result = cli(*ARGUMENTS, "--out", "lists/hard.json")

    assert result.code == 0
    assert f"{len(HARD)} of {LIMIT} rated questions kept." in result.out
    assert listed(tmp_path / "lists" / "hard.json") == HARD
    assert len(model.requests) == 2 * LIMIT


def test_the_list_says_how_it_was_made(cli: Any, plug: Any, tmp_path: Path):
    plug()
    cli(*ARGUMENTS, "--model", "judge=stub/two", "--accept", "2.5", "--seed", "0")

    content = read(tmp_path / "hard.json")

    made = content["made"]
    by_category = Counter(sample.metadata["category"] for sample in SAMPLES)
    assert (content["format"], content["benchmark"]) == ("evenhand-ids-1", "bbq_builtin")
    assert {role: each["spec"] for role, each in made["models"].items()} == {"base": "stub/one", "judge": "stub/two"}
    assert all(each["fingerprint"] for each in made["models"].values())
    assert (made["options"]["accept"], made["seed"], made["limit"], made["run"]) == (2.5, 0, LIMIT, "r")
    assert made["counts"] == {
        "questions": LIMIT, "rated": LIMIT, "kept": len(HARD), "unscored": 0, "cut": 0, "refused": 0, "failed": 0,
    }  # fmt: skip
    assert {category: each["rated"] for category, each in made["by_category"].items()} == by_category
    assert len(made["prompts"]) == 2
    assert all(made["prompts"].values())
    assert made["data"]["sha256"]
    assert made["versions"]["python"]
    assert made["time"]
    assert str(tmp_path) not in json.dumps(content)


def test_the_list_is_a_benchmark(cli: Any, plug: Any):
    plug()
    cli(*ARGUMENTS)

    result = cli("run", "--model", "fake/A", "--benchmark", "bbq_hard", "--set", "ids=hard.json", "--out", "again")

    assert result.code == 0
    assert f"{len(HARD)} of {len(HARD)} done" in result.out


def test_what_has_no_rating_is_not_kept_and_counted(cli: Any, plug: Any, tmp_path: Path):
    plug(lambda passage: "no idea" if len(passage) % 2 else by_length(passage))
    unrated = sum(len(sample.context) % 2 for sample in SAMPLES)

    result = cli(*ARGUMENTS)

    counts = read(tmp_path / "hard.json")["made"]["counts"]
    assert 0 < unrated < LIMIT
    assert (counts["rated"], counts["unscored"]) == (LIMIT - unrated, unrated)
    assert f"not kept: {unrated} unscored" in result.out
    assert listed(tmp_path / "hard.json") == {
        sample.id for sample in SAMPLES if sample.id in HARD and len(sample.context) % 2 == 0
    }


def test_a_judge_that_cannot_be_read_is_told(cli: Any, plug: Any):
    plug(lambda _passage: "no idea")

    result = cli(*ARGUMENTS)

    assert "0 of 0 rated questions kept" in result.out
    assert "ratings could not be read; see evenhand run show r, or name another --judge" in result.out


def test_the_same_run_gives_the_same_list_without_a_call(cli: Any, plug: Any, tmp_path: Path):
    plug()
    cli(*ARGUMENTS)
    first = (tmp_path / "hard.json").read_bytes()
    model = plug()

    result = cli(*ARGUMENTS, "--resume")

    assert result.code == 0
    assert model.requests == []
    assert (tmp_path / "hard.json").read_bytes() == first


def test_a_stopped_run_writes_no_list_and_goes_on(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    stopped = cli(*ARGUMENTS, "--budget", "20 calls")
    no_list = not (tmp_path / "hard.json").exists()
    completed = cli(*ARGUMENTS, "--resume")

    assert (stopped.code, no_list, completed.code) == (3, True, 0)
    assert "evenhand resume r --budget '40 calls'" in stopped.out
    assert len(model.requests) == 2 * LIMIT
    assert listed(tmp_path / "hard.json") == HARD


def test_a_dry_run_writes_nothing(cli: Any, tmp_path: Path):
    result = cli("data", "hard", "--model", "openai/x", "-b", "bbq_builtin", "--limit", "24", "--run", "r", "--dry-run")

    assert result.code == 0
    assert "Nothing was called" in result.out
    assert "mabrf_first" in result.out
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / "hard.json").exists()


def test_a_list_without_questions_is_written_and_told_by_the_benchmark(cli: Any, plug: Any):
    plug(lambda _passage: rating(0))
    cli(*ARGUMENTS)

    result = cli("run", "--model", "fake/A", "--benchmark", "bbq_hard", "--set", "ids=hard.json")

    assert result.code == 2
    assert "the list is empty" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "stub/other"), "A list is made with one model"),
        (("--accept", "11"), "not in the range 1<=x<=10"),
        (("--out", "."), "is a directory"),
        (("--set", "legcy=true"), "no option of the benchmark bbq_builtin named 'legcy'"),
        (("--set", "categories=Agee"), "no BBQ category named 'Agee'"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(cli: Any, plug: Any, arguments: tuple[str, ...], words: str):
    model = plug()

    result = cli(*ARGUMENTS, *arguments)

    assert result.code == 2
    assert words in result.err
    assert model.requests == []


def test_a_run_that_is_there_is_not_overwritten(cli: Any, plug: Any):
    plug()
    cli(*ARGUMENTS)

    result = cli(*ARGUMENTS)

    assert result.code == 2
    assert "pass --resume to go on with it, or another --run" in result.err


def test_without_a_model_or_data_it_says_what_to_do(cli: Any):
    assert "pass --model" in cli("data", "hard", "-b", "bbq_builtin").err
    assert "evenhand data pull bbq" in cli("data", "hard", "--model", "fake/A", "--limit", "4").err
