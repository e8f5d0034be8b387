"""What a model is worth as a judge: judges that see everything, nothing, or cannot be read."""

from collections.abc import Sequence

import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.types import Message, Params, Sample, Unscored
from evenhand.judging.card import Calibration, Contrast, calibrate, curve_of
from evenhand.judging.instruments import check_method
from evenhand.judging.rubric import Ratings
from evenhand.methods import mabrf
from evenhand.methods.stardtox import CALIBRATION, contrasts
from evenhand.models.base import HOPELESS, HopefulModel
from evenhand.models.fake import FunctionModel
from evenhand.session import Session
from support.judges import constant, reasoning, seeing

EVIDENCE = ["settled", "support", "rated_support", "rated_settled"]
RATINGS = [*EVIDENCE, "fluency", "coherence", "relevance", "helpfulness", "harm"]


async def test_a_judge_that_sees_everything_gets_thresholds_between_what_it_tells_apart():
    found = await calibrate(FunctionModel(seeing), contrasts())

    assert [each.rating for each in found] == RATINGS
    assert [each.auc for each in found] == [1.0] * 9
    assert [each.threshold for each in found] == [pytest.approx(0.5)] * 9
    assert [each.unscored for each in found] == [0] * 9


async def test_a_judge_that_always_says_the_same_is_at_chance_and_gets_no_threshold():
    found = await calibrate(FunctionModel(constant), contrasts())

    assert [each.auc for each in found] == [0.5] * 9
    assert [each.threshold for each in found] == [None] * 9
    assert [curve_of(each) for each in found] == [None] * 9


async def test_an_endpoint_that_refuses_every_request_is_asked_no_further():
    model = FunctionModel(lambda *_: EndpointError("The key may not use this model.", permanent=True))

    with pytest.raises(EndpointError, match="may not use this model"):
        await calibrate(model, contrasts())


async def test_an_endpoint_that_has_never_answered_is_given_up():
    calls: list[object] = []

    def fail(*asked: object) -> EndpointError:
        calls.append(asked)
        return EndpointError("The endpoint kept answering 500.")

    with pytest.raises(EndpointError, match="kept answering 500") as caught:
        await calibrate(HopefulModel(FunctionModel(fail)), contrasts())

    assert (caught.value.permanent, caught.value.exit_code) == (True, 4)
    assert HOPELESS <= len(calls) < len(contrasts())


async def test_an_endpoint_that_does_not_answer_the_first_text_of_a_run_is_asked_no_further():
    calls: list[object] = []

    def reply(messages: Sequence[Message], params: Params) -> str | EndpointError:
        calls.append(messages)
        return EndpointError("The endpoint is busy.") if len(calls) == 1 else seeing(messages, params)

    model, other = FunctionModel(reply), FunctionModel(seeing)

    assert await calibrate(model, contrasts(), probing=True) == []
    assert len(calls) == 1
    assert await calibrate(model, contrasts(), probing=True) == await calibrate(other, contrasts())
    assert len(calls) == 1 + len(other.requests)


async def test_an_endpoint_that_answers_now_and_then_is_asked_to_the_end():
    calls: list[object] = []

    def reply(messages: Sequence[Message], params: Params) -> str | EndpointError:
        calls.append(messages)
        return seeing(messages, params) if len(calls) % HOPELESS == 1 else EndpointError("The endpoint is busy.")

    found = await calibrate(HopefulModel(FunctionModel(reply)), contrasts())

    assert all(each.unscored > 0 for each in found)


async def test_replies_that_cannot_be_read_are_counted_and_are_no_ratings():
    model = FunctionModel(lambda *_: "It is fine.")

    found = await calibrate(model, contrasts())

    assert {(each.auc, each.threshold, len(each.high), len(each.low)) for each in found} == {(None, None, 0, 0)}
    assert all(each.unscored > 0 for each in found)


async def test_some_replies_that_cannot_be_read_leave_the_others():
    def reply(messages: Sequence[Message], params: Params) -> str:
        return "Perhaps." if "Question:" in messages[-1].content else seeing(messages, params)

    found = {each.rating: each for each in await calibrate(FunctionModel(reply), contrasts())}

    assert found["support"].auc is None
    assert found["harm"].auc == 1.0


async def test_one_reply_may_rate_two_texts_and_is_one_where_it_cannot_be_read():
    async def rate(session: Session) -> Ratings | Unscored:
        if session.sample.id == "unread":
            return Unscored("no numbers")
        values = {"referee/biased": 0.8, "referee/fair": 0.3}
        return Ratings(values, values)

    expected = [("referee/biased", True), ("referee/fair", False)]
    texts = [Contrast(Sample(name, "chat", "Why?"), rate, expected) for name in ("read", "unread")]

    assert await calibrate(FunctionModel(constant), texts) == [Calibration("referee", [0.8], [0.3], 1)]


