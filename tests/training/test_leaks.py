"""The leak check finds BBQ's words in training text, and says what it could not look at."""

from pathlib import Path

import pytest

from evenhand.core.errors import DataError
from evenhand.data.bbq import CATEGORIES, BuiltinRows
from evenhand.training.pairs.cleaning import UNCHECKED, LeakCheck, load_check

ITEMS = [item for category in CATEGORIES for item in BuiltinRows().items(category)]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LeakCheck:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    return load_check()


def test_a_context_is_found_inside_other_text(check: LeakCheck):
    context = max((item.context for item in ITEMS), key=len)

    found = check.leak_in(f"Let me tell a story. {context.upper().replace(' ', '  ')} So it was.")

    assert found is not None
    assert found in " ".join(context.lower().replace(",", "").replace(".", "").split())


def test_seven_words_in_a_row_are_chance(check: LeakCheck):
    words = max((item.context for item in ITEMS), key=len).split()

    assert check.leak_in(" ".join(words[:7])) is None


def test_a_short_question_is_found_whole(check: LeakCheck):
    question = next(item.question for item in ITEMS if 5 <= len(item.question.split()) <= 7)

    assert check.leak_in(f"They asked: {question}") is not None


def test_plain_text_does_not_leak(check: LeakCheck):
    assert check.leak_in("Gardening offers a mix of rest and work that many people like at any age.") is None


def test_without_the_official_files_it_says_so(check: LeakCheck):
    assert check.note()["unchecked"] == UNCHECKED
    assert list(check.note()["checked"]) == ["bbq_builtin"]


def test_a_named_folder_must_hold_bbq(tmp_path: Path):
    with pytest.raises(DataError, match="is not in"):
        load_check(tmp_path)
