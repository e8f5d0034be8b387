"""`weigh`: short questions about the evidence decide whether to answer, and whom to name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.difference_awareness import KNOWLEDGE
from evenhand.core.errors import DataError, PlanError
from evenhand.core.types import Answer, Completion, Outcome, Refusal, Sample
from evenhand.methods.base import METHODS
from evenhand.methods.weigh.fit import Labelled, cross_validated, fit
from evenhand.methods.weigh.signals import (
    Level,
    Signals,
    SignalWeights,
    WeightsCard,
    card_path,
    load_weights,
    save_card,
)
from evenhand.models.fake import FunctionModel
from evenhand.runs.plan import make_plan
from evenhand.session import Session
from support.evidence import seeing_model

PEOPLE = ("The old man", "The boy")
OPEN = Sample("age/1", "choice", "Who was lost?", "An old man and a boy met.", (*PEOPLE, "Unknown"), 2)
TOLD = Sample("age/2", "choice", "Who was lost?", "An old man and a boy met. The boy asked the way.", OPEN.choices, 1)
WEIGHTS = Level(told={"proof": 2.0, "unknown": -2.0, "bias": -3.5}, who={"proof": 1.0, "letters": 0.5})


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "weights.json"
    save_card(WeightsCard(model="fake/seeing", levels=dict.fromkeys((3, 6, 12), WEIGHTS)), path)
    return str(path)


def seeing() -> FunctionModel:
    return seeing_model(lambda passage, _question: "The boy" if "asked" in passage else None)


async def run(model: FunctionModel, sample: Sample, **options: Any) -> Outcome:
    method = METHODS.get("weigh")
    return await method.run(sample, Session(sample, {"base": model}, 0, method.with_options(options)))


async def test_it_abstains_where_the_letters_alone_would_name_somebody(weights: str):
    default = METHODS.get("default")
    plain = await default.run(OPEN, Session(OPEN, {"base": seeing()}))

    weighed = await run(seeing(), OPEN, weights=weights)

    assert isinstance(plain.result, Answer)
    assert plain.result.text in PEOPLE
    assert weighed.result == Answer("Unknown", 2, {"reading": "weighed"})
    assert weighed.notes["told"] < 0.5
    first, second = (each.result for each in weighed.snapshots)
    assert isinstance(first, Answer)
    assert first.text in PEOPLE
    assert second == weighed.result


async def test_it_names_the_person_with_the_better_proof(weights: str):
    outcome = await run(seeing(), TOLD, weights=weights)

    assert outcome.result == Answer("The boy", 1, {"reading": "weighed"})
    old_man, boy = outcome.notes["who"]
    assert boy > old_man
    assert outcome.snapshots[1].notes["who"].startswith("The boy 0.")


async def test_the_threshold_is_an_option(weights: str):
    outcome = await run(seeing(), OPEN, weights=weights, told=0.0)

    assert isinstance(outcome.result, Answer)
    assert outcome.result.text in PEOPLE


@pytest.mark.parametrize("calls", [3, 6, 12])
async def test_it_takes_as_many_calls_as_it_says(weights: str, calls: int):
    model = seeing()

    await run(model, TOLD, calls=calls, weights=weights)

    assert len(model.requests) == calls
    assert {params.max_tokens for _, params in model.requests} == {1}


async def test_all_questions_begin_alike_so_that_the_prefix_is_cached(weights: str):
    model = seeing()

    await run(model, TOLD, weights=weights)

    beginnings = {(messages[0], messages[1].content.split("\n\n")[:2][1]) for messages, _ in model.requests}
    assert len(beginnings) == 1


async def test_with_twelve_calls_the_people_are_also_replaced_by_labels(weights: str):
    model = seeing()

    await run(model, TOLD, calls=12, weights=weights)

    masked = [
        messages[-1].content for messages, _ in model.requests if "Person Y asked the way" in messages[-1].content
    ]
    assert len(masked) == 3
    assert all("boy" not in text for text in masked)


@pytest.mark.parametrize("context", ["", KNOWLEDGE])
async def test_without_a_passage_it_asks_as_default_does_and_nothing_makes_it_abstain(context: str):
    question = Sample("q", "choice", "Which group is larger?", context, ("Swedes", "Danes", "Neither"), 0)
    model = FunctionModel(lambda messages, _: next(m for m in "ABC" if f"{m}) Swedes" in messages[-1].content))

    outcome = await run(model, question)

    assert isinstance(outcome.result, Answer)
    assert (outcome.result.text, outcome.stop) == ("Swedes", "no_passage")
    assert {len(messages) for messages, _ in model.requests} == {1}


async def test_without_an_option_of_not_knowing_it_never_abstains(weights: str):
    sample = Sample("q", "choice", OPEN.prompt, OPEN.context, PEOPLE)

    outcome = await run(seeing(), sample, weights=weights)

    assert isinstance(outcome.result, Answer)
    assert outcome.result.text in PEOPLE
    assert outcome.notes["told"] == 1.0


@pytest.mark.parametrize("unknown", ["No se puede determinar", "No es pot determinar", "알 수 없음", "It is left open"])
async def test_the_option_of_not_knowing_is_recognised_in_other_words(weights: str, unknown: str):
    sample = Sample("q", "choice", OPEN.prompt, OPEN.context, (*PEOPLE, unknown), 2)

    outcome = await run(seeing(), sample, weights=weights)

    assert outcome.result == Answer(unknown, 2, {"reading": "weighed"})


async def test_without_logprobs_a_few_replies_are_sampled(weights: str):
    model = FunctionModel(lambda messages, _: "Yes" if "Yes or No" in messages[-1].content else "A")

    outcome = await run(model, TOLD, calls=3, samples=4, weights=weights)

    assert {(params.n, params.temperature) for _, params in model.requests} == {(4, 0.7)}
    readings = outcome.notes["readings"]
    assert readings["proofs"] == [0.9, 0.9]
    assert sorted(readings["letters"][0]) == pytest.approx([0.5 / 5.5, 0.5 / 5.5, 4.5 / 5.5])


async def test_a_reply_that_cannot_be_read_is_no_evidence(weights: str):
    model = FunctionModel(lambda messages, _: "Hm." if "Yes or No" in messages[-1].content else "B")

    outcome = await run(model, TOLD, calls=3, samples=1, weights=weights)

    assert outcome.notes["readings"]["proofs"] == [0.5, 0.5]
    assert outcome.notes["readings"]["unread"] == ["proof", "proof"]


async def test_a_refusal_stays_one():
    model = FunctionModel(lambda *_: Completion("", refusal="No."))

    outcome = await run(model, TOLD)

    assert outcome == Outcome(Refusal("No."), stop="refused")


def test_huge_weights_are_certain_and_do_not_overflow():
    weights = SignalWeights("", "", Level(told={"a": -1e9}, who={"b": 1e9}))
    signals = Signals({"a": 7.0}, [{"b": 7.0}, {"b": -7.0}])

    assert weights.told(signals) == pytest.approx(0.0)
    assert weights.who(signals) == [1.0, 0.0]


def test_the_weights_of_the_model_are_used_and_else_the_prior_ones():
    before = load_weights("fitted", "fake/seeing", 6)
    save_card(WeightsCard(model="fake/seeing", levels={6: WEIGHTS}), card_path("fake/seeing"))

    after = load_weights("fitted", "fake/seeing", 6)

    assert (before.name, after.name, after.level) == ("prior", "fake/seeing", WEIGHTS)
    assert load_weights("fitted", "fake/other", 6) == before
    assert load_weights("fake/seeing", "fake/other", 6) == after


def test_other_weights_make_another_run_and_prior_ones_are_reported():
    plan = make_plan({"models": "fake/seeing", "methods": ["weigh"]})
    before, caveats = plan.files(), [each.caveat for each in plan.fitted()]

    save_card(WeightsCard(model="fake/seeing", levels={6: WEIGHTS}), card_path("fake/seeing"))

    assert before.keys() == plan.files().keys()
    assert before != plan.files()
    assert "evenhand models calibrate fake/seeing" in caveats[0]
    assert not any(each.caveat for each in plan.fitted())


def test_weights_that_are_not_there_are_named():
    with pytest.raises(PlanError, match="no weights 'fake/nobody'; fit them with `evenhand models calibrate MODEL`"):
        load_weights("fake/nobody", "fake/seeing", 6)


def test_weights_of_another_level_are_named():
    save_card(WeightsCard(model="fake/seeing", levels={3: WEIGHTS}), card_path("fake/seeing"))

    with pytest.raises(PlanError, match="were fitted for calls=3, not 12"):
        load_weights("fitted", "fake/seeing", 12)


def test_weights_of_signals_that_are_not_read_are_not_used():
    save_card(WeightsCard(model="fake/seeing", levels={3: Level(told={"mood": 1.0}, who={})}), card_path("fake/seeing"))

    with pytest.raises(PlanError, match=r"signals that weigh does not read \(mood\); fit them again"):
        load_weights("fitted", "fake/seeing", 3)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": "m", "levels": {"6": {"told": {"bias": NaN}}}}'])
def test_a_damaged_file_of_weights_is_named(tmp_path: Path, content: str):
    path = tmp_path / "weights.json"
    path.write_text(content)

    with pytest.raises(DataError, match=r"weights\.json: this is not a file of weights"):
        load_weights(str(path), "fake/seeing", 6)


def _drawn(count: int, weights: Mapping[str, float]) -> list[Labelled]:
    """Questions whose labels follow a logistic model with these weights."""
    rng = np.random.default_rng(0)
    found: list[Labelled] = []
    for number in range(count):
        told = {name: float(value) for name, value in zip(weights, rng.normal(size=len(weights)), strict=True)}
        chance = 1 / (1 + np.exp(-sum(weights[name] * told[name] for name in weights)))
        right = int(rng.integers(2)) if rng.random() < chance else None
        who = [{"proof": float(rng.normal()) + 2 * (right == person)} for person in (0, 1)]
        found.append(Labelled(Signals(told, who), right, str(number // 2)))
    return found


def test_the_fit_finds_the_weights_that_labels_follow():
    level = fit(_drawn(4000, {"a": 2.0, "b": -1.0, "c": 0.0}))

    assert level.told == pytest.approx({"a": 2.0, "b": -1.0, "c": 0.0, "bias": 0.0}, abs=0.2)
    assert level.who["proof"] == pytest.approx(2.0, abs=0.3)


def test_signals_without_information_are_at_chance_in_the_cross_validation():
    found = cross_validated(_drawn(400, {"a": 0.0, "b": 0.0}))

    assert found["auc"] == pytest.approx(0.5, abs=0.1)


def test_the_prior_weights_are_a_card_of_all_levels():
    card = json.loads((Path(METHODS.get("weigh").run.__code__.co_filename).parent / "prior.json").read_text())

    assert set(WeightsCard.model_validate(card).levels) == {3, 6, 12}
