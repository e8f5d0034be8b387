"""Where data sets are looked for, under the names that people have them under."""

from pathlib import Path

import pytest

from evenhand.core.errors import DataError
from evenhand.data.bbq import METADATA, OfficialFiles
from evenhand.data.sets import find_set


def put(path: Path, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("bbq", "bbq/Age.jsonl"),
        ("bbq", "Age.jsonl"),
        ("bbq", "data/Age.jsonl"),
        ("bbq", "BBQ/data/Age.jsonl.gz"),
        ("bbq", "BBQ-main/data/Age.jsonl"),
        ("realtoxicity", "real-toxicity-prompts/prompts.jsonl"),
        ("realtoxicity", "realtoxicityprompts-data/prompts.jsonl"),
        ("squad", "SQuAD-v2.0/dev-v2.0.json"),
        ("squad", "squad_v2/data/official/dev-v2.0.json"),
    ],
)
def test_usual_names_of_folders_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str):
    folder = put(tmp_path / file)
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))

    assert find_set(name) == folder


def test_a_file_of_the_same_name_in_another_folder_is_not_taken(tmp_path: Path):
    put(tmp_path / "my-prompts/prompts.jsonl")

    with pytest.raises(DataError):
        find_set("realtoxicity", tmp_path)


def test_a_clone_of_the_official_repository_keeps_its_metadata_apart(tmp_path: Path):
    folder = put(tmp_path / "BBQ-main/data/Age.jsonl")
    put(tmp_path / "BBQ-main/analysis_scripts" / METADATA, "category\n")

    assert set(OfficialFiles(folder).hashes(["Age"])) == {"Age.jsonl", METADATA}


def test_what_is_missing_is_named_with_its_file(tmp_path: Path):
    with pytest.raises(DataError, match=r"there is no .*/realtoxicity/prompts\.jsonl.*evenhand data pull realtoxicity"):
        find_set("realtoxicity", tmp_path)
