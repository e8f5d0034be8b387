"""The built-in question set: form, truth, balance and language of every row."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import pytest
import yaml

from evenhand.data.bbq.generate import CATEGORIES, UNKNOWN_ANSWERS, builtin_rows

Row = dict[str, Any]
ROWS: list[Row] = list(builtin_rows())
DISAMBIGUATED = [row for row in ROWS if row["context_condition"] == "disambig"]
ANSWERS = ("ans0", "ans1", "ans2")
FIELDS = {
    *("example_id", "question_index", "question_polarity", "context_condition", "category", "answer_info"),
    *("additional_metadata", "context", "question", *ANSWERS, "label", "target_loc", "label_type"),
}
DIGEST = "508e3d5a68429b5a0ce25c68660f624e491b598598d536b411434566c9435eb7"

by_category = pytest.mark.parametrize("category", CATEGORIES)


def unknown_position(row: Row) -> int:
    return [row["answer_info"][answer][1] for answer in ANSWERS].index("unknown")


def person_positions(row: Row) -> list[int]:
    return [i for i in range(3) if i != unknown_position(row)]


def stereotyped_position(row: Row) -> int:
    """The target of a negative question; in a non-negative question the target is the other person."""
    flip = row["question_polarity"] == "nonneg"
    return next(i for i in person_positions(row) if (i == row["target_loc"]) != flip)


def definite(row: Row, position: int) -> str:
    """How a person is mentioned inside a sentence."""
    return re.sub("^The ", "the ", row[f"ans{position}"])


def sides(row: Row) -> tuple[str, str]:
    """The ambiguous part of a disambiguated context and the sentence that was added."""
    ambiguous = SCENES[item(row)]
    assert row["context"].startswith(f"{ambiguous} ")
    return ambiguous, row["context"].removeprefix(f"{ambiguous} ")


def item(row: Row) -> tuple[str, int]:
    """Rows come in blocks of four around one ambiguous context."""
    return row["category"], row["example_id"] // 4


SCENES: dict[tuple[str, int], str] = {item(row): row["context"] for row in ROWS if row["context_condition"] == "ambig"}


def place(text: str, row: Row, position: int) -> int:
    """Where a person is mentioned in a text, by the bare phrase that first and later mentions share."""
    phrase = row["answer_info"][f"ans{position}"][0]
    match = re.search(rf"\b(?:(?:an?|the) )?{re.escape(phrase)}\b", text, re.I)
    assert match, (phrase, text)
    return match.start()


def template(row: Row) -> dict[str, Any]:
    return TEMPLATES[row["category"]][int(row["question_index"]) - 1]


def load(category: str) -> list[dict[str, Any]]:
    path = resources.files("evenhand.data.bbq").joinpath("builtin", f"{category}.yaml")
    data = yaml.safe_load(path.read_text("utf-8"))
    assert data["category"] == category
    return data["templates"]


TEMPLATES = {category: load(category) for category in CATEGORIES}


def even(rows: Iterable[Row], feature: Callable[[Row], object], *, slack: int = 0) -> bool:
    counts = Counter(map(feature, rows)).values()
    return max(counts) - min(counts) <= slack


def of(category: str, rows: list[Row] = ROWS) -> list[Row]:
    return [row for row in rows if row["category"] == category]


# --- form


def test_every_row_has_the_official_fields_and_the_two_of_the_metadata_file() -> None:
    for row in ROWS:
        assert set(row) == FIELDS
        assert row["question_polarity"] in {"neg", "nonneg"}
        assert row["context_condition"] in {"ambig", "disambig"}
        assert row["label_type"] in {"label", "name"}
        assert set(row["answer_info"]) == set(ANSWERS)
        assert set(row["additional_metadata"]) == {"subcategory", "stereotyped_groups", "version", "source"}
        assert all(isinstance(text, str) and isinstance(group, str) for text, group in row["answer_info"].values())
        assert row["label"] in range(3)
        assert row["target_loc"] in range(3)
        assert row[f"ans{unknown_position(row)}"] in UNKNOWN_ANSWERS


@by_category
def test_each_category_has_templates_and_rows_enough(category: str) -> None:
    rows = of(category)

    assert len({row["question_index"] for row in rows}) == len(TEMPLATES[category]) >= 4
    assert len(rows) >= 80
    assert [row["example_id"] for row in rows] == list(range(len(rows)))


def test_proper_names_stand_in_for_groups_in_two_categories_only() -> None:
    named = {row["category"] for row in ROWS if row["label_type"] == "name"}

    assert named == {"Gender_identity", "Race_ethnicity"}


def test_no_item_occurs_twice() -> None:
    items = [(r["category"], r["context"], r["question"], r["ans0"], r["ans1"], r["ans2"]) for r in ROWS]

    assert len(set(items)) == len(items)


def test_the_set_is_the_same_every_time() -> None:
    digests = {
        hashlib.sha256("\n".join(json.dumps(row) for row in rows).encode()).hexdigest()
        for rows in (ROWS, builtin_rows.__wrapped__())
    }

    assert digests == {DIGEST}


# --- truth


def test_ambiguous_items_have_the_unknown_answer() -> None:
    assert all(r["label"] == unknown_position(r) for r in ROWS if r["context_condition"] == "ambig")


def test_disambiguated_items_state_the_answer_to_both_questions() -> None:
    for row in DISAMBIGUATED:
        asked, opposite = ("bad", "good") if row["question_polarity"] == "neg" else ("good", "bad")
        (loser,) = set(person_positions(row)) - {row["label"]}
        _, fact = sides(row)
        assert template(row)[asked].format(person=definite(row, row["label"])).lower() in fact.lower()
        assert template(row)[opposite].format(person=definite(row, loser)).lower() in fact.lower()


def test_ambiguous_contexts_state_neither_clause() -> None:
    for row in DISAMBIGUATED:
        ambiguous, _ = sides(row)
        for clause in ("bad", "good"):
            assert template(row)[clause].removeprefix("{person} ") not in ambiguous


def test_the_target_is_a_person_and_follows_the_polarity() -> None:
    for row in ROWS:
        stereotyped = row["additional_metadata"]["stereotyped_groups"]
        group = row["answer_info"][f"ans{row['target_loc']}"][1]
        assert row["target_loc"] != unknown_position(row)
        assert (group in stereotyped) == (row["question_polarity"] == "neg")


def test_both_people_are_in_the_context() -> None:
    for row in ROWS:
        for position in person_positions(row):
            assert place(row["context"], row, position) >= 0


# --- balance


@by_category
def test_positions_of_unknown_target_and_label_are_level(category: str) -> None:
    rows, disambiguated = of(category), of(category, DISAMBIGUATED)

    assert even(rows, unknown_position, slack=len(rows) // 24)
    assert even(rows, lambda row: row["target_loc"], slack=len(rows) // 24)
    assert even(disambiguated, lambda row: row["label"], slack=2)


@by_category
def test_truth_order_of_mention_and_polarity_are_crossed(category: str) -> None:
    def cell(row: Row) -> tuple[bool, bool, str]:
        ambiguous, _ = sides(row)
        (other,) = set(person_positions(row)) - {stereotyped_position(row)}
        first = place(ambiguous, row, stereotyped_position(row)) < place(ambiguous, row, other)
        return row["label"] == row["target_loc"], first, row["question_polarity"]

    rows = of(category, DISAMBIGUATED)

    assert len({cell(row) for row in rows}) == 8
    assert even(rows, cell)


@by_category
def test_no_order_gives_the_answer_away(category: str) -> None:
    def first_in_scene(row: Row) -> bool:
        return first_of(sides(row)[0], row)

    def first_in_fact(row: Row) -> bool:
        return first_of(sides(row)[1], row)

    def first_of(text: str, row: Row) -> bool:
        return min(person_positions(row), key=lambda i: place(text, row, i)) == row["label"]

    rows = of(category, DISAMBIGUATED)

    assert even(rows, first_in_scene)
    assert even(rows, first_in_fact)
    assert even(rows, lambda row: row["label"] == person_positions(row)[0])


def test_spellings_of_unknown_are_level() -> None:
    assert even(ROWS, lambda row: row[f"ans{unknown_position(row)}"])


# --- language


def test_sentences_are_whole() -> None:
    for row in ROWS:
        for text in (row["context"], row["question"], *(row[answer] for answer in ANSWERS)):
            assert not re.search(r"[{}]|  |^ | $|\.\.", text)
            assert not re.search(r"(?:^|[.?!] )[a-z]", text)
        assert row["context"].endswith(".")
        assert row["question"].startswith("Who ")
        assert row["question"].endswith("?")


def test_articles_fit_the_next_sound() -> None:
    consonant_u = r"(?:use|uni[tvfo]|one\b)"
    vowel_sound = rf"(?!{consonant_u})(?:[aeiou]|8|11\b|18\b|hour|honest|heir)"
    for row in ROWS:
        for text in (row["context"], row["question"]):
            assert not re.search(rf"\ba {vowel_sound}", text, re.I), text
            assert not re.search(rf"\ban (?!{vowel_sound})", text, re.I), text


def test_each_template_names_its_stereotype_and_groups() -> None:
    for templates in TEMPLATES.values():
        for entry in templates:
            groups = ", ".join(dict.fromkeys(stereotyped for stereotyped, _ in entry["pairs"]))
            assert entry["stereotype"].endswith(f"({groups}).")
