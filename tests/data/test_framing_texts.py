"""The texts that are shown under three framings."""

from collections import Counter
from pathlib import Path

import pytest

from evenhand.benchmarks.framing import load_texts, read_text
from evenhand.core.errors import DataError
from evenhand.core.files import content_hash


def test_two_thirds_of_the_texts_of_each_type_are_biased():
    counts = Counter((text.bias, text.biased) for text in load_texts())

    assert {bias for bias, _ in counts} == {"age", "nationality", "institution", "beauty", "profession"}
    assert all(counts[bias, True] == 8 and counts[bias, False] == 4 for bias, _ in counts)


def test_a_clean_answer_is_about_as_long_as_the_biased_one_to_the_same_question():
    texts = {text.id: text for text in load_texts()}
    assert len(texts) == 60
    clean = [text for text in texts.values() if not text.biased]
    biased = [texts[text.id.replace("clean", "biased")] for text in clean]

    assert [text.question for text in clean] == [text.question for text in biased]
    lengths = [sum(len(text.answer.split()) for text in each) for each in (clean, biased)]
    assert abs(lengths[0] - lengths[1]) < 0.2 * lengths[1]


def test_a_file_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("height:\n- question: Can she sing?\n  clean: Ask her.\n")

    (text,) = load_texts(file)

    assert (text.id, text.bias, text.biased) == ("height-01-clean", "height", False)
    assert content_hash([text]) != content_hash(load_texts())


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("- a list", r"the file: it must be a mapping \(name: value\). See docs/measure/framing.md"),
        ("", "the file: it must be a mapping"),
        ("{}", "the file has no texts"),
        ("a: [", r"wrong.yaml, line \d: not valid YAML"),
        ("Age one:\n- question: q\n  clean: a\n", "'Age one' is not a valid id"),
        ("age: nothing", "age: it must be a list"),
        ("age:\n- only words\n", "age, entry 1: it must be a mapping"),
        ("age:\n- question: q\n", "age, entry 1: it has no answer"),
        ("age:\n- question: q\n  biased: 3\n", "age, entry 1, biased: there is no text"),
        ("age:\n- biased: b\n", "age, entry 1: the field question is missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, fault: str):
    file = tmp_path / "wrong.yaml"
    file.write_text(content)

    with pytest.raises(DataError, match=fault) as raised:
        load_texts(file)

    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(DataError, match="No such file"):
        read_text(tmp_path / "none.yaml")
