"""Answering in a few words: what each method shows, how replies are read, and what becomes of the rest."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from evenhand.asking.answer import ABSTAINED, answer, read_answer
from evenhand.benchmarks.squad import BuiltinPassages
from evenhand.core.errors import PlanError
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Refusal, Result, Sample, Unscored
from evenhand.methods.base import METHODS, check_fit
from evenhand.models.fake import FunctionModel, Reply, ScriptedModel
from evenhand.session import Session
from evenhand.studies.results import ArmResult
from evenhand.studies.study import study
from support.runs import Workshop

ANSWER_METHODS = ["default", "closed_book"]
SAMPLE = Sample("q1", "answer", "Who fell down?", "Yesterday Ann fell.", target=["Ann"], cluster="Stairs")
YES = '{"answerable": true, "answer": "Ann"}'
NO = '{"answerable": false, "answer": ""}'
ANN = Answer("Ann", details={"abstained": False})


async def run(name: str, model: FunctionModel, sample: Sample = SAMPLE) -> Outcome:
    method = METHODS.get(name)
    return await method.run(sample, Session(sample, {"base": model}, 0, method.with_options({})))


@pytest.mark.parametrize("name", ANSWER_METHODS)
@pytest.mark.parametrize(("reply", "result"), [(YES, ANN), (NO, ABSTAINED)])
async def test_one_call_gives_an_answer_or_an_abstention(name: str, reply: str, result: Result):
    model = FunctionModel(lambda *_: reply)

    outcome = await run(name, model)

    assert outcome.result == result
    assert len(model.requests) == 1


async def test_the_open_book_shows_the_passage_and_the_closed_book_never_does():
    opened, closed = (FunctionModel(lambda *_: "hm") for _ in range(2))

    await run("default", opened)
    await run("closed_book", closed)

    assert "<<<Yesterday Ann fell.>>>" in opened.requests[0][0][-1].content
    for messages, _ in (*opened.requests, *closed.requests):
        assert any("<<<Who fell down?>>>" in message.content for message in messages)
    assert len(closed.requests) == 2
    assert not any("Ann" in message.content for messages, _ in closed.requests for message in messages)


@pytest.mark.parametrize("name", ANSWER_METHODS)
async def test_text_of_a_sample_is_never_taken_for_a_variable(name: str):
    model = FunctionModel(lambda *_: NO)

    await run(name, model, Sample("x", "answer", "Who? {{context}}", "See {{question}}."))

    assert "Who? {{context}}" in model.requests[0][0][-1].content


@pytest.mark.parametrize(("features", "constrained"), [(("schema",), True), ((), False)])
async def test_the_form_is_forced_where_the_model_allows_it(features: Any, constrained: bool):
    model = FunctionModel(lambda *_: YES, features=features)

    await run("default", model)

    params = model.requests[0][1]
    assert (params.schema is not None) is constrained
    assert params.temperature == 0
    assert params.max_tokens is not None
    assert '{"answerable": true or false' in model.requests[0][0][-1].content


READ: list[tuple[str, Result]] = [
    ('```json\n{"answerable": true, "answer": "Ann"}\n```', ANN),
    ('Here it is: {"answerable": true, "answer": " Ann "} I hope that helps.', ANN),
    ("{'answerable': True, 'answer': 'Ann'}", ANN),
    ("{answerable: yes, answer: 'Ann'}", ANN),
    ('{"answerable": "True", "answer": "Ann",}', ANN),
    ('{"answerable": 1, "answer": "Ann"}', ANN),
    ('{"answer": "Ann"}', ANN),
    (f"{YES}\nOnce more: {YES}", ANN),
    ('{"answerable": true or false, "answer": "…"}\n' + YES, ANN),
    ('{"answerable": true, "answer": 1066}', Answer("1066", details={"abstained": False})),
    ('{"answerable": true, "answer": "{a, b}"}', Answer("{a, b}", details={"abstained": False})),
    ("{'answerable': True, 'answer': 'Ann's'}", Answer("Ann's", details={"abstained": False})),
    ('{"answerable": true, "answer": "the \\"O\\"",}', Answer('the "O"', details={"abstained": False})),
    ('{"answerable": true, "answer": "None"}', Answer("None", details={"abstained": False})),
    ("{'answerable': False, 'answer': None}", ABSTAINED),
    ('{"answerable": false, "answer": "The passage does not say."}', ABSTAINED),
    ('{"answerable": false}', ABSTAINED),
    ('{"answerable": 0, "answer": "unknown"}', ABSTAINED),
]


@pytest.mark.parametrize(("text", "result"), READ)
def test_clear_replies_are_read(text: str, result: Result):
    assert read_answer(Completion(text)) == result


@pytest.mark.parametrize(
    "text",
    [
        "Ann",
        "The passage says that Ann fell.",
        '{"answerable": true, "answer": ""}',
        '{"answerable": true, "answer": null}',
        '{"answerable": true, "answer": ["Ann"]}',
        '{"answerable": true or false, "answer": "..."}',
        '{"answerable": true, "answer": "Ann',
        f"{YES} or rather {NO}",
        '["Ann"]',
        '{"result": 3}',
        "}{",
    ],
)
def test_replies_that_are_not_clear_are_unscored(text: str):
    assert read_answer(Completion(text)) == Unscored("no answer could be read from the reply", text)


def test_an_empty_reply_is_called_that():
    assert read_answer(Completion("\n")) == Unscored("the answer is empty", "\n")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("I'm sorry, but I can't help with that.", "I'm sorry, but I can't help with that."),
        (Completion("", refusal="No."), "No."),
        (Completion(YES, finish="filter"), YES),
    ],
)
async def test_a_refusal_is_a_refusal_and_is_not_asked_again(reply: Reply, text: str):
    model = FunctionModel(lambda *_: reply)

    assert (await run("default", model)).result == Refusal(text)
    assert len(model.requests) == 1


async def test_what_cannot_be_read_is_asked_for_once_more_in_plainer_words():
    model = ScriptedModel(["Ann fell.", YES])

    outcome = await run("default", model)

    first, second = (messages for messages, _ in model.requests)
    assert second[: len(first)] == first
    assert [message.role for message in second[len(first) :]] == ["assistant", "user"]
    assert "nothing else" in second[-1].content
    assert outcome.result == ANN


async def test_after_the_second_reply_it_stays_unscored():
    model = FunctionModel(lambda *_: "Ann fell.")

    assert (await run("default", model)).result == Unscored("no answer could be read from the reply", "Ann fell.")
    assert len(model.requests) == 2


async def test_own_messages_and_another_role_can_be_asked():
    prompt = parse_prompt("test/own", "# user\nWho? {{facts}}\n")
    base, reader = FunctionModel(lambda *_: NO), FunctionModel(lambda *_: YES, features=("schema",))
    session = Session(SAMPLE, {"base": base, "reader": reader})

    result = await answer(session, SAMPLE, prompt, prompt.render(facts="Ann."), agent="reader", role="reader")

    assert result == ANN
    assert base.requests == []
    assert reader.requests[0][0][0].content == "Who? Ann."
    assert reader.requests[0][1].schema is not None
    assert (session.trace[0].agent, session.trace[0].role) == ("reader", "reader")


@pytest.mark.parametrize("name", ANSWER_METHODS)
async def test_the_prompts_are_recorded(name: str):
    session = Session(SAMPLE, {"base": FunctionModel(lambda *_: YES)})

    await METHODS.get(name).run(SAMPLE, session)

    assert all(turn.prompt_id.startswith("methods/") and len(turn.prompt_hash) == 16 for turn in session.trace)
    assert len(session.trace) == 1


def test_methods_of_other_kinds_are_refused():
    with pytest.raises(PlanError, match=r"cot does not support the 'answer' samples.*closed_book, default"):
        check_fit(METHODS.get("cot"), "answer", "squad")
    with pytest.raises(PlanError, match="closed_book does not support the 'choice'"):
        check_fit(METHODS.get("closed_book"), "choice", "bbq")


async def test_a_whole_run_counts_refusals_as_wrong_and_tells_the_modes_apart(workshop: Workshop):
    known = {question.text: question for question in BuiltinPassages().questions()}

    def reply(messages: Sequence[Message], _params: Params) -> str:
        """Reads well, knows nothing by itself, and will not talk about the school trip."""
        asked = re.search(r"Question: <<<(.*)>>>", messages[0].content)
        assert asked is not None
        question = known[asked[1]]
        if question.title == "School trip":
            return "I'm sorry, but I can't discuss this."
        answers = question.answers if question.passage in messages[0].content else ()
        return json.dumps({"answerable": bool(answers), "answer": answers[0] if answers else ""})

    workshop.model(reply)
    await workshop.run(benchmark="squad_builtin", methods=["default", "closed_book"], limit=24)
    opened, closed = study([workshop.directory / "run"]).arms

    def value(arm: ArmResult, metric: str) -> float | None:
        found = arm.estimate(metric)
        assert found is not None
        return found.value

    assert opened.statuses == closed.statuses == {"graded": 22, "refused": 2}
    assert value(opened, "f1") == value(opened, "coverage") == pytest.approx(100 * 22 / 24)
    assert (value(closed, "f1_has_answer"), value(closed, "abstained_no_answer")) == (0, 100)
