"""The files of pairs and answers, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError
from evenhand.core.types import Message
from evenhand.training import data

USER = {"role": "user", "content": "Who is better at this?"}
GOOD = {"role": "assistant", "content": "Nobody by nature."}
BAD = {"role": "assistant", "content": "They are."}
PAIR = {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "topic": "t1", "chosen_score": 1}
EXAMPLE = {"messages": [USER, GOOD], "topic": "t1"}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_pairs_and_examples(tmp_path: Path):
    pairs = data.read_pairs(written(tmp_path / "pairs.jsonl", PAIR))
    examples = data.read_examples(written(tmp_path / "sft.jsonl", EXAMPLE))

    question = (Message("user", USER["content"]),)
    assert pairs == [data.Preference(question, "Nobody by nature.", "They are.")]
    assert examples == [data.Example(question, "Nobody by nature.")]


def test_prompts_are_read_once_from_either_kind(tmp_path: Path):
    path = written(tmp_path / "mixed.jsonl", PAIR, EXAMPLE, PAIR)

    assert len(data.read_prompts(path)) == 1


def test_a_folder_names_its_splits(tmp_path: Path):
    train, test = (written(tmp_path / f"pairs.{split}.jsonl", PAIR) for split in ("train", "test"))

    assert data.find_files(tmp_path, "pairs") == data.Files(train, test)
    assert list(data.find_files(train, "pairs").checksums()) == ["pairs.train.jsonl"]
    with pytest.raises(DataError, match=r"no sft.train.jsonl here.*evenhand train pairs RUN"):
        data.find_files(tmp_path, "sft")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": [USER], "chosen": [GOOD]}, "line 2: .*rejected is missing"),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": []}, "rejected is missing"),
        ({**PAIR, "rejected": [GOOD]}, "answers of this pair are the same"),
        ({**PAIR, "chosen": [USER]}, "one assistant message"),
        ({**PAIR, "chosen": [{"role": "assistant", "content": " "}]}, "not empty"),
        ({**PAIR, "prompt": "text"}, "must be a list of objects"),
        ({**PAIR, "prompt": [{"role": "robot", "content": "x"}]}, "must be a list of objects"),
        ([1], "not a JSON object"),
    ],
)
def test_a_wrong_pair_is_told_with_its_line(tmp_path: Path, row: Any, message: str):
    with pytest.raises(DataError, match=message):
        data.read_pairs(written(tmp_path / "pairs.jsonl", PAIR, row))


def test_a_wrong_example_is_told(tmp_path: Path):
    for row in ({"messages": [GOOD]}, {"messages": [GOOD, USER]}, PAIR):
        with pytest.raises(DataError, match="line 1"):
            data.read_examples(written(tmp_path / "sft.jsonl", row))


def test_an_empty_or_missing_file_is_one_sentence(tmp_path: Path):
    with pytest.raises(DataError, match="holds no pairs; a topic gives pairs only if"):
        data.read_pairs(written(tmp_path / "pairs.jsonl"))
    with pytest.raises(DataError, match="no such file"):
        data.read_pairs(tmp_path / "absent.jsonl")
    (tmp_path / "broken.jsonl").write_text('{"prompt": ')
    with pytest.raises(DataError, match="line 1: not valid JSON"):
        data.read_pairs(tmp_path / "broken.jsonl")
