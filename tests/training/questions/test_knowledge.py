"""Questions of common knowledge: one right answer each, balanced, held out, and nothing of other sets."""

from collections import Counter
from itertools import islice
from pathlib import Path

import orjson
import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.training.questions import FORMS, QuestionPlan, QuestionRow, ReplyGrade, grade, make
from evenhand.training.questions.folder import load_benchmarks
from evenhand.training.questions.knowledge import KNOWLEDGE_FORMS, Knowledge, knowledge, parse_knowledge
from evenhand.training.questions.language import Split
from evenhand.training.questions.row import check_classes

ENGLISH = QuestionPlan(languages=("en",), categories=("knowledge",), forms=KNOWLEDGE_FORMS)


def drawn(count: int, split: Split = "train", plan: QuestionPlan = ENGLISH) -> list[QuestionRow]:
    return list(islice(make(plan, split), count))


@pytest.fixture(scope="module")
def train() -> list[QuestionRow]:
    return drawn(3000)


@pytest.fixture(scope="module")
def facts() -> list[Knowledge]:
    return [fact for split in ("train", "dev") for each in knowledge(split).values() for fact in each]


def comparisons(rows: list[QuestionRow]) -> list[QuestionRow]:
    pairs = {fact.id for each in knowledge("train").values() for fact in each if fact.thirds}
    return [row for row in rows if row.situation in pairs]


def test_every_fact_stands_once_with_options_that_differ(facts: list[Knowledge]):
    assert len({fact.id for fact in facts}) == len(facts)
    asked = [(question, frozenset(fact.options)) for fact in facts for question in fact.questions]
    assert len(set(asked)) == len(asked)
    for fact in facts:
        assert len(set(map(str.lower, fact.options))) == len(fact.options) == (2 if fact.thirds else 4), fact
        assert all(question.endswith("?") for question in fact.questions), fact


def test_there_are_many_facts_of_each_kind(facts: list[Knowledge]):
    kinds = Counter(fact.kind for fact in facts)

    assert kinds["things"] + kinds["people"] + kinds["alike"] >= 250
    assert kinds["people"] >= 40
    assert kinds["alike"] >= 60
    assert kinds["choices"] >= 150
    assert kinds["apart"] >= 300
    assert kinds["level"] >= 200


def test_knowledge_is_about_a_sixth_of_all_questions():
    rows = drawn(3000, plan=QuestionPlan())

    known = [row for row in rows if row.category == "knowledge"]
    assert 0.15 < len(known) / len(rows) < 0.18
    assert {row.state for row in known} == {"known"}
    assert {row.form for row in known} == set(KNOWLEDGE_FORMS)
    assert not any(row.state == "known" for row in drawn(300, plan=QuestionPlan(languages=("de",))))
    assert not any(row.state == "known" for row in drawn(300, plan=QuestionPlan(categories=("Age",))))


def test_every_answer_is_right_and_no_other_option_is(train: list[QuestionRow]):
    for row in (*train, *drawn(1500, "dev")):
        assert grade(row, row.answer).right, row
        replies = row.marks if row.form in ("letter", "number") else row.options
        if row.form != "json":
            assert [grade(row, reply).right for reply in replies] == [
                place == row.right for place in range(len(replies))
            ]


def test_the_right_place_is_balanced_and_the_third_option_is_right_in_two_fifths(train: list[QuestionRow]):
    rows = comparisons(train)
    third = {fact.id for kind in ("alike", "level") for fact in knowledge("train")[kind]}

    places = Counter(row.right for row in rows)
    assert max(places.values()) < 1.25 * min(places.values())
    assert 0.36 < sum(row.situation in third for row in rows) / len(rows) < 0.42
    assert Counter(len(row.options) for row in rows) == {3: len(rows)}


def test_an_option_of_not_knowing_is_there_and_never_right(train: list[QuestionRow]):
    with_it = [row for row in train if row.unknown is not None]

    assert len(with_it) > 0.08 * len(train)
    assert not any(row.right == row.unknown for row in train)
    letter = next(row for row in with_it if row.form == "letter")
    assert grade(letter, letter.marks[letter.unknown or 0]) == ReplyGrade.WRONGLY_ABSTAINED


