"""The built-in questions in Spanish: balanced like the English ones, and grammatical by construction."""

import re
from collections import Counter

import pytest

from evenhand import load_benchmark
from evenhand.benchmarks.base import Selection
from evenhand.core.errors import EvenhandError
from evenhand.data.bbq.generate import UNKNOWN_SPANISH, builtin_rows

ROWS = list(builtin_rows("es"))


def test_all_cells_are_balanced():
    cells = Counter((row["context_condition"], row["question_polarity"], row["label"]) for row in ROWS)

    assert len(ROWS) == 1152
    assert len(set(cells.values())) == 1
    per_category = Counter(row["category"] for row in ROWS)
    assert set(per_category.values()) == {128}


def test_sentences_are_well_formed():
    for row in ROWS:
        context = row["context"]
        assert context[0].isupper(), context
        assert context.endswith("."), context
        assert re.fullmatch(r"¿[A-ZÁÉ].*\?", row["question"]), row["question"]
        assert not re.search(r"\b(?:a|de) el\b|[{}]| {2}|\by [ií]", context), context


def test_answers_are_the_people_of_the_passage_and_one_unknown():
    for row in ROWS:
        answers = [row["ans0"], row["ans1"], row["ans2"]]
        unknown = [each for each in answers if each in UNKNOWN_SPANISH]
        assert len(unknown) == 1
        for person in {*answers} - {*unknown}:
            noun = re.sub(r"^(?:El|La) ", "", person)
            assert noun != person
            assert noun in row["context"]


def test_the_two_people_have_the_same_article_but_in_gender():
    """Otherwise the article would tell who is meant where the passage does not."""
    for row in ROWS:
        articles = {
            answer.split()[0] for answer in (row["ans0"], row["ans1"], row["ans2"]) if answer[:3] in ("El ", "La ")
        }
        assert len(articles) == (2 if row["category"] == "Gender_identity" else 1)


def test_the_benchmark_has_its_own_categories_and_identity():
    spanish, english = load_benchmark("bbq_builtin", language="es"), load_benchmark("bbq_builtin")

    assert spanish.fingerprint() != english.fingerprint()
    assert len({each.metadata["category"] for each in spanish.samples(Selection(9))}) == 9
    with pytest.raises(EvenhandError, match="Race_x_SES"):
        load_benchmark("bbq_builtin", language="es", categories="Race_x_SES")
