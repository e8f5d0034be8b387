"""Rubrics: what is asked for, and how numbers are read from whole-number and digit vocabularies, or not at all."""

import math

import pytest

from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Message, TokenLogprob, Unscored
from evenhand.judging.rubric import Ratings, Rubric, rate
from evenhand.models.fake import ScriptedModel

RUBRIC = Rubric(parse_prompt("test/rubric", "# user\nRate {{text}}."), ("style", "sense"))
ONE = Rubric(RUBRIC.prompt, ("style",), after=())
TEN = Rubric(RUBRIC.prompt, ("style",), after=(), high=10)
PAIR = Rubric(RUBRIC.prompt, ("style",), ("winner", "why"), 10, {"winner": ("A", "B", "tie")})
QUESTION = [Message("user", "Rate it.")]
FINE = '{"style": 80, "sense": 35, "style_reason": "too \\"long\\"", "sense_reason": "clear"}'


def rated(text: str, *alternatives: tuple[str, float], pieces: list[str], rubric: Rubric = ONE) -> float:
    """The value of `style` when the token that holds the first digit had these alternatives."""
    first = next(place for place, piece in enumerate(pieces) if any(letter.isdigit() for letter in piece))
    top = tuple((token, math.log(chance)) for token, chance in alternatives)
    chances = dict(alternatives)
    logprobs = tuple(
        TokenLogprob(piece, math.log(chances.get(piece, 1.0)), top if place == first else ())
        for place, piece in enumerate(pieces)
    )
    assert "".join(pieces) == text
    found = rubric.read(Completion(text, logprobs=logprobs))
    assert isinstance(found, Ratings)
    return found.values["style"]


def test_ratings_and_reasons_are_read():
    found = RUBRIC.read(Completion(FINE))

    assert isinstance(found, Ratings)
    assert found.values == found.written == {"style": 0.8, "sense": 0.35}
    assert found.texts == {"style_reason": 'too "long"', "sense_reason": "clear"}


def test_everything_is_asked_for_in_one_schema_ratings_first():
    params = Rubric(RUBRIC.prompt, ("style",), after=("quote",)).params(frozenset({"schema"}))

    assert params.schema is not None
    assert params.schema["required"] == ["style", "quote"]
    assert params.logprobs == 0


def test_without_reasons_only_numbers_are_asked_for():
    params = ONE.params(frozenset({"schema", "logprobs"}))

    assert params.schema is not None
    assert params.schema["required"] == ["style"]
    assert ONE.form() == '{"style": 0-100}'
    assert params.max_tokens is not None
    assert params.max_tokens < (RUBRIC.params(frozenset()).max_tokens or 0)


def test_whole_number_tokens_give_the_expected_value():
    value = rated('{"style": 80}', ("80", 0.5), ("60", 0.25), ("100", 0.25), pieces=['{"style":', " ", "80", "}"])

    assert value == pytest.approx(0.80)


def test_a_whole_number_of_one_digit_means_itself():
    value = rated('{"style": 0}', ("0", 0.5), ("5", 0.25), ("10", 0.25), pieces=['{"style":', " ", "0", "}"])

    assert value == pytest.approx(0.0375)


def test_a_space_may_belong_to_the_token():
    value = rated('{"style": 40}', (" 40", 0.5), (" 60", 0.5), pieces=['{"style":', " 40", "}"])

    assert value == pytest.approx(0.5)


def test_of_digit_tokens_the_first_decides_and_the_rest_stays():
    value = rated(
        '{"style": 85}', ("8", 0.5), ("6", 0.25), ("1", 0.05), ("0", 0.25), pieces=['{"style": ', "8", "5", "}"]
    )

    # 85, 65 and 0; a lone 1 could be 10 or 100 and is left out.
    assert value == pytest.approx(0.5 * 0.85 + 0.25 * 0.65)


def test_beside_100_another_digit_begins_a_number_of_two():
    value = rated('{"style": 100}', ("1", 0.5), ("9", 0.5), pieces=['{"style": ', "1", "0", "0", "}"])

    assert value == pytest.approx(0.95)


def test_beside_0_another_digit_begins_a_number_of_two():
    value = rated('{"style": 0}', ("0", 0.5), ("8", 0.5), pieces=['{"style": ', "0", "}"])

    assert value == pytest.approx(0.425)


TENS = [
    ("8", ["8"], [("8", 0.5), ("7", 0.25), ("1", 0.25)], 0.5 * 8 + 0.25 * 7 + 0.25 * 10),
    ("5", ["5"], [("5", 0.5), ("1", 0.5)], 7.5),
    ("10", ["1", "0"], [("1", 0.5), ("8", 0.5)], 9.0),
    ("3", ["3"], [("3", 0.5), ("4", 0.25), ("1", 0.25)], 2.5 / 0.75),
    ("0", ["0"], [("0", 0.5), ("2", 0.25), ("1", 0.25)], 0.5 / 0.75),
    ("8", ["8"], [("8", 0.5), ("10", 0.25), ("1", 0.25)], 0.5 * 8 + 0.25 * 10 + 0.25 * 1),
    ("10", ["10"], [("10", 0.5), ("1", 0.5)], 5.5),
]