def test_letters_come_inline_and_in_lines_and_in_both_cases(train: list[QuestionRow]):
    letters = [row.messages[-1]["content"] for row in train if row.form == "letter"]

    for start in ("(a) ", "(A) ", "a) ", "A) "):
        assert any(f"\n{start}" in text for text in letters), start
    assert any(" (b) " in text for text in letters)
    assert any("\n(b) " in text for text in letters)


def test_words_alone_are_asked_with_both_names_in_the_question(train: list[QuestionRow]):
    for row in comparisons(train):
        if row.form in ("sentence", "short"):
            content = row.messages[-1]["content"].lower()
            pair = row.situation.split("? ")[1].lower().split(" / ")
            assert all(each in content for each in pair), content


def test_the_same_seed_gives_the_same_rows_and_dev_has_other_facts(train: list[QuestionRow]):
    assert [row.line() for row in drawn(200)] == [row.line() for row in train[:200]]
    assert not {row.situation for row in train} & {row.situation for row in drawn(1000, "dev")}


def test_prompts_are_well_formed(train: list[QuestionRow]):
    for row in train:
        content = row.messages[-1]["content"]
        assert content == content.strip(), content
        assert not any(odd in content for odd in ("\n\n\n", " \n", "{", "}")) or row.form == "json", content


def test_texts_of_another_set_are_leaks(tmp_path: Path, train: list[QuestionRow], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    row = next(row for row in train if row.form == "letter" and len(row.messages[-1]["content"].split()) > 12)
    line = orjson.dumps({"text": row.messages[-1]["content"]})
    (tmp_path / "set.jsonl").write_bytes(line + b"\n")

    check = load_benchmarks(folders=[tmp_path])

    assert check.leak_in(row) is not None
    assert load_benchmarks().leak_in(row) is None


def test_questions_without_a_passage_do_not_count_as_answered_from_one(train: list[QuestionRow]):
    told = [row for row in drawn(100, plan=QuestionPlan()) if row.state == "told"]

    with pytest.raises(DataError, match="All questions can be answered from their passages"):
        check_classes([*told, *train], "x")
    with pytest.raises(DataError, match="No question has a passage"):
        check_classes(train, "x")


def test_what_knowledge_lacks_is_refused():
    with pytest.raises(UsageError, match="knowledge is in English only; add --languages en"):
        QuestionPlan(categories=("knowledge",))
    with pytest.raises(UsageError, match="knowledge has only the forms letter, number"):
        QuestionPlan(categories=("knowledge",), languages=("en",), forms=FORMS)


def test_a_table_gives_pairs_that_clearly_differ_or_are_about_equal():
    text = (
        "# figures\n? Where is more? <> Where is less? | {a} as much as {b}\n= 2 10 Oslo 50; Rome 49; Bern 44; Lima 20"
    )

    found = {fact.options: fact for fact in parse_knowledge(text)}

    assert {pair: fact.kind for pair, fact in found.items()} == {
        ("Oslo", "Rome"): "level",
        ("Oslo", "Lima"): "apart",
        ("Rome", "Lima"): "apart",
        ("Bern", "Lima"): "apart",
    }
    assert found["Oslo", "Rome"].alike
    assert not found["Oslo", "Lima"].alike
    assert {fact.own_third for fact in found.values()} == {"{a} as much as {b}"}


def test_a_table_of_yes_and_no_gives_both_and_neither():
    found = {fact.options: fact for fact in parse_knowledge("# figures\n! Where is it?\n= 0 1 A 1; B 1; C 0; D 0")}

    assert found["A", "B"].thirds == ("both",)
    assert found["C", "D"].thirds == ("neither",)
    assert found["A", "C"].kind == "apart"


def test_a_group_is_asked_about_with_each_item():
    text = "# figures\n? Who is rare among {}?\n> women / men: hunters; anglers"

    assert [fact.questions for fact in parse_knowledge(text)] == [
        ("Who is rare among hunters?",),
        ("Who is rare among anglers?",),
    ]


def test_a_mark_that_does_not_fit_its_question_is_refused():
    with pytest.raises(DataError, match="'~both' does not fit here"):
        list(parse_knowledge("# things\n? Which is larger?\n~both 1 / 2"))