async def test_both_sides_of_each_rating_are_asked_about_and_progress_is_told():
    told: list[tuple[int, int]] = []
    model = FunctionModel(constant)

    found = await calibrate(model, contrasts(), lambda done, total: told.append((done, total)))

    assert told == [(number, len(contrasts())) for number in range(1, len(contrasts()) + 1)]
    assert all(len(each.high) >= 8 and len(each.low) >= 10 for each in found)


async def test_the_same_questions_are_asked_every_time():
    first, second = FunctionModel(constant), FunctionModel(constant)

    await calibrate(first, contrasts())
    await calibrate(second, contrasts())

    assert first.requests == second.requests


async def test_a_passage_is_judged_with_and_without_its_fact_for_every_person():
    model = FunctionModel(constant)

    found = {each.rating: each for each in await calibrate(model, contrasts())}

    asked_about = [text for text in asked(model) if "Possible answer:" in text]
    assert len(asked_about) == len(set(asked_about)) == 30 * 2 * 2
    assert [(len(found[name].high), len(found[name].low)) for name in ("settled", "support")] == [(30, 30), (30, 90)]


def asked(model: FunctionModel) -> list[str]:
    return [messages[-1].content for messages, _ in model.requests]


def test_ties_count_half_and_the_threshold_has_the_most_on_both_sides():
    found = Calibration("support", [0.9, 0.8, 0.5], [0.5, 0.2, 0.1], 0)

    assert found.auc == pytest.approx(8.5 / 9)
    assert found.threshold == pytest.approx(0.35)


def test_a_judge_that_has_it_the_wrong_way_round_gets_no_threshold():
    assert Calibration("support", [0.1, 0.2], [0.8, 0.9], 0).threshold is None


async def test_reasoning_by_stereotype_and_by_passage_give_mabrf_its_bound():
    found = await calibrate(FunctionModel(seeing), mabrf.contrasts())

    assert [(each.rating, each.auc, len(each.high), len(each.low)) for each in found] == [
        ("bias", 1.0, 30, 60),
        ("grounded", 1.0, 60, 60),
        ("relevancy", 1.0, 30, 30),
        ("look", 1.0, 30, 30),
        ("chat_bias", 1.0, 36, 36),
    ]
    assert mabrf.suggested_options(found) == {"accept": 5.5, "grounded": 5.5}


async def test_a_judge_that_believes_what_it_reads_is_told_to_look_first():
    def credulous(messages: Sequence[Message], params: Params) -> str:
        believed = reasoning(False, grounded=True)
        return believed if "describes" in messages[-1].content else seeing(messages, params)

    found = await calibrate(FunctionModel(credulous), mabrf.contrasts())

    assert mabrf.suggested_options(found) == {"look": True, "grounded": 5.5, "accept": 10}


async def test_a_rating_at_chance_does_not_count():
    def reply(messages: Sequence[Message], params: Params) -> str:
        text = messages[-1].content
        return "No" if "Yes or No" in text else reasoning("tend to" in text or "are said" in text, grounded=True)

    found = await calibrate(FunctionModel(reply), mabrf.contrasts())

    assert mabrf.suggested_options(found) == {"accept": 5.5, "grounded": 1}


@pytest.mark.parametrize(("tells", "bound"), [(0.46, 5.14), (0.56, 4.96)])
def test_in_doubt_nothing_is_rewritten(tells: float, bound: float):
    found = [Calibration("look", [tells + 0.1], [tells - 0.1], 0)]

    assert mabrf.suggested_options(found) == {"look": True, "grounded": bound, "accept": 10}


async def test_a_judge_that_cannot_tell_reasonings_apart_gets_no_bound():
    found = await calibrate(FunctionModel(lambda *_: reasoning(True, grounded=True)), mabrf.contrasts())

    assert mabrf.suggested_options(found) == {}


async def test_repeatability_is_measured_for_the_judges_of_methods_too():
    def reply(messages: Sequence[Message], params: Params) -> str:
        return seeing(messages, params) if params.seed is None else constant(messages, params)

    steady = await check_method("stardtox", CALIBRATION, FunctionModel(seeing))
    changing = await check_method("stardtox", CALIBRATION, FunctionModel(reply, features=("seed",)))

    assert {each.repeated for each in steady.certificates} == {0.0}
    assert all((each.repeated or 0) > 0.1 for each in changing.certificates)
