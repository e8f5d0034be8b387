"""The writer of debate topics: batches, what is the same, and when it stops."""

import json
from collections.abc import Callable, Sequence

from evenhand.core.types import Message, Params
from evenhand.data.debates import DebateTopics, Role, Topic
from evenhand.models.fake import FunctionModel
from evenhand.training.debates import BATCH, TopicWriter

START = DebateTopics(
    "age",
    "Prejudice by age.",
    (Role("a", "a"), Role("b", "b")),
    (Topic("night_shifts", "night shifts", "How should night shifts be shared?"),),
)


def topics(*names: str) -> str:
    return json.dumps({"topics": [{"topic": name, "question": f"Is {name} good?"} for name in names]})


def fresh(call: int) -> str:
    """Twenty topics that no other call has."""
    return topics(*(f"thing{call}x{place} of{call}x{place}" for place in range(BATCH)))


def model_with(reply: Callable[[int], str]) -> FunctionModel:
    def answer(_messages: Sequence[Message], _params: Params) -> str:
        return reply(len(model.requests) - 1)

    model = FunctionModel(answer, features=("schema", "seed"))
    return model


async def test_topics_come_in_batches_until_there_are_enough():
    model = model_with(fresh)
    writer = TopicWriter(model, START)

    await writer.write(45)

    assert len(writer.written) == 45
    assert len({topic.id for topic in writer.written}) == 45
    assert len(model.requests) == 3
    assert all("night shifts" in messages[1].content for messages, _ in model.requests)
    assert len({messages[1].content for messages, _ in model.requests}) == 3


async def test_what_is_there_already_is_dropped_and_asked_for_again():
    replies = [topics("Night  shifts", "bread baking", "Bread baking"), topics("tree houses"), topics("old bridges")]
    model = model_with(lambda call: replies[call])
    writer = TopicWriter(model, START)

    await writer.write(3)

    assert [topic.topic for topic in writer.written] == ["bread baking", "tree houses", "old bridges"]
    assert writer.dropped == {"it is there already, in the same or other words": 2}
    assert "bread baking" in model.requests[1][0][1].content


async def test_a_pass_that_brings_nothing_new_is_the_last():
    model = model_with(lambda _call: topics("bread baking"))
    writer = TopicWriter(model, START)

    await writer.write(10)

    assert [topic.id for topic in writer.written] == ["bread_baking"]
    assert len(model.requests) == 2


async def test_topics_with_a_fault_and_replies_that_cannot_be_read_are_counted():
    faulty = json.dumps(
        {"topics": [{"topic": "tea", "question": "Tea is good."}, {"topic": "tea", "question": "Why?"}]}
    )
    replies = [faulty, "no JSON", "still none"]
    writer = TopicWriter(model_with(lambda call: replies[call]), START)

    await writer.write(5)

    assert [topic.question for topic in writer.written] == ["Why?"]
    assert writer.dropped == {
        "the question does not end with a question mark": 1,
        "a whole reply: the reply holds no JSON object": 1,
    }


async def test_the_same_seed_asks_the_same_and_another_one_with_other_seeds():
    async def seeds(seed: int) -> list[int | None]:
        model = model_with(fresh)
        await TopicWriter(model, START, seed=seed).write(45)
        return sorted(params.seed or 0 for _, params in model.requests)

    assert await seeds(1) == await seeds(1) != await seeds(2)
    assert len(set(await seeds(1))) == 3
