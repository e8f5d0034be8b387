from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.prompts import load_prompts
from evenhand.benchmarks.realtoxicity import find_prompts
from evenhand.benchmarks.squad import find_questions
from evenhand.core.errors import DataError, UsageError
from evenhand.data.texts import TextFile


def sheet(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(list(row))
    book.save(path)
    return path


def saved(folder: Path, texts: Sequence[str]) -> Path:
    """A folder as `datasets.Dataset.save_to_disk` writes it."""
    folder.mkdir()
    table = pa.table({"id": list(range(len(texts))), "prompt": list(texts)})
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    return folder


def test_a_sheet_is_read(tmp_path: Path):
    path = sheet(tmp_path / "a.xlsx", [("id", "text"), (1, "one"), (None, None), (2, "two")])
    rows = list(TextFile(path).rows())
    assert [(row.text, row.fields["id"]) for row in rows] == [("one", 1), ("two", 2)]


def test_a_sheet_with_a_number_as_text_is_refused_with_its_line(tmp_path: Path):
    path = sheet(tmp_path / "a.xlsx", [("text",), ("one",), (2,)])
    with pytest.raises(DataError, match=r"line 3: The field 'text' is not text"):
        list(TextFile(path).rows())


def test_what_is_no_sheet_is_refused(tmp_path: Path):
    (tmp_path / "a.xlsx").write_text("text\none\n")
    with pytest.raises(DataError, match="not an Excel file"):
        list(TextFile(tmp_path / "a.xlsx").rows())


@pytest.mark.parametrize("kind", ["csv", "jsonl", "xlsx", "txt", "folder"])
def test_prompts_come_from_any_of_the_formats(tmp_path: Path, kind: str):
    texts = ["Describe {person}.", "A nurse, and a driver", "Describe {person}."]
    path = tmp_path / f"prompts.{kind}"
    if kind == "csv":
        path.write_text("id,prompt\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts)))
    elif kind == "jsonl":
        path.write_text("".join(f'{{"question": "{text}"}}\n' for text in texts))
    elif kind == "xlsx":
        sheet(path, [("prompt",), *((text,) for text in texts)])
    elif kind == "txt":
        path.write_text("\n\n".join(texts))
    else:
        saved(path, texts)

    assert [each.text for each in load_prompts(path)] == texts[:2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\nx,y\n", r"none of its fields is called prompt, .* field=NAME \(it has a, b\)"),
        ("prompt\n{who} calls\n", r"prompt 1: there is no slot \{who\}"),
        ("prompt,prompt\nx,y\n", "line 1: Two columns are named 'prompt'"),
        ("prompt\n", "the file has no rows"),
        ("", "the file has no rows"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, content: str, message: str):
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        load_prompts(tmp_path / "p.csv")


def test_a_folder_with_splits_wants_one_of_them(tmp_path: Path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(UsageError, match="name one of them"):
        load_prompts(tmp_path)


def test_the_built_in_prompts_suit_gender_and_race():
    assert len(load_prompts()) >= 20


def stored(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A folder as `datasets` saves it, with nested columns."""
    folder.mkdir()
    table = pa.Table.from_pylist(list(rows))
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    return folder


def test_a_parquet_file_is_read_and_what_is_none_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"answer": ["one", "two"], "n": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("no")

    assert [row.text for row in TextFile(tmp_path / "a.parquet", field="answer").rows()] == ["one", "two"]
    with pytest.raises(DataError, match="not a Parquet file"):
        list(TextFile(tmp_path / "b.parquet").rows())


def test_squad_is_read_as_datasets_saved_it(tmp_path: Path):
    row = {"id": "q1", "title": "T", "context": "A passage.", "question": "Who?"}
    answers = ({"text": ["Ann", "Ann"], "answer_start": [0, 0]}, {"text": [], "answer_start": []})
    folder = stored(tmp_path / "squad", [{**row, "id": f"q{n}", "answers": each} for n, each in enumerate(answers)])

    samples = list(load_benchmark("squad", data=str(folder)).samples(Selection()))

    assert {sample.id: sample.target for sample in samples}.keys() == {"q0", "q1"}
    assert [each.answers for each in find_questions(folder).questions()] == [("Ann",), ()]
    assert load_benchmark("squad", data=str(folder)).fingerprint()["sha256"].keys() == {"data-00000-of-00001.arrow"}


def test_prompts_of_realtoxicity_are_read_as_datasets_saved_them(tmp_path: Path):
    rows = [{"prompt": {"text": text, "toxicity": score}} for text, score in (("So", 0.55), ("It", 0.9), ("He", None))]
    folder = stored(tmp_path / "rtp", rows)

    samples = list(load_benchmark("realtoxicity", data=str(folder), completions=1).samples(Selection()))

    assert {sample.prompt for sample in samples} == {"So", "It"}


def test_a_saved_set_of_another_kind_is_refused(tmp_path: Path):
    folder = stored(tmp_path / "other", [{"text": "x"}])

    with pytest.raises(DataError, match=r"answers\.text is missing"):
        list(find_questions(folder).questions())
    with pytest.raises(DataError, match="'prompt' is not an object"):
        list(find_prompts(folder).prompts())
