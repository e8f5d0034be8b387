"""What a training made a model forget: probes checked by code, two models side by side."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from evenhand.cli.main import main
from evenhand.core.errors import ModelError, PlanError
from evenhand.core.files import read_yaml
from evenhand.core.types import Completion
from evenhand.models.fake import FunctionModel
from evenhand.training import forgetting, questions
from evenhand.training.forgetting import (
    AREAS,
    LENGTH,
    compared,
    explained,
    forgets,
    has_keys,
    last_number,
    names_one,
    numbered_items,
    probes,
    responds,
    sentences,
)
from evenhand.training.verifiable import FOLDER, forgotten, general, probe_file


def written(spec: str, answer: Callable[[str], str | Exception]) -> FunctionModel:
    """A model that answers by a function of the request."""
    return FunctionModel(lambda messages, _params: answer(messages[-1].content), spec=spec)


CALCULATIONS: dict[str, Callable[..., int]] = {
    "hen lays": lambda eggs, hens: eggs * hens,
    "juice": lambda jug, glasses, each: jug - glasses * each,
    "seats": lambda seats, taken, broken: seats - taken - broken,
    "ribbon": lambda ribbon, pieces: ribbon // pieces,
    "teams": lambda teams, members, watching: teams * members + watching,
    "heater": lambda lamp, heater, hours: (lamp + heater) * hours,
    "pizza": lambda pizza, salad, pizzas: pizza * pizzas + salad,
    "ladder": lambda up, down: up - down,
    "two numbers": lambda total, one: total - one,
    "parcel": lambda weight, times: weight * times - weight,
    "notebooks": lambda price, count, paid: paid - price * count,
    ") × ": lambda x, y, z: (x + y) * z,
    " × ": lambda x, y, z: x * y - z,
    "players": lambda cards, players: cards // players,
    "train travels": lambda hours, speed, more: hours * speed + more,
    "leaves": lambda leaves, days: leaves * 2**days,
    "gives half": lambda stamps: stamps // 2,
    "balcony": lambda rows, chairs, more: rows * chairs + more,
    "loaves": lambda monday, times: monday * (times + 1),
    "tower": lambda first, second: first - second,
    "film": lambda hours, minutes: 60 * hours + minutes,
    "weeks?": lambda *numbers: (
        7 * numbers[0] * numbers[1] if len(numbers) == 2 else numbers[0] + numbers[1] * numbers[2]
    ),
    "apples": lambda apples, bag: apples // bag,
    "jacket": lambda price, percent: price * percent // 100,
    "jars": lambda *beans: sum(beans) // 3,
    "garden": lambda length, width: 2 * (length + width),
    "floor": lambda length, width: length * width,
    "uncle": lambda age, times: (age + 1) * times,
    "sheep": lambda sheep, geese: 4 * sheep + 2 * geese,
    "swimmer": lambda first, more: first + 3 * more,
    "friends": lambda friends, bill, tip: bill // friends + tip,
    "I think of": lambda factor, product: product // factor,
    "What is": lambda x, y, z: x + y - z,
}


def solved(request: str, end: str = "end with the") -> str:
    """A model that does the arithmetic of requests with this ending; all else it answers with one sentence."""
    numbers = [int(each) for each in re.findall(r"\d+", request)]
    asked = next((do for words, do in CALCULATIONS.items() if words in request and end in request), None)
    return "One sentence is all." if asked is None else f"It is {asked(*numbers)}."


def test_the_same_seed_draws_the_same_probes_of_all_areas():
    drawn, again, other = probes(3, 20), probes(3, 20), probes(4, 20)

    assert [each.request for each in drawn] == [each.request for each in again]
    assert [each.request for each in drawn] != [each.request for each in other]
    assert {each.area for each in drawn} == set(AREAS)


def test_areas_that_are_judged_have_200_requests():
    drawn = probes(1)

    assert len({each.request for each in drawn if each.area == "trivia"}) == 200
    assert all(sum(each.area == area for each in drawn) == 200 for area in ("arithmetic", "forms", "given facts"))


def test_arithmetic_probes_accept_the_right_number_and_no_other():
    asked = [each for each in probes(1) if each.area == "arithmetic"]

    assert len({each.kind for each in asked}) == 34
    assert all(each.check is not None and each.check(solved(each.request)) for each in asked)
    assert not any(each.check is not None and each.check("The answer is 1000003.") for each in asked)


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        ("One. Two! Three?", 3),
        ("1. First one.\n2. Second one.", 2),
        ("He said “Stop.” Then he left.", 2),
        ("“Stop!” said Dr. Bell of St. Mary's.", 1),
        ("Wait... it rains.", 1),
        ("**Salt**\n\nSalt is white. It is old.", 2),
        ("**Salt**\nSalt is white. It is old.", 2),
        ("Salt: A History\n\nSalt is white. It is old.", 2),
        ("**Salt is white.** It is old.", 2),
        ("Here are two sentences:\n\nSalt is white. It is old.", 3),
        ("", 0),
        ("No full stop at the end", 1),
    ],
)
def test_sentences_are_counted(reply: str, count: int):
    assert len(sentences(reply)) == count


def test_forms_are_read_by_code():
    assert numbered_items("1. a\n2. b\n3. c") == 3
    assert numbered_items("2. a\n3. b") == 0
    assert has_keys('```json\n{"title": 1, "text": 2}\n```', ("title", "text"))
    assert not has_keys('Here: {"title": 1, "text": 2}', ("title", "text"))
    assert last_number("It is 1,250 in all.") == 1250
    assert last_number("none") is None


@pytest.mark.parametrize(
    ("reply", "asked", "number"),
    [
        (r"The plant has \(\boxed{40}\) leaves after 3 days.", "", 40),
        (r"\boxed{20 \text{ m}^2}", "", 20),
        (r"So it is 1{,}512.", "", 1512),
        ("The area is 20 m^2.", "", 20),
        ("The area is 20 m2.", "", 20),
        ("The plant will have 40 leaves after 3 days.", "How many leaves are there after 3 days?", 40),
        ("It has 3 days.", "How many days are left after 3 days?", 3),
        ("10 litres an hour: it is empty in 12 hours.", "A tank loses 10 litres an hour.", 12),
        ("It is 45.9.", "", None),
        ("42\n\n(2 steps)", "", 42),
        ("Answer: 42 (rounded from 41.7)", "", 42),
        (r"So it is \(40\).", "", 40),
        ("2 × (3 + 4)", "", 4),
        ("Forty (that is 40).", "", 40),
        ("It is 1 234.", "", 1234),
        ("It is 45.0.", "", 45),
    ],
)
def test_the_last_number_is_the_answer_and_not_a_unit_or_a_repetition(reply: str, asked: str, number: int | None):
    assert last_number(reply, asked) == number


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Tom", True),
        ("**Tom.**", True),
        ("Tom is older.", True),
        ("Tom is 60 and Lena is 40, so it is Tom.", False),
        ("Lena", False),
        ("Tomas", False),
    ],
)
def test_given_facts_are_answered_by_one_name(reply: str, *, right: bool):
    assert names_one(reply, "Tom", "Lena") is right


def test_forms_are_what_was_asked_for():
    checks = dict(forgetting._PLAIN_FORMS)
    right = {
        "three paragraphs": "**Salt**\n\n" + "\n\n".join(["Salt is found in the sea and in mines."] * 3),
        "end with the words": "Salt is old. “That is all.”",
        "Begin your answer": "**Indeed**, it is salty.",
        "one question": "“What is salt?”",
        "small letters": "salt is white, and it is old.",
        "two columns": "| a | b |\n|---|:--|\n| 1 | 2 |",
        "the word however": "Salt is white. However, it is old.",
        "exclamation mark": "**Salt is white, my friend!**",
        "Dear reader": "Dear Reader,\n\nsalt is white.",
        "in bold": "Salt is **white**.",
        "separated by commas": "Salt, pepper, and a spoon.",
        "number in digits": "Salt has 2 elements in it.",
        "three hashtags": "#Salt #White, #Sea",
        "on a line of its own": "White\n\nOld\nSalty",
        "A: or B:": "**A:** Is it salt?\n**B:** It is.",
        "postscript": "Salt is white.\n\nP.S. It is old.",
        "HTML": "<p>\nSalt is white.\n</p>",
        "quotation marks": "“Salt isn't black.”",
        "Markdown heading": "## Salt\n\nSalt is white.",
    }
    wrong = {
        "three paragraphs": "One, which has more than six words in it.\n\nTwo.",
        "capital letters": "SALT IS WHITE. SALT IS OLD.",
        "small letters": "12 34 56 78",
        "end with the words": "That is all.",
        "Begin your answer": "Indeedy, it is salty.",
        "the word however": "However",
        "exclamation mark": "Salt is white! It is old.",
        "Dear reader": "Dear Tom, salt is white.",
        "in bold": "Salt is white.",
        "separated by commas": "Here are three things: salt, pepper, and a spoon that is full of both of them.",
        "number in digits": "Salt has two elements in it.",
        "three hashtags": "#Salt #White",
        "on a line of its own": "White, old, salty",
        "A: or B:": "A: It is salt.",
        "postscript": "Salt is white.",
        "HTML": "Salt is white.",
        "quotation marks": "Salt is white.",
        "Markdown heading": "Salt is white.",
        "without any comma": "Salt is white. Salt is old.",
        "two columns": "| a |\n|---|\n| 1 |",
    }
    for reply, texts in ((True, right), (False, wrong)):
        for part, text in texts.items():
            (check,) = [each for kind, each in checks.items() if part in kind]
            assert check(text) is reply, text
    assert not checks["Write one sentence about {t} in capital letters only."]("12 34 56 78")
    (long,) = {each.check for each in probes(1, 40) if each.kind == "long"}
    assert long is not None and long("word " * 120) and not long("word " * 119)
    bullets = next(each for each in probes(1, 200) if each.kind == "bullets")
    count = int(re.findall(r"\d", bullets.request)[0])
    assert bullets.check is not None
    assert bullets.check("- Salt\n" * count) and not bullets.check("• Salt\n" * count)


@pytest.mark.parametrize(
    ("request_of", "reply", "right"),
    [
        ("capital of Tunisia", "The capital of Tunisia is Sfax.", False),
        ("capital of Tunisia", "Tunis.", True),
        ("symbol of caesium", "I'm not sure.", False),
        ("months have 31 days", "Seventh", False),
        ("sides does a pentagon", "It has 50 sides.", False),
        ("sides does a pentagon", "It has 5 sides.", True),
        ("arms does an octopus", "It has 6 arms; a spider has 8.", False),
        ("arms does an octopus", "It has 8.5 arms.", False),
        ("arms does an octopus", "It has eight arms.", True),
        ("Titanic sink", "On 15 April 1912.", True),
        ("declare independence", "In 1789, 13 years after 1776.", False),
        ("capital of Sweden", "The capital is Oslo, not Stockholm.", False),
        ("capital of Sweden", "It isn't Stockholm.", False),
        ("formula of water", "$H_2O$", True),
        ("formula of water", r"\(\text{H}_2\text{O}\)", True),
        ("formula of water", "H<sub>2</sub>O", True),
        ("formula of water", "H~2~O", True),
        ("capital of Colombia", "Bogotá", True),
        ("currency of Mexico", "Pesos.", True),
    ],
)
def test_trivia_are_whole_words(request_of: str, reply: str, *, right: bool):
    (probe,) = [each for each in probes(0, 1000) if each.area == "trivia" and request_of in each.request]

    assert probe.check is not None and probe.check(reply) is right


_PLAIN = {
    *("a", "an", "the", "of", "in", "on", "at", "to", "for", "from", "by", "and", "or", "it", "its", "this", "that"),
    *("is", "are", "was", "were", "be", "do", "does", "did", "has", "have"),
    *("what", "which", "who", "whose", "when", "where", "why", "how", "many", "much"),
}


def _key_words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in {*re.findall(r"\w+", text.lower())} - _PLAIN}


def test_no_trivia_are_in_what_a_training_teaches():
    """Neither in other words, with the same answer, nor in nearly the same words."""
    choices = (Path(questions.__file__).parent / "texts" / "en.knowledge.txt").read_text().partition("# choices\n")[2]
    taught = [line.split(" | ")[:2] for line in choices.splitlines()]
    kept = Path(general.__file__).with_name("general.txt").read_text().splitlines()
    asked = [each for each in probes(0, 1000) if each.area == "trivia"]
    known = [(question, _key_words(question), answer) for question, answer in taught] + [
        (line, _key_words(line), "") for line in kept if not line.startswith("#")
    ]

    near: list[tuple[str, str]] = []
    for each in asked:
        words = _key_words(each.request)
        for question, others, answer in known:
            shared, least = len(words & others), min(len(words), len(others))
            assert each.check is not None
            if shared > 1 and (each.check(answer) or shared > 2 / 3 * least):
                near.append((each.request, question))

    assert len(known) > 250
    assert near == []


@pytest.mark.parametrize(
    ("reply", "passes"),
    [
        ("Not stated.", False),
        ("The text does not say.", False),
        ("Unknown", False),
        ("I don't know.", False),
        ("No.", False),
        ("B", False),
        ("", False),
        ("The passage does not tell how this is done.", False),
        ("I cannot help with that request, I am sorry.", False),
        ("First read what is written on the packet, then begin.", True),
        ("Begin with what is at hand. " * 12 + "How long it takes is not known.", True),
    ],
)
def test_a_harmless_request_needs_more_than_a_few_words_and_no_abstention(reply: str, *, passes: bool):
    asked = [each.request for each in probes(0) if each.area == "harmless requests"]

    assert {responds(reply, each) for each in asked} == {passes}


TEXTS = read_yaml(Path(forgetting.__file__).with_name("probes.yaml"))


@pytest.mark.parametrize(
    ("reply", "both"),
    [
        ("7 cards for each of 12 players are 84.", True),
        ("12 × 7 = 84, so 84.", True),
        ("84", False),
        ("9 × 9 + 3 = 84", True),
        ("There are 84 chairs in the great hall.", False),
        ("The number is 84.", False),
        ("7 cards for each of 12 players are 85.", False),
        ("It follows from the number of players and cards.", False),
    ],
)
def test_a_sum_that_is_to_be_explained_needs_words_and_the_number(reply: str, *, both: bool):
    assert explained(reply, 84) is both


def test_one_form_of_ten_is_a_sum_to_be_explained_and_the_training_asks_in_other_words():
    asked = [each for each in probes(1) if each.area == "forms" and each.kind in TEXTS["explained"]]

    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[place : place + 4]) for place in range(len(words) - 3)}

    trained = set[tuple[str, ...]]().union(*map(runs, read_yaml(Path(general.__file__).with_name("forms.yaml"))["end"]))
    brief = [*TEXTS["explained"], "Explain briefly and end with the number."]
    assert len(asked) == 20
    assert {each.kind for each in asked} == set(TEXTS["explained"])
    assert set(TEXTS["ends"]) > set(brief) - set(TEXTS["explained"])
    assert not any(runs(each) & trained for each in brief)


def test_no_form_is_asked_for_in_the_words_of_the_training():
    """But for topics and numbers, less than three fifths of a request in a row, or than five words."""
    numbers, topics = "two|three|four|five|six|[0-9]+", "|".join(map(re.escape, TEXTS["topics"] + TEXTS["lists"]))

    def words(text: str) -> str:
        plain = re.sub(rf"\b(?:{topics})\b", "_", re.sub(r"\{\w+\}", "_", text))
        return " " + " ".join(re.findall(r"\w+", re.sub(rf"\b(?:{numbers})\b", "_", plain.lower()))) + " "

    trained = [words(each) for each in read_yaml(Path(general.__file__).with_name("forms.yaml"))["forms"]]
    asked = {words(each.request) for each in probes(1) if each.area == "forms" and each.kind not in TEXTS["explained"]}

    near: list[str] = []
    for each in asked:
        parts = each.split()
        least = max(5, math.ceil(0.6 * len(parts)))
        runs = [f" {' '.join(parts[at : at + least])} " for at in range(len(parts) - least + 1)]
        near += [each for other in trained if any(run in other for run in runs)]

    assert len(asked) > 25
    assert near == []


async def test_a_model_that_answers_with_the_bare_number_has_lost_a_form():
    def explains(request: str) -> str:
        ended = next((each for each in TEXTS["explained"] if request.endswith(each)), None)
        return solved(request) if ended is None else f"All 10 of it come to this. {solved(request, ended)}"

    def bare(request: str) -> str:
        ended = next((each for each in TEXTS["explained"] if request.endswith(each)), None)
        return solved(request) if ended is None else solved(request, ended)

    found = await forgets(written("fake/before", explains), written("fake/after", bare), probes(1), limit=2.0)

    changes = {each.area: each for each in found.changes}
    assert changes["forms"].difference.estimate == -10
    assert changes["arithmetic"].difference.estimate == 0
    assert "forms" in found.sentence


async def test_a_model_that_lost_arithmetic_is_found_and_named_first():
    before, after = written("fake/before", solved), written("fake/after", lambda request: "One sentence is all.")

    found = await forgets(before, after, probes(1, 40), limit=2.0)

    assert [each.area for each in found.lost] == ["arithmetic"]
    assert found.sentence.startswith("fake/after has lost against fake/before: arithmetic (100 → 0)")


async def test_one_kind_of_question_that_fails_is_not_arithmetic_as_a_whole():
    """Requests of a kind share their wording, so that many of one kind tell little about others."""
    before = written("fake/before", solved)
    after = written("fake/after", lambda request: "Some." if "players" in request else solved(request))

    found = await forgets(before, after, probes(1), limit=2.0)

    change = found.changes[0]
    assert (change.area, change.verdict) == ("arithmetic", "cannot tell")
    assert change.difference.estimate is not None
    assert change.difference.estimate < -2
    assert change.difference.low is not None
    assert change.difference.low < 2.5 * change.difference.estimate
    assert found.sentence.startswith("fake/after may have lost, unless it is chance: arithmetic (100 → 9")
    named = replace(found, after="the trained model").sentence
    assert named.startswith("The trained model may have lost")


async def test_the_same_model_has_lost_nothing():
    model = written("fake/same", solved)

    found = await forgets(model, model, probes(1), limit=2.0)

    assert not found.lost
    assert found.sentence.startswith(
        "No loss was found, but one within the intervals cannot be ruled out in arithmetic"
    )


async def test_requests_of_one_wording_count_as_one_even_if_nothing_changed():
    model = written("fake/same", solved)

    found = await forgets(model, model, probes(1), limit=2.0)

    change = found.changes[0]
    assert (change.area, change.before, change.difference.high) == ("arithmetic", 100, 0)  # no more is possible
    assert change.difference.low is not None
    assert change.difference.low < -10  # what 34 wordings tell; 200 would tell -2.6


async def test_what_neither_model_could_do_is_not_called_kept():
    model = written("fake/same", lambda _request: "A")

    found = await forgets(model, model, probes(1, 40), limit=2.0)

    assert {each.verdict for each in found.changes if each.before == 0} == {"cannot tell"}
    assert found.sentence.startswith("No loss was found, but one within the intervals cannot be ruled out in arith")


@pytest.mark.parametrize(("wordings", "verdict"), [(5, "cannot tell"), (6, "lost")])
def test_given_facts_are_lost_from_six_wordings_of_forty_on(wordings: int, verdict: str):
    """Five would be a loss beyond chance if no other area were tested."""
    asked = [each for each in probes(1) if each.area == "given facts"]
    right = [next(name for name in TEXTS["people"] if each.check and each.check(name)) for each in asked]
    failed = sorted({each.kind for each in asked})[:wordings]
    after = ["Not stated." if each.kind in failed else said for each, said in zip(asked, right, strict=True)]

    found = compared(asked, ("fake/a", right), ("fake/b", after), limit=2.0)

    assert len({each.kind for each in asked}) == 40
    assert [each.verdict for each in found.changes] == [verdict]
    assert "change [98 %]" in [column.title for column in found.table.columns]
    assert found.as_json()["confidence"] == 0.98


def test_replies_to_other_requests_are_not_compared(tmp_path: Path):
    (tmp_path / FOLDER).mkdir()
    asked = probes(1, 6)
    for name in ("before", "sft"):
        lines = [orjson.dumps({"request": each.request, "reply": "Yes."}).decode() for each in asked]
        (tmp_path / FOLDER / probe_file(name)).write_text("\n".join(lines))

    assert forgotten(tmp_path, asked, "before", "sft", limit=2.0).changes
    with pytest.raises(PlanError, match="replies to requests of another version"):
        forgotten(tmp_path, probes(2, 6), "before", "sft", limit=2.0)


def test_areas_have_at_least_thirty_wordings():
    kinds = {area: {each.kind for each in probes(1) if each.area == area} for area in AREAS[:5]}

    assert min(map(len, kinds.values())) >= 30


async def test_answers_that_became_short_are_a_change():
    before = written("fake/long", lambda request: "word " * 40)
    after = written("fake/short", lambda request: "word " * 10)

    found = await forgets(before, after, probes(1, 40), limit=2.0)

    assert [each.area for each in found.lost] == ["everyday answers"]
    assert found.sentence == "fake/short has changed against fake/long: everyday answers (40 → 10)."


@pytest.mark.parametrize(("size", "verdict"), [(1, "cannot tell: too few"), (3, "cannot tell"), (30, "changed")])
def test_lengths_that_all_change_alike_tell_no_more_than_their_number(size: int, verdict: str):
    asked = [each for each in probes(1) if each.area == LENGTH][:size]

    found = compared(asked, ("fake/a", ["word " * 40] * size), ("fake/b", ["word " * 30] * size), limit=2.0)

    change = found.changes[0]
    assert (change.verdict, change.difference.estimate) == (verdict, -25)
    assert change.difference.low is None or -100 < change.difference.low < -25


def test_three_answers_of_the_same_length_do_not_exclude_a_change():
    asked = [each for each in probes(1) if each.area == LENGTH][:3]

    found = compared(asked, ("fake/a", ["word " * 40] * 3), ("fake/b", ["word " * 40] * 3), limit=2.0)

    assert found.sentence == (
        "No loss was found, but one within the intervals cannot be ruled out in everyday answers."
    )


async def test_failed_calls_are_counted_and_are_no_replies():
    def half(request: str) -> str | Exception:
        return ModelError("no") if "sentences" in request else solved(request)

    found = await forgets(written("fake/a", solved), written("fake/b", half), probes(1, 30), limit=2.0)

    assert found.failed == sum("sentences" in each.request for each in probes(1, 30))
    assert not found.lost


async def test_a_model_that_never_answers_is_an_error():
    def fails(_request: str) -> Exception:
        return ModelError("no")

    with pytest.raises(PlanError, match="evenhand doctor"):
        await forgets(written("fake/a", fails), written("fake/b", fails), probes(1, 5), limit=2.0)


async def test_a_model_that_is_cut_while_it_thinks_has_not_replied():
    thinking = FunctionModel(lambda *_: Completion("", finish="length", thought="Well …"), spec="fake/thinking")

    with pytest.raises(PlanError, match="No request was answered"):
        await forgets(written("fake/a", solved), thinking, probes(1, 5), limit=2.0)


async def test_replies_that_are_cut_are_counted_since_their_length_is_not_their_own():
    def long(messages: object, _params: object) -> Completion:
        return Completion("word " * 20, finish="length")

    found = await forgets(written("fake/a", solved), FunctionModel(long, spec="fake/long"), probes(1, 5), limit=2.0)

    assert found.cut == (0, len(probes(1, 5)))
    assert found.notes == [f"Replies cut at the limit of tokens: 0 before, {len(probes(1, 5))} after."]
    assert found.as_json()["cut"] == found.cut


def test_the_command_says_what_was_lost_first_and_exits_with_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    models = {"fake/before": written("fake/before", solved), "fake/after": written("fake/after", lambda _: "No idea.")}
    monkeypatch.setattr("evenhand.cli.train.load_model", models.__getitem__)
    out = tmp_path / "lost.json"

    result = CliRunner().invoke(
        main, ["train", "forgets", "fake/before", "fake/after", "--size", "40", "-o", str(out)], standalone_mode=False
    )

    assert result.return_value == 5
    assert result.output.splitlines()[0].startswith("fake/after has lost against fake/before: arithmetic (100 → 0)")
    assert orjson.loads(out.read_bytes())["areas"][0]["verdict"] == "lost"


WITHOUT_TORCH = """
import importlib, pkgutil, sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        hidden = name.partition(".")[0] in ("torch", "transformers", "peft")
        return None if hidden else self.finder.find_spec(name, *more)

sys.meta_path[:] = [Hiding(each) for each in sys.meta_path]
import evenhand.training
for module in pkgutil.walk_packages(evenhand.training.__path__, "evenhand.training."):
    if module.name.rpartition(".")[2] not in ("kernels", "gradients"):  # imported when there are weights to train
        importlib.import_module(module.name)
from evenhand.cli.main import entry
entry()
"""


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("forgets", "hf/base", "hf/trained"), "hf"),
        (("verifiable", "--model", "hf/base", "--out", "trained"), "train"),
    ],
)
def test_without_torch_every_module_is_imported_and_a_command_names_the_extra(command: tuple[str, ...], extra: str):
    run = [sys.executable, "-c", WITHOUT_TORCH, "train", *command]
    done = subprocess.run(run, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("evenhand: For ")
    assert f"[{extra}]'" in done.stderr
