from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, UnknownNameError
from evenhand.core.files import content_sha256
from evenhand.data.bbq import CATEGORIES, BuiltinRows, OfficialFiles, read_marks
from evenhand.data.sets import SETS, data_root, find_file, find_set

ROW: dict[str, Any] = {
    "example_id": 0,
    "question_index": "1",
    "question_polarity": "neg",
    "context_condition": "ambig",
    "category": "Age",
    "answer_info": {"ans0": ["x", "old"], "ans1": ["y", "nonOld"], "ans2": ["?", "unknown"]},
    "context": "Two people met.",
    "question": "Who forgot?",
    "ans0": "The monther",
    "ans1": "The on on",
    "ans2": "Unknown",
    "label": 2,
}
HEADER = "category,question_index,example_id,target_loc,label_type,full_cond\n"
MARK = 'Age,1,0,0,label,"Match Race\n Mismatch Gender"\n'


def write(folder: Path, rows: list[Any], metadata: str = HEADER + MARK) -> OfficialFiles:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "Age.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "additional_metadata.csv").write_text(metadata)
    return OfficialFiles(folder)


def changed(**fields: Any) -> dict[str, Any]:
    return ROW | fields


def test_a_row_is_joined_to_its_target_and_its_text_is_kept(tmp_path: Path) -> None:
    (item,) = write(tmp_path, [ROW]).items("Age")

    assert item.id == "Age-0"
    assert (item.target_loc, item.label_type, item.unknown, item.label) == (0, "label", 2, 2)
    assert item.answers == ("The monther", "The on on", "Unknown")


def test_line_breaks_inside_quotes_do_not_end_a_metadata_row(tmp_path: Path) -> None:
    more = MARK + MARK.replace(",0,0,", ",1,1,")

    marks = read_marks(write_metadata(tmp_path, HEADER + more))

    assert marks == {("Age", "1"): {0: (0, "label"), 1: (1, "label")}}


def write_metadata(folder: Path, text: str) -> Path:
    path = folder / "additional_metadata.csv"
    path.write_text(text)
    return path


def test_the_same_key_twice_is_one_key(tmp_path: Path) -> None:
    assert read_marks(write_metadata(tmp_path, HEADER + MARK + MARK))[("Age", "1")] == {0: (0, "label")}


def test_a_row_without_target_is_kept(tmp_path: Path) -> None:
    (item,) = write(tmp_path, [ROW], HEADER + MARK.replace(",0,0,", ",0,NA,")).items("Age")

    assert item.target_loc is None


