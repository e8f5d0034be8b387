"""The form of a judge's reply is part of its prompt: two lines, a number, a letter or JSON."""

import pytest

from evenhand.core.errors import PlanError
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Unscored
from evenhand.judging.rubric import Ratings, Rubric

ASKED = "# user\nRate it: {{text}}"


def rubric(reply: str, *names: str) -> Rubric:
    return Rubric(parse_prompt("a/b", f"# reply\n{reply}\n\n{ASKED}"), names)


TWO_LINES = rubric("form: lines\nbias: 1-10\nrelevancy: 1-10", "bias", "relevancy")


@pytest.mark.parametrize(
    "text",
    [
        "Bias: 4\nRelevancy: 10",
        "**Bias:** 4 - it guesses\n**Relevancy:** 10/10",
        "- Bias = 4\n- Relevancy = 10.",
        "BIAS score: 4\nRELEVANCY score: 10",
    ],
)
def test_two_lines_are_read_by_their_names_as_they_are_written(text: str):
    found = TWO_LINES.read(Completion(text))

    assert isinstance(found, Ratings), found
    assert {name: round(1 + 9 * value) for name, value in found.written.items()} == {"bias": 4, "relevancy": 10}


@pytest.mark.parametrize("text", ["Bias: 11\nRelevancy: 3", "Bias: 0\nRelevancy: 3", "Bias: 3", "I cannot say."])
def test_a_line_that_is_missing_or_off_the_scale_is_unscored(text: str):
    assert isinstance(TWO_LINES.read(Completion(text)), Unscored)


def test_a_number_that_the_token_limit_may_have_cut_is_unscored():
    assert isinstance(TWO_LINES.read(Completion("Bias: 4\nRelevancy: 1", "length")), Unscored)


def test_the_reason_stands_after_the_rating_or_in_a_line_of_its_own():
    after = TWO_LINES.read(Completion("Bias: 4 - step 2 is a belief.\nRelevancy: 10"))
    apart = TWO_LINES.read(Completion("Bias: 4\nRelevancy: 10\nStep 2 is a belief."))

    assert isinstance(after, Ratings) and isinstance(apart, Ratings)
    assert after.texts["bias_reason"] == "step 2 is a belief."
    assert apart.texts["bias_reason"] == "Step 2 is a belief."


@pytest.mark.parametrize(("text", "value"), [("80", 0.8), ("Score: 80.", 0.8), ("0", 0.0), ("100", 1.0)])
def test_a_number_alone(text: str, value: float):
    found = rubric("form: number\nsupport: 0-100", "support").read(Completion(text))

    assert isinstance(found, Ratings)
    assert found.written == {"support": value}


@pytest.mark.parametrize(("text", "value"), [("B", 0.5), ("(A) yes", 1.0), ("I choose C.", 0.0)])
def test_a_letter_alone(text: str, value: float):
    found = rubric("form: letter\nsupport: A=100, B=50, C=0", "support").read(Completion(text))

    assert isinstance(found, Ratings)
    assert found.written == {"support": value}


def test_json_may_have_a_scale_of_its_own():
    found = rubric("form: json\nbias: 1-10", "bias").read(Completion('{"bias": 1, "bias_reason": "none"}'))

    assert isinstance(found, Ratings)
    assert (found.written, found.texts) == ({"bias": 0.0}, {"bias_reason": "none"})


def test_a_word_is_one_of_those_that_are_named():
    asked = Rubric(
        parse_prompt("a/b", f"# reply\nform: lines\na: 0-10\nwinner: A, B\n\n{ASKED}"), ("a",), ("winner",),
        words={"winner": ("A", "B", "tie")},
    )  # fmt: skip

    found = asked.read(Completion("a: 3\nwinner: B"))
    assert isinstance(found, Ratings) and found.texts["winner"] == "B"
    assert isinstance(asked.read(Completion("a: 3\nwinner: tie")), Unscored)


@pytest.mark.parametrize(
    ("reply", "names", "said"),
    [
        ("form: verse\nbias: 1-10", ("bias",), "must say under '# reply' a form"),
        ("form: number\na: 1-10\nb: 1-10", ("a", "b"), "a number or a letter is one rating"),
        ("form: lines\nharm: 1-10", ("bias",), "must rate bias under '# reply'"),
        ("form: lines", ("bias",), "e.g. `bias: 1-10`"),
    ],
)
def test_a_form_that_cannot_be_used_is_refused_in_one_sentence(reply: str, names: tuple[str, ...], said: str):
    with pytest.raises(PlanError, match=said):
        rubric(reply, *names).form()


def test_a_judge_that_cannot_be_read_is_told_the_form():
    assert TWO_LINES.form() == "bias: 1-10\nrelevancy: 1-10"
    assert TWO_LINES.params(frozenset({"schema"})).schema is None
