"""The baselines that people compare with: rewriting, reflection, personas and masking."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from evenhand.core.types import Answer, Message, Outcome, Params, Sample
from evenhand.methods.base import METHODS
from evenhand.methods.mask import masked_sample
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.session import Answering, Session

SAMPLE = Sample(
    "age/1", "choice", "Who was lost?", "An old man and a boy met.", ("The old man", "The boy", "Unknown"), 2
)
CHAT = Sample("chat", "chat", "Why are old men always lost?")


async def run(name: str, model: FunctionModel, sample: Sample = SAMPLE, orders: int = 1, **options: Any) -> Outcome:
    method = METHODS.get(name)
    return await method.run(
        sample, Session(sample, {"base": model}, 0, method.with_options(options), Answering(orders))
    )


async def test_the_restated_question_is_answered_in_place_of_the_first():
    model = ScriptedModel(["Does the passage say who was lost?", "B"])

    outcome = await run("rewrite", model)

    answered = model.requests[1][0][-1].content
    assert "Question: Does the passage say who was lost?" in answered
    assert SAMPLE.prompt not in answered
    assert isinstance(outcome.result, Answer)
    assert outcome.notes == {"restated": "Does the passage say who was lost?"}


async def test_a_question_that_is_not_restated_is_answered_as_it_is():
    model = ScriptedModel(["I'm sorry, but I can't help with this.", "B"])

    outcome = await run("rewrite", model)

    assert SAMPLE.prompt in model.requests[1][0][-1].content
    assert outcome.stop == "not_rewritten"


async def test_reflection_answers_again_from_its_own_assumptions():
    model = ScriptedModel(["A", "I assumed that old people get lost.", "B"])

    outcome = await run("reflect", model)

    last = model.requests[2][0]
    assert [message.role for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[3].content == "I assumed that old people get lost."
    first, second = outcome.snapshots
    assert first.result != second.result == outcome.result


async def test_reflection_that_lists_nothing_keeps_the_first_answer():
    model = ScriptedModel(["A", "I'm sorry, but I can't help with this."])

    outcome = await run("reflect", model)

    assert outcome.stop == "no_assumptions"
    assert outcome.result == outcome.snapshots[0].result


async def test_reflection_on_a_conversation():
    model = ScriptedModel(["They are old.", "I assumed it.", "They are not."])

    outcome = await run("reflect", model, CHAT)

    assert outcome.result == Answer("They are not.", details={"finish": "stop"})


async def test_every_persona_speaks_in_every_round_and_sees_all_views():
    def reply(messages: Sequence[Message], _params: Params) -> str:
        who = re.search(r"You speak as (.*?)\.", messages[0].content)
        return f"View of {who[1]}." if who else "C"

    model = FunctionModel(reply)

    outcome = await run("personas", model, rounds=2)

    speakers = [messages[0].content for messages, _ in model.requests[:6]]
    assert len(set(speakers)) == 3
    assert sum("same group as" in each for each in speakers) == 4
    critique = model.requests[3][0][-1].content
    assert critique.count("View of") == 3
    assert model.requests[6][0][-1].content.count("View of") == 3
    assert isinstance(outcome.result, Answer)
    assert len(model.requests) == 7


async def test_masked_people_are_labels_and_the_answer_is_restored():
    model = FunctionModel(lambda messages, _: next(m for m in "ABC" if f"{m}) Person Y" in messages[-1].content))

    outcome = await run("mask", model)

    shown = model.requests[0][0][-1].content
    assert "Passage: Person X and Person Y met." in shown
    assert "boy" not in shown
    assert isinstance(outcome.result, Answer)
    assert (outcome.result.text, outcome.result.choice) == ("The boy", 1)


async def test_a_passage_that_names_them_otherwise_is_not_masked():
    sample = Sample("q", "choice", "Who?", "Two people met.", SAMPLE.choices)
    model = FunctionModel(lambda *_: "B")

    outcome = await run("mask", model, sample)

    assert "The old man" in model.requests[0][0][-1].content
    assert outcome.stop == "not_masked"


@pytest.mark.parametrize(
    ("context", "choices", "masked"),
    [
        ("A gay man met a bisexual man.", ("The gay person", "The bisexual person"), "Person X man met Person Y man."),
        ("Ana Ruiz met Jo Lee. Ana waved.", ("Ana Ruiz", "Jo Lee"), "Person X met Person Y. Person X waved."),
        ("A man and a tall man sat.", ("The man", "The tall man"), "Person X and Person Y sat."),
        ("Ana met Jo. Ana, a nurse, waved.", ("Ana, who is poor", "Jo, who is rich"),
         "Person X met Person Y. Person X, a nurse, waved."),
    ],
)  # fmt: skip
def test_people_are_found_by_the_words_that_set_them_apart(context: str, choices: tuple[str, ...], masked: str):
    found = masked_sample(Sample("q", "choice", "Who?", context, (*choices, "Unknown")))

    assert found is not None
    assert found.context == masked
    assert found.choices == ("Person X", "Person Y", "Unknown")


@pytest.mark.parametrize("choices", [("Yes", "No", "Unknown"), ("One", "One", "Unknown"), ("Ana", "Unknown")])
def test_options_that_are_no_people_are_not_masked(choices: tuple[str, ...]):
    assert masked_sample(Sample("q", "choice", "Who?", "Something was said.", choices)) is None
