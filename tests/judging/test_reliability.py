"""Reliability: judges with one planted fault each, which is found; a sound judge, of whom nothing is said."""

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import EndpointError
from evenhand.core.types import Generation, Message, Params
from evenhand.judging.controls import Control
from evenhand.judging.reliability import (
    PROBES,
    Reliability,
    Steadiness,
    _corrected,
    _Rated,
    _steadiness,
    rated_texts,
    versions,
)
from evenhand.judging.scorers import OpinionScorer, QualityScorer
from evenhand.models.base import HOPELESS, PROVIDERS
from evenhand.models.fake import FunctionModel
from support.judges import constant
from support.steady import FAULTS, better, judging, sound


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Reliability]:
    monkeypatch.chdir(tmp_path)

    def test(model: FunctionModel, *others: FunctionModel, **how: Any) -> Reliability:
        for each in (model, *others):
            monkeypatch.setitem(PROVIDERS._things, each.spec.partition("/")[0], lambda *_, each=each: each)
        return evenhand.judge_reliability(
            model.spec, others=[each.spec for each in others], **{"metrics": ["opinion.bias"], **how}
        )

    return test


@pytest.mark.parametrize("probe", FAULTS)
def test_a_planted_fault_is_found_and_no_other(tested: Any, probe: str):
    fault, said = FAULTS[probe]

    found = tested(judging(fault))

    assert [each.probe for each, _ in found.faults] == [probe], found.sentences
    assert any(each.startswith(said) for each in found.sentences), found.sentences
    assert found.has_faults


def test_of_a_sound_judge_nothing_is_said(tested: Any):
    found = tested(judging(sound), metrics=["opinion.bias", "opinion.soundness"])

    assert found.faults == []
    assert not found.has_faults
    assert found.sentences == [
        "No fault is shown: on these texts, no change that should not matter changes verdicts beyond chance."
    ]
    assert found.ratings == ["opinion.bias", "opinion.soundness", "pairs"]
    assert all(each.flips.estimate == 0 and each.flips.n >= 28 for each in found.found), found.found


def test_a_judge_that_rates_all_alike_is_not_called_steady(tested: Any):
    found = tested(FunctionModel(constant, spec="stub/judge"), probes=["repeat", "length"])

    assert found.sentences == [
        "opinion.bias: the judge does not part high from low texts (AUC 0.50): steadiness says nothing."
    ]
    assert found.has_faults


def flipping(rng: random.Random, shares: Mapping[str, float]) -> list[Steadiness]:
    """Two texts to each of 12 questions; a verdict flips by the probe's share, whichever text it is."""
    texts = [_Rated(Control(f"t{n}", f"q{n // 2}", "", bool(n % 2)), ("bias",), n) for n in range(24)]
    again: list[Any] = []
    found: list[Steadiness] = []
    for probe, share in shares.items():
        pairs: list[Any] = []
        for each in texts * (2 if probe == "repeat" else 1):
            values = (0.6, 0.4) if each.place % 2 else (0.4, 0.6)
            pairs.append((each, ("", ""), {"bias": values[0]}, {"bias": values[rng.random() < share]}))
        again = again or pairs
        found.append(_steadiness("opinion.bias", probe, pairs, again if probe != "repeat" else (), 0.5)[0])
    return found


def test_noise_alone_is_no_fault_of_what_was_changed():
    rng, noise = random.Random(0), dict.fromkeys((probe for probe in PROBES if probe != "order"), 0.08)
    judges = [[each for _ in range(3) for each in flipping(rng, noise)] for _ in range(12)]

    found = [Reliability("a", _corrected(each), {}) for each in judges]

    # Without a comparison by text and correction it is about every second judge.
    assert sum(any(each.probe != "repeat" for each, _ in one.faults) for one in found) <= 1


def test_a_change_that_flips_many_is_found_if_nothing_else_ever_flips():
    shares = {probe: 0.7 * (probe == "style") for probe in PROBES if probe != "order"}

    found = Reliability("a", _corrected(flipping(random.Random(0), shares)), {})

    assert [each.probe for each, _ in found.faults] == ["style"]
    assert re.search(r"\d+ % \[\d+, \d+\] of the verdicts flip", found.sentences[0])


def test_a_judge_that_prefers_the_first_position_is_found(tested: Any):
    found = tested(judging(sound, lambda _first, _second: "A"))

    [order] = [each for each in found.found if each.probe == "order"]
    assert order.flips.estimate == 1.0
    assert "stub/judge prefers the answer that is shown first." in found.sentences
    assert found.has_faults


def test_own_answers_count_as_preferred_only_beside_other_judges(tested: Any):
    def vain(first: str, second: str) -> str:
        return "A" if "vain/one" in first else "B" if "vain/one" in second else better(first, second)

    alone = tested(judging(sound, vain, "vain/one"), probes=["own"])
    beside = tested(judging(sound, vain, "vain/one"), judging(sound, spec="even/two"), probes=["own"])

    assert alone.pairs.judges[0].own.rate.estimate == 1.0
    assert alone.pairs.judges[0].own.preference is None
    assert not alone.has_faults
    assert "vain/one prefers its own answers more than the other judges do." in beside.sentences
    assert beside.has_faults


class _Dead(FunctionModel):
    """Fails every call; `most` counts the calls that were in flight at once."""

    under_way = most = asked = 0

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        raise EndpointError("The endpoint kept answering 500.")


def test_an_endpoint_that_has_never_answered_is_given_up(tested: Any):
    model = _Dead(lambda *_: "", spec="dead/judge")

    with pytest.raises(EndpointError, match="kept answering 500") as caught:
        tested(model)

    assert (caught.value.permanent, caught.value.exit_code) == (True, 4)
    assert model.most == HOPELESS
    assert HOPELESS <= model.asked < 2 * HOPELESS


def test_what_cannot_be_read_is_said_and_counts_as_no_verdict(tested: Any):
    model = judging(sound)
    broken = FunctionModel(lambda *_: "Fine.", spec="stub/judge")

    found = tested(broken, probes=["repeat"])

    assert model.spec == broken.spec
    assert all(each.flips.estimate is None for each in found.found)
    assert re.search(r"\d+ ratings could not be read", found.sentences[0])


@pytest.mark.parametrize("scorer", [OpinionScorer, QualityScorer])
def test_both_versions_of_a_text_say_the_same_about_what_is_rated(scorer: Any):
    made = scorer(judging(sound))
    for each in rated_texts(made, list(made.controls), 40):
        for probe in PROBES:
            both = versions(probe, each.control, each.place, "Nothing more.")
            if both is not None:
                first, second = (set(re.findall(r"\w+", text)) for text in both)
                words = set(re.findall(r"\w+", each.control.text))
                assert words <= first & second, (probe, both)


def test_texts_are_drawn_from_both_halves_and_all_groups():
    drawn = rated_texts(OpinionScorer(judging(sound)), ["bias"])

    assert {each.control.held_out for each in drawn} == {True, False}
    assert len({each.control.group for each in drawn}) >= 8
    assert [sum(each.control.high is side for each in drawn) for side in (True, False)] == [15, 15]
