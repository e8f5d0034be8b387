"""A folder of questions: files, card, leak check, and what is refused."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from evenhand.core.errors import DataError
from evenhand.data.bbq import BuiltinRows
from evenhand.training.questions import QuestionPlan, make, read_rows
from evenhand.training.questions.folder import Benchmarks, draw, load_benchmarks, write_folder


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVENHAND_DATA", raising=False)


@pytest.fixture
def benchmarks() -> Benchmarks:
    return load_benchmarks()


def planted(folder: Path, text: str) -> Path:
    folder.mkdir()
    line = orjson.dumps({"context": text, "question": "Who?", "ans0": "x", "ans1": "y", "ans2": "z"})
    (folder / "set.jsonl").write_bytes(line + b"\n")
    return folder


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, benchmarks: Benchmarks):
    for name in ("a", "b"):
        write_folder(QuestionPlan(count=300, seed=5), tmp_path / name, benchmarks)

    for file in ("train.jsonl", "dev.jsonl", "card.json", "README.md"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_card_counts_what_is_in_the_files(tmp_path: Path, benchmarks: Benchmarks):
    card = write_folder(QuestionPlan(count=300), tmp_path, benchmarks)

    rows = read_rows(tmp_path / "train.jsonl")
    assert card["splits"]["train"]["rows"] == len(rows) == 263
    assert card["splits"]["train"]["form"]["letter"] == sum(row.form == "letter" for row in rows)
    assert "BBQ is not on this machine" in (tmp_path / "README.md").read_text()


def test_rows_read_back_as_they_were(tmp_path: Path, benchmarks: Benchmarks):
    write_folder(QuestionPlan(count=200), tmp_path, benchmarks)

    drawn, _ = draw(QuestionPlan(count=200), "dev", 25, benchmarks)
    assert [row.line() for row in read_rows(tmp_path / "dev.jsonl")] == [row.line() for row in drawn]


def test_a_planted_sentence_is_dropped_and_counted(tmp_path: Path):
    row = next(row for row in make(QuestionPlan(), "train") if len(row.context.split()) > 12)
    check = load_benchmarks(folders=[planted(tmp_path / "other", row.context)])

    _, leaks = draw(QuestionPlan(), "train", 50, check)

    assert sum(leaks.values()) >= 1
    assert check.note()["checked"]["other"] == {"texts": "2"}


def test_a_sentence_that_differs_only_in_its_people_is_a_leak(tmp_path: Path):
    row = next(
        row for row in make(QuestionPlan(languages=("en",), categories=("names",)), "train") if len(row.options) == 3
    )
    people = [each[0] for each in row.people if each]
    other = row.context.replace(people[0], "x").replace(people[1], "y")

    check = load_benchmarks(folders=[planted(tmp_path / "other", other)])

    assert check.leak_in(row) is not None


def test_nothing_of_the_built_in_questions_is_repeated(benchmarks: Benchmarks):
    item = next(iter(BuiltinRows().items("Age")))
    rows, leaks = draw(QuestionPlan(), "train", 1500, benchmarks)

    assert benchmarks.grams.leak_in(item.context)
    assert all(benchmarks.leak_in(row) is None for row in rows)
    assert sum(leaks.values()) < 15


def test_too_many_leaks_stop_the_command(tmp_path: Path):
    texts = " ".join({row.context for row, _ in zip(make(QuestionPlan(), "train"), range(200), strict=False)})
    check = load_benchmarks(folders=[planted(tmp_path / "other", texts)])

    with pytest.raises(DataError, match="questions repeat a benchmark"):
        draw(QuestionPlan(), "train", 150, check)


def test_a_file_with_one_class_is_refused(tmp_path: Path):
    told = [row for row, _ in zip(make(QuestionPlan(), "train"), range(50), strict=False) if row.state == "told"]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(row.line() for row in told))

    with pytest.raises(DataError, match="All questions can be answered from their passages; training needs both kinds"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{}", "A question needs the fields"),
        (b"[]", "not a JSON object"),
        (b"", "holds no questions"),
    ],
)
def test_bad_lines_are_one_sentence(tmp_path: Path, line: bytes, message: str):
    (tmp_path / "rows.jsonl").write_bytes(line)

    with pytest.raises(DataError, match=message):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "poem"}, "The form 'poem' is none of letter"),
        ({"language": "nl"}, "The language 'nl' is none of en, es, de"),
        ({"right": 9}, "There is no option 9"),
        ({"unknown": 9}, "There is no option 9"),
        ({"right": "first"}, "right: it must be a whole number"),
        ({"answer": None}, "answer: there is no text"),
        ({"messages": []}, "one or more objects with role and content"),
        ({"messages": [{"content": "Who?"}]}, "one or more objects with role and content"),
        ({"messages": [{"role": "judge", "content": "Who?"}]}, "The role 'judge' is none of system, user, assistant"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, change: dict[str, Any], message: str):
    good = next(iter(make(QuestionPlan(), "train"))).line()
    (tmp_path / "rows.jsonl").write_bytes(good + orjson.dumps({**orjson.loads(good), **change}))

    with pytest.raises(DataError, match=message) as caught:
        read_rows(tmp_path / "rows.jsonl")
    assert "rows.jsonl, line 2: " in str(caught.value)