@pytest.mark.parametrize(("written", "digits", "alternatives", "expected"), TENS)
def test_up_to_ten_a_lone_1_is_the_beginning_of_10_where_that_is_near(
    written: str, digits: list[str], alternatives: list[tuple[str, float]], expected: float
):
    pieces = ['{"style": ', *digits, "}"]
    value = rated(f'{{"style": {written}}}', *alternatives, pieces=pieces, rubric=TEN)

    assert value == pytest.approx(expected / 10)


def test_a_word_is_one_of_those_asked_for():
    params = PAIR.params(frozenset({"schema"}))

    assert params.schema is not None
    assert params.schema["required"] == ["style", "winner", "why"]
    assert params.schema["properties"]["winner"]["enum"] == ["A", "B", "tie"]
    assert params.schema["properties"]["why"] == {"type": "string"}
    assert PAIR.form() == '{"style": 0-10, "winner": "A" or "B" or "tie", "why": "…"}'


@pytest.mark.parametrize(("said", "meant"), [("B", "B"), ("b", "B"), ("Tie", "tie"), (" A ", "A")])
def test_a_word_is_read_whatever_its_case(said: str, meant: str):
    found = PAIR.read(Completion(f'{{"style": 8, "winner": "{said}", "why": "It is shorter."}}'))

    assert isinstance(found, Ratings)
    assert found.texts == {"winner": meant, "why": "It is shorter."}


@pytest.mark.parametrize("said", ["C", "both", "", "A or B"])
def test_another_word_is_unscored(said: str):
    found = PAIR.read(Completion(f'{{"style": 8, "winner": "{said}", "why": "It is shorter."}}'))

    assert isinstance(found, Unscored)
    assert found.reason == "the judge's winner is none of A, B, tie"


def test_alternatives_that_are_no_numbers_do_not_count():
    value = rated('{"style": 80}', ("80", 0.5), ("high", 0.3), ("999", 0.1), pieces=['{"style":', " ", "80", "}"])

    assert value == pytest.approx(0.8)


def test_logprobs_that_do_not_match_the_text_leave_the_written_number():
    found = ONE.read(Completion('{"style": 80}', logprobs=(TokenLogprob("{", 0.0),)))

    assert isinstance(found, Ratings)
    assert found.values == {"style": 0.8}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rating of style"),
        ("I like it.", "no rating of style"),
        ('{"style": 80', "no rating of style"),
        ('{"style": 80, "sense": 3', "no rating of sense"),
        ('{"style": 80, "sense": 30.', "no rating of sense"),
        ('{"style": 80, "sense": "good"}', "no rating of sense"),
        ('{"style": 800, "sense": 3}', "rated style 800, which is not in 0–100"),
        ('{"style": -5, "sense": 3}', "rated style -5, which is not in 0–100"),
        ('{"style": 1e3, "sense": 3}', "no rating of style"),
    ],
)
def test_what_cannot_be_read_is_unscored(text: str, reason: str):
    found = RUBRIC.read(Completion(text))

    assert isinstance(found, Unscored)
    assert reason in found.reason
    assert found.raw == text


def test_a_reply_that_is_cut_after_its_ratings_still_has_them():
    found = RUBRIC.read(Completion('{"style": 80, "sense": 35, "style_reason": "very lo', "length"))

    assert isinstance(found, Ratings)
    assert found.texts == {"style_reason": "very lo", "sense_reason": ""}


@pytest.mark.parametrize("completion", [Completion(FINE, "filter"), Completion("", refusal="No.")])
def test_a_judge_that_declines_is_unscored(completion: Completion):
    found = RUBRIC.read(completion)

    assert isinstance(found, Unscored)
    assert found.reason == "the judge declined"


async def test_one_that_cannot_be_read_is_asked_once_more_in_plainer_words():
    model = ScriptedModel(["Very good!", FINE])

    found = await rate(model.generate, RUBRIC, QUESTION, RUBRIC.params(frozenset()))

    assert isinstance(found, Ratings)
    again = model.requests[1][0]
    assert [message.role for message in again] == ["user", "assistant", "user"]
    assert again[1].content == "Very good!"
    assert RUBRIC.form() in again[2].content


async def test_after_the_second_time_it_stays_unscored():
    model = ScriptedModel(["Very good!", '{"style": 300'])

    found = await rate(model.generate, RUBRIC, QUESTION, RUBRIC.params(frozenset()))

    assert isinstance(found, Unscored)
    assert len(model.requests) == 2


async def test_a_refusal_is_not_asked_again():
    model = ScriptedModel([Completion("", refusal="I will not.")])

    found = await rate(model.generate, RUBRIC, QUESTION, RUBRIC.params(frozenset()))

    assert found == Unscored("the judge declined", "I will not.")
