"""What a training made a model forget: probes checked by code, two models side by side."""

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from evenhand.cli.main import main
from evenhand.core.errors import ModelError, PlanError
from evenhand.core.types import Completion
from evenhand.models.fake import FunctionModel
from evenhand.training.forgetting import AREAS, forgets, has_keys, last_number, numbered_items, probes, sentences


def written(spec: str, answer: Callable[[str], str | Exception]) -> FunctionModel:
    """A model that answers by a function of the request."""
    return FunctionModel(lambda messages, _params: answer(messages[-1].content), spec=spec)


def solved(request: str) -> str:
    """A model that does the arithmetic and names the person; all else it answers with one sentence."""
    numbers = [int(each) for each in re.findall(r"\d+", request)]
    if "notebooks" in request:
        return f"The change is {numbers[2] - numbers[0] * numbers[1]}."
    if "×" in request:
        return f"It is {(numbers[0] + numbers[1]) * numbers[2]}."
    if "cards" in request:
        return f"Each gets {numbers[0] // numbers[1]}."
    if "train travels" in request:
        return f"{numbers[0] * numbers[1] + numbers[2]}"
    if "leaves" in request:
        return f"{numbers[0] * 2 ** numbers[1]}"
    return "One sentence is all."


def test_the_same_seed_draws_the_same_probes_of_all_areas():
    drawn, again, other = probes(3, 20), probes(3, 20), probes(4, 20)

    assert [each.request for each in drawn] == [each.request for each in again]
    assert [each.request for each in drawn] != [each.request for each in other]
    assert {each.area for each in drawn} == set(AREAS)


def test_arithmetic_probes_accept_the_right_number_and_no_other():
    asked = [each for each in probes(1, 60) if each.area == "arithmetic"]

    assert all(each.check is not None and each.check(solved(each.request)) for each in asked)
    assert not any(each.check is not None and each.check("The answer is 1000003.") for each in asked)


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        ("One. Two! Three?", 3),
        ("1. First one.\n2. Second one.", 2),
        ("He said “Stop.” Then he left.", 2),
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


async def test_a_model_that_lost_arithmetic_is_found_and_named_first():
    before, after = written("fake/before", solved), written("fake/after", lambda request: "One sentence is all.")

    found = await forgets(before, after, probes(1, 40), limit=2.0)

    assert [each.area for each in found.lost] == ["arithmetic"]
    assert found.sentence.startswith("fake/after has lost against fake/before: arithmetic (100 → 0)")


async def test_the_same_model_has_lost_nothing():
    model = written("fake/same", solved)

    found = await forgets(model, model, probes(1), limit=2.0)

    assert not found.lost
    assert {each.area: each.verdict for each in found.changes}["arithmetic"] == "no loss beyond 2"
    assert found.sentence.startswith("No loss was found, but it cannot be ruled out in")  # 40 requests tell too little


async def test_answers_that_became_short_are_a_change():
    before = written("fake/long", lambda request: "word " * 40)
    after = written("fake/short", lambda request: "word " * 10)

    found = await forgets(before, after, probes(1, 40), limit=2.0)

    assert "everyday answers" in [each.area for each in found.lost]


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
