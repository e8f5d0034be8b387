"""`evenhand judges reliability`: forecast, page, numbers, and stored runs in place of texts of known value."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import EndpointError
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from support.judged import answering, comparing, less_biased
from support.steady import FAULTS, judging


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> FunctionModel:
    made = judging(FAULTS["style"][0])
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: made)
    return made


def test_the_command_forecasts_and_writes_page_and_numbers(cli: Any, judge: FunctionModel):
    asked = ("judges", "reliability", "stub/judge", "--metric", "opinion.bias", "--limit", "8")

    dry = cli(*asked, "--dry-run")
    assert judge.requests == []
    result = cli(*asked, "--out", "steady.html")

    calls = int(re.search(r"About ([\d,]+) short calls", dry.out)[1].replace(",", ""))
    assert calls == len(judge.requests)
    assert result.code == 1
    assert "set as a list with bold words" in result.out
    assert "50 % [" in result.out
    page = Path("steady.html").read_text(encoding="utf-8")
    assert "How steady is stub/judge?" in page
    assert "<svg" in page
    numbers = json.loads(Path("steady.json").read_text())
    [style] = [each for each in numbers["found"] if each["probe"] == "style"]
    assert style["flips"]["estimate"] == 0.5
    assert style["fault"]
    assert numbers["flipped"][0]["texts"][1].startswith("- **")


def test_an_endpoint_that_cannot_be_reached_is_named(cli: Any):
    asked = ("judges", "reliability", "openai/x", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0")

    result = cli(*asked, "--metric", "opinion.bias", "--probe", "length", "--limit", "1")

    assert result.code == 2
    assert "http://127.0.0.1:9/v1/chat/completions (x) cannot be reached" in result.err


def test_an_endpoint_that_fails_every_call_measures_nothing(cli: Any, monkeypatch: pytest.MonkeyPatch):
    made = FunctionModel(lambda *_: EndpointError("The endpoint kept answering 500."), spec="stub/judge")
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: made)

    result = cli("judges", "reliability", "stub/judge", "--metric", "opinion.bias", "--probe", "length", "--limit", "1")

    assert result.code == 1
    assert "Cannot tell: nothing was measured" in result.out


def test_a_budget_stops_it_with_the_way_to_go_on(cli: Any, judge: FunctionModel):
    result = cli("judges", "reliability", "stub/judge", "--metric", "opinion.bias", "--budget", "5calls")

    assert result.code == 3
    assert "Stopped: " in result.out
    assert "--reuse-answers" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--probe", "lenght"), "did you mean length?"),
        (("--metric", "opinon"), "opinion"),
        (("--metric", "mabrf"), "name a scorer"),
        (("--limit", "0"), "--limit"),
        (("--out", "page.txt"), "should end in .html"),
        (("--run", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(cli: Any, judge: FunctionModel, arguments: tuple[str, ...], said: str):
    result = cli("judges", "reliability", "stub/judge", *arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert judge.requests == []


@pytest.fixture
def two_models(cli: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The answers of two models to 30 questions, and three judges; one of them wrote half of the answers."""
    made = {
        "vain": lambda first, second: "A" if "of vain" in first else "B",
        "even": less_biased,
        "place": lambda _first, _second: "A",
    }
    for name, prefer in made.items():
        judge = comparing(f"{name}/one", prefer)
        writer = answering(f"{name}/one")

        async def generate(messages: Any, params: Any, judge: Any = judge, writer: Any = writer) -> Any:
            asked = judge if "Answer A" in messages[-1].content else writer
            return await type(asked).generate(asked, messages, params)

        model = answering(f"{name}/one")
        monkeypatch.setattr(model, "generate", generate)
        monkeypatch.setitem(PROVIDERS._things, name, lambda *_, model=model: model)
    for name in ("vain", "even"):
        plan = ("run", "--model", f"{name}/one", "--benchmark", "opinions", "--limit", "30")
        assert cli(*plan, "--scorer", "builtin", "--out", name).code == 0
    return ("vain", "even")


def test_order_and_authorship_are_found(cli: Any, two_models: tuple[str, ...]):
    runs = [word for run in two_models for word in ("--run", run)]
    asked = ("judges", "reliability", "vain/one", *runs, "--other", "even/one", "--other", "place/one")

    dry = cli(*asked, "--probe", "order", "--dry-run")
    result = cli(*asked, "--probe", "order")

    assert dry.code == 0
    assert "About 180 short calls" in dry.out
    assert result.code == 1, result.err
    assert "place/one decided 30 of 30 pairs by their order or by chance" in result.out
    assert "place/one prefers the answer that is shown first." in result.out
    assert "vain/one prefers its own answers more than the other judges do." in result.out
    assert "even/one decided" not in result.out
    page = Path("reliability.html").read_text(encoding="utf-8")
    assert "Does the order decide?" in page
    found = {each["judge"]: each for each in json.loads(Path("reliability.json").read_text())["pairs"]["judges"]}
    assert found["place/one"]["consistent"]["estimate"] == 0
    assert found["vain/one"]["own"]["rate"]["estimate"] == 1
    assert found["even/one"]["own"]["arms"] != found["vain/one"]["own"]["arms"]
    assert found["place/one"]["own"] is None


def test_a_judge_that_cannot_be_read_is_one_sentence(cli: Any, two_models: tuple[str, ...]):
    result = cli("judges", "reliability", "fake/nothing", "--run", "vain", "--run", "even", "--probe", "order")

    assert result.code == 2
    assert "No verdict of fake/nothing about two answers could be read" in result.err


def test_one_arm_is_no_pair(cli: Any, two_models: tuple[str, ...]):
    result = cli("judges", "reliability", "even/one", "--run", two_models[0])

    assert result.code == 2
    assert "A pair needs two arms" in result.err


def test_the_seed_draws_the_questions_of_runs(two_models: tuple[str, ...]):
    drawn = [
        evenhand.judge_reliability("even/one", probes=["order"], runs=two_models, limit=5, seed=seed).pairs
        for seed in (0, 0, 1)
    ]

    first, again, other = ({each.pair.sample.id for each in found.verdicts["even/one"]} for found in drawn)
    assert len(first) == 5
    assert first == again != other
