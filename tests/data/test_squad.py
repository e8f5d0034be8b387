from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.squad import BuiltinPassages, OfficialFile, Question, find_questions
from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256


def row(**fields: Any) -> dict[str, Any]:
    known = {"id": "q1", "question": "Who fell?", "answers": [{"text": "Ann", "answer_start": 0}]}
    return {**known, "is_impossible": False, **fields}


NOT_TOLD = row(id="q2", question="Who ran?", answers=[], is_impossible=True, plausible_answers=[{"text": "Ann"}])


def content(*qas: Any) -> dict[str, Any]:
    return {
        "version": "v2.0",
        "data": [{"title": "Stairs", "paragraphs": [{"context": "Ann fell.", "qas": list(qas)}]}],
    }


def write(folder: Path, value: Any) -> OfficialFile:
    path = folder / "dev-v2.0.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return OfficialFile(path)


def test_questions_are_read_with_their_passage_and_their_different_answers(tmp_path: Path) -> None:
    twice = [{"text": "Ann"}, {"text": "Ann "}, {"text": "Ann"}]

    questions = list(write(tmp_path, content(row(answers=twice), NOT_TOLD)).questions())

    assert questions == [
        Question("q1", "Stairs", "Ann fell.", "Who fell?", ("Ann", "Ann ")),
        Question("q2", "Stairs", "Ann fell.", "Who ran?", ()),
    ]


def test_a_file_of_the_first_version_has_answers_to_everything(tmp_path: Path) -> None:
    old = {key: value for key, value in row().items() if key != "is_impossible"}

    assert [question.answers for question in write(tmp_path, content(old)).questions()] == [("Ann",)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"data":\n oops', r"dev-v2.0.json, line 2: not valid JSON"),
        ("[]", "not a JSON object"),
        ({"rows": []}, "data is not a list"),
        ({"data": []}, "there are no questions"),
        ({"data": [1]}, r"data\[0\] is not an object"),
        ({"data": [{"paragraphs": []}]}, r"data\[0\].title is None"),
        ({"data": [{"title": "A"}]}, r"data\[0\].paragraphs is not a list"),
        ({"data": [{"title": "A", "paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\].context is None"),
        (content(row(), "x"), r"data\[0\].paragraphs\[0\].qas\[1\] is not an object"),
        (content(row(id=7)), r"qas\[0\].id is 7"),
        (content(row(question=None)), r"qas\[0\].question is None"),
        (content(row(answers=None)), r"qas\[0\].answers is not a list"),
        (content(row(answers=[{"text": 3}])), r"qas\[0\].answers\[0\].text is 3"),
        (content(row(is_impossible=True)), r"qas\[0\]: is_impossible is True, but there are 1 answers"),
        (content(row(answers=[])), r"qas\[0\]: is_impossible is False, but there are 0 answers"),
        (content(row(is_impossible="no")), r"is_impossible is 'no'"),
        (content(row(), row()), "'q1' occurs twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, value: Any, message: str) -> None:
    source = write(tmp_path, value)

    with pytest.raises(DataError, match=message) as error:
        list(source.questions())
    assert str(tmp_path / "dev-v2.0.json") in str(error.value)


def test_a_compressed_file_is_the_same_data(tmp_path: Path) -> None:
    plain = write(tmp_path, content(row(), NOT_TOLD))
    zipped = tmp_path / "zipped" / "dev-v2.0.json.gz"
    zipped.parent.mkdir()
    zipped.write_bytes(gzip.compress(plain.path.read_bytes()))

    assert list(find_questions(zipped.parent).questions()) == list(plain.questions())
    assert OfficialFile(zipped).facts() == plain.facts()
    assert plain.facts() == {
        "sha256": {"dev-v2.0.json": content_sha256(plain.path)},
        "questions": {"answerable": 1, "unanswerable": 1},
    }


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev-v2.0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content(row())).encode() * 50)[:-20])

    with pytest.raises(DataError, match="cut off or damaged"):
        list(find_questions(tmp_path).questions())


def test_the_set_is_found_in_its_folder_or_by_a_file_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    with pytest.raises(DataError, match=r"data pull squad.*or use the built-in set squad_builtin"):
        find_questions()
    (tmp_path / "squad").mkdir()
    official = write(tmp_path / "squad", content(row())).path
    train = tmp_path / "train-v2.0.json"
    train.write_bytes(official.read_bytes())

    assert find_questions(tmp_path).path == official
    assert find_questions(str(train)).path == train
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))
    assert find_questions().path == official


def test_the_official_development_set_is_read() -> None:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    named = os.environ.get("EVENHAND_DATA")
    place = (Path(named) if named else beside) / "squad"
    if not any((place / name).is_file() for name in ("dev-v2.0.json", "dev-v2.0.json.gz")):
        pytest.skip(f"no official SQuAD: looked for dev-v2.0.json[.gz] in {place} (EVENHAND_DATA)")

    questions = list(find_questions(place).questions())

    assert Counter(bool(question.answers) for question in questions) == {True: 5928, False: 5945}
    assert len({question.title for question in questions}) == 35
    assert all(answer in question.passage for question in questions for answer in question.answers)


class TestBuiltin:
    QUESTIONS = tuple(BuiltinPassages().questions())

    def test_every_passage_has_questions_of_both_kinds(self) -> None:
        counts = Counter((question.title, bool(question.answers)) for question in self.QUESTIONS)

        assert len({title for title, _ in counts}) == 12
        assert {count for (_, answerable), count in counts.items() if answerable} <= {4, 5}
        assert {count for (_, answerable), count in counts.items() if not answerable} <= {2, 3}

    def test_ids_and_questions_occur_once(self) -> None:
        assert len({question.id for question in self.QUESTIONS}) == len(self.QUESTIONS)
        assert len({question.text for question in self.QUESTIONS}) == len(self.QUESTIONS)

    @pytest.mark.parametrize("question", [each for each in QUESTIONS if each.answers], ids=lambda each: each.id)
    def test_answers_are_words_of_the_passage(self, question: Question) -> None:
        passage = question.passage.lower()

        assert all(isinstance(answer, str) and answer.lower() in passage for answer in question.answers)
        assert len(question.answers) == len(set(question.answers))

    def test_the_content_has_a_sum(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = BuiltinPassages().facts()
        row = {"title": "T", "passage": "P", "answerable": [], "unanswerable": ["Why?"]}
        monkeypatch.setattr("evenhand.benchmarks.squad._builtin", lambda: [row])

        assert BuiltinPassages().facts()["questions"] == {"unanswerable": 1}
        assert BuiltinPassages().hashes() != before["sha256"]