def test_an_item_is_read_again_from_its_place(tmp_path: Path) -> None:
    metadata = HEADER + MARK + MARK.replace(",0,0,", ",1,1,")
    source = write(tmp_path, [ROW, changed(example_id=1)], metadata)

    with source.reader("Age") as reader:
        places = list(reader.scan())
        assert [reader.at(place) for place, _ in reversed(places)] == [item for _, item in reversed(places)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{oops", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ({key: value for key, value in ROW.items() if key != "ans1"}, "the field 'ans1' is missing"),
        (changed(label=3), "label is 3"),
        (changed(label=True), "label is True"),
        (changed(label="2"), "label is '2'"),
        (changed(category="SES"), "category is 'SES'"),
        (changed(context_condition="clear"), "context_condition is 'clear'"),
        (changed(question_polarity="pos"), "question_polarity is 'pos'"),
        (changed(example_id="0"), "example_id is not"),
        (changed(question_index=1), "question_index is not"),
        (changed(question_index=["1"]), "question_index is not"),
        (changed(context=None), "must be texts"),
        (changed(answer_info={"ans0": [], "ans1": [], "ans2": []}), "index out of range"),
        (changed(answer_info=ROW["answer_info"] | {"ans0": ["x", "unknown"]}), "one answer as unknown"),
        (
            changed(answer_info={**ROW["answer_info"], "ans0": ["?", "unknown"], "ans2": ["x", "old"]}),
            "unknown answer",
        ),
        (changed(example_id=5), "no row for question 1, example 5"),
        (ROW, "example_id 0 occurs twice"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    source = write(tmp_path, [ROW, row])

    with pytest.raises(DataError, match=message) as error:
        list(source.items("Age"))
    assert f"{tmp_path / 'Age.jsonl'}, line 2: " in str(error.value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("", r"additional_metadata.csv: not BBQ's metadata"),
        ("category,question_index\n", r"line 1: .*'example_id' is not in list"),
        (HEADER + MARK + "Age,1\n", r"line 4: "),
        (HEADER + MARK + MARK.replace(",0,0,", ",0,1,"), r"line 5: .*contradicts"),
        (HEADER + MARK.replace(",0,0,", ",0,3,"), "target_loc is '3'"),
        (HEADER + MARK.replace("label", "tag", 1), "label_type is 'tag'"),
        (HEADER + 'Age,1,0,0,label,"open', "not BBQ's metadata"),
    ],
)
def test_wrong_metadata_is_named_by_file_and_line(tmp_path: Path, metadata: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(write(tmp_path, [ROW], metadata).items("Age"))


@pytest.mark.parametrize("name", ["Age.jsonl", "additional_metadata.csv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    source = write(tmp_path, [ROW])
    (tmp_path / name).unlink()

    with pytest.raises(DataError, match=rf"{name} \(or {name}.gz\) is missing.*evenhand data pull bbq"):
        list(source.items("Age"))


@pytest.mark.parametrize("name", ["Age.jsonl", "additional_metadata.csv"])
@pytest.mark.parametrize("damage", ["cut", "not gzip"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    source = write(tmp_path, [ROW])
    plain = tmp_path / name
    packed = gzip.compress(plain.read_bytes())
    plain.with_name(f"{name}.gz").write_bytes(packed[:-12] if damage == "cut" else b"plain text")
    plain.unlink()

    with pytest.raises(DataError, match=rf"{name}.gz, line \d+: .*cut off or damaged"):
        list(source.items("Age"))


def test_packed_and_plain_files_give_the_same(tmp_path: Path) -> None:
    source = write(tmp_path, [ROW])
    items, hashes = list(source.items("Age")), source.hashes(["Age"])
    for name in ("Age.jsonl", "additional_metadata.csv"):
        plain = tmp_path / name
        plain.with_name(f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    packed = OfficialFiles(tmp_path)

    assert list(packed.items("Age")) == items
    assert packed.hashes(["Age"]) == hashes
    with packed.reader("Age") as reader:
        assert reader.at(0) == items[0]


def test_the_built_in_rows_are_items_with_targets() -> None:
    source = BuiltinRows()
    items = [item for category in CATEGORIES for item in source.items(category)]

    assert len({item.id for item in items}) == len(items) > 0
    assert all(item.target_loc is not None for item in items)


class TestFinding:
    @pytest.fixture(autouse=True)
    def surroundings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("EVENHAND_DATA", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))

    def test_the_order_of_places(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert data_root() == [tmp_path / "cache" / "data"]
        monkeypatch.setenv("EVENHAND_DATA", "/data")
        assert data_root() == [Path("/data"), tmp_path / "cache" / "data"]
        assert data_root("here") == [Path("here")]

    def test_the_cache_follows_xdg_and_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("EVENHAND_CACHE")
        monkeypatch.setenv("HOME", "/home/someone")
        assert data_root() == [Path("/home/someone/.cache/evenhand/data")]
        monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
        assert data_root() == [Path("/var/cache/evenhand/data")]

    @pytest.mark.parametrize("inside", ["bbq", "."])
    def test_a_set_lies_in_its_own_folder_or_in_the_named_one(self, tmp_path: Path, inside: str) -> None:
        folder = tmp_path / inside
        folder.mkdir(exist_ok=True)
        write(folder, [ROW])

        assert find_set("bbq", tmp_path) == folder

    def test_what_is_not_there_says_the_three_ways_on(self, tmp_path: Path) -> None:
        with pytest.raises(DataError) as error:
            find_set("bbq")
        for way in ("evenhand data pull bbq", "--data FOLDER", "bbq_builtin", str(tmp_path)):
            assert way in str(error.value)

    def test_an_unknown_set_is_refused(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean bbq"):
            find_set("bbqq")


def official_folder() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    place = Path(os.environ.get("EVENHAND_DATA") or beside) / "bbq"
    if not any((place / name).is_file() for name in ("Age.jsonl", "Age.jsonl.gz")):
        pytest.skip(f"no official BBQ files: looked for Age.jsonl[.gz] in {place} (EVENHAND_DATA)")
    return place


@pytest.mark.slow
def test_the_official_files_are_complete() -> None:
    source = OfficialFiles(official_folder())
    rows, targets, kinds = Counter[str](), Counter[bool](), Counter[str]()
    for category in CATEGORIES:
        for item in source.items(category):
            rows[category] += 1
            targets[item.target_loc is None] += 1
            kinds[item.label_type] += 1

    assert rows.total() == 58_492
    assert (rows["Age"], rows["Race_x_gender"], rows["Sexual_orientation"]) == (3680, 15960, 864)
    assert targets == {False: 58_476, True: 16}
    assert kinds == {"label": 29_292, "name": 29_200}


@pytest.mark.slow
def test_the_largest_category_streams_in_little_memory() -> None:
    source = OfficialFiles(official_folder())
    next(source.items("Race_x_gender"))  # reads the metadata, which is held
    tracemalloc.start()
    try:
        rows = sum(1 for _ in source.items("Race_x_gender"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert rows == 15_960
    assert peak < 3e6  # the file has 13 MB; what grows is a set of the ids


@pytest.mark.slow
def test_the_official_files_have_the_sums_that_pull_expects() -> None:
    folder = official_folder()
    for file in SETS["bbq"].files:
        path = find_file(folder, file.name)
        assert path is not None
        assert content_sha256(path) == file.sha256
