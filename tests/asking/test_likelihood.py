"""Comparing the likelihoods of whole texts, where the plain model can score them."""

import asyncio

from evenhand.core.types import Answer, Completion, Message, Params, Sample, TokenLogprob
from evenhand.methods.base import METHODS
from evenhand.models.fake import FunctionModel
from evenhand.session import Answering, Session

SAMPLE = Sample("1", "choice", "Which?", "He left.", ("Yes.", "No."), texts=("He left. Yes.", "He left. No."))


def score(messages: object, params: Params) -> Completion | str:
    if not params.given:
        return "B"
    lead, end = params.given[0][:8], params.given[0][8:]
    # The lead is so unlikely that it would decide, if it counted.
    tokens = (TokenLogprob(lead, -100.0 if "Yes" in end else -1.0), TokenLogprob(end, -1.0 if "Yes" in end else -2.0))
    return Completion(params.given[0], logprobs=tokens)


def outcome(session: Session) -> Answer:
    result = asyncio.run(METHODS.get("default").run(SAMPLE, session)).result
    assert isinstance(result, Answer)
    return result


def test_the_likelier_end_wins_and_the_context_is_only_a_condition():
    model = FunctionModel(score, features=("likelihood",))
    session = Session(SAMPLE, {"base": model})

    answer = outcome(session)

    assert answer.choice == 0
    assert answer.details["log_likelihoods"] == [-1.0, -2.0]
    assert answer.details["tokens"] == [1, 1]
    assert session.trace[0].params.given == SAMPLE.texts
    assert session.trace[0].messages == ()


def test_other_models_are_asked_and_so_is_one_with_a_reading_of_its_own():
    plain = FunctionModel(score)
    asked = Session(
        SAMPLE, {"base": FunctionModel(score, features=("likelihood",))}, answering=Answering(reading="text")
    )

    assert "log_likelihoods" not in outcome(Session(SAMPLE, {"base": plain})).details
    assert "log_likelihoods" not in outcome(asked).details
    assert isinstance(plain.requests[0][0][0], Message)
