"""The moderation endpoint: batches, the mapping of its categories, and its faults."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from evenhand.scorers.moderation import DEFAULT_MODEL, ModerationScorer
from support.fixtures import Serve
from support.server import Body, ChatServer, Reply, raw, refuse, reply_with

KEY = "sk-very-secret"
CATEGORIES = {
    "harassment": 0.3,
    "harassment/threatening": 0.1,
    "hate": 0.2,
    "hate/threatening": 0.05,
    "sexual": 0.01,
    "violence": 0.6,
    "self-harm": 0.0,
}
Connect = Callable[..., ModerationScorer]


def moderation(*each: Mapping[str, Any]) -> Reply:
    results = [{"flagged": False, "categories": {}, "category_scores": scores} for scores in each]
    return reply_with({"id": "modr-1", "model": "omni-moderation", "results": results})


def by_length(body: Body) -> Reply:
    return moderation(*({**CATEGORIES, "hate": len(text) / 100} for text in body["input"]))


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    made: list[ModerationScorer] = []

    def make(server: ChatServer | str, model: str = DEFAULT_MODEL) -> ModerationScorer:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server if isinstance(server, str) else server.url)
        made.append(ModerationScorer(model))
        return made[-1]

    yield make
    for scorer in made:
        await scorer.aclose()


async def test_categories_are_mapped_and_kept(serve: Serve, connect: Connect):
    server = await serve(moderation(CATEGORIES))

    (result,) = await connect(server).score(["text"])

    assert result == {
        "toxicity": 0.3,
        "insult": 0.3,
        "identity_attack": 0.2,
        "threat": 0.6,
        "sexually_explicit": 0.01,
        **CATEGORIES,
    }
    seen = server.requests[0]
    assert (seen.path, seen.headers["Authorization"]) == ("/v1/moderations", f"Bearer {KEY}")
    assert seen.body == {"model": "omni-moderation-latest", "input": ["text"]}


async def test_texts_go_out_in_batches_and_come_back_in_order(serve: Serve, connect: Connect):
    server = await serve(answer=by_length)
    texts = ["a" * (number % 90) for number in range(70)]

    results = await connect(server).score(texts)

    assert [len(body["input"]) for body in server.bodies] == [32, 32, 5]
    assert results[0] == Unscored("empty text")
    assert [each["identity_attack"] for each in results[1:] if not isinstance(each, Unscored)] == [
        len(text) / 100 for text in texts[1:]
    ]


async def test_a_text_that_is_refused_does_not_take_its_batch_along(serve: Serve, connect: Connect):
    def answer(body: Body) -> Reply:
        return refuse("too long") if "long" in body["input"] else by_length(body)

    server = await serve(answer=answer)

    results = await connect(server).score(["a", "b", "long", "c", "d"])

    assert [isinstance(each, Unscored) for each in results] == [False, False, True, False, False]
    assert isinstance(results[2], Unscored)
    assert "too long" in results[2].reason


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({**CATEGORIES, "hate": 1.2}, "hate is 1.2, which is not a number in 0–1"),
        ({**CATEGORIES, "hate": None}, "hate is None"),
        ({name: value for name, value in CATEGORIES.items() if name != "sexual"}, "no score of 'sexual'"),
        ({}, "no score of 'harassment'"),
    ],
    ids=["out of range", "null", "missing", "empty"],
)
async def test_one_bad_result_leaves_one_text_unscored(
    serve: Serve, connect: Connect, scores: Mapping[str, Any], reason: str
):
    server = await serve(moderation(CATEGORIES, scores))

    good, bad = await connect(server).score(["good", "bad"])

    assert not isinstance(good, Unscored)
    assert isinstance(bad, Unscored)
    assert reason in bad.reason


async def test_a_category_that_a_model_does_not_have_is_left_out(serve: Serve, connect: Connect):
    server = await serve(moderation({**CATEGORIES, "illicit": None}))

    (result,) = await connect(server).score(["text"])

    assert not isinstance(result, Unscored)
    assert "illicit" not in result


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (raw(b"busy", 500), "kept answering 500: busy"),
        (raw(b"hello"), "did not send JSON but 'hello'"),
        (reply_with({}), "'results' is missing"),
        (moderation(CATEGORIES), "1 results for 2 texts"),
        (reply_with({"results": [{}, {}]}), "'category_scores' is missing"),
        (reply_with({"results": [{"category_scores": None}, {"category_scores": []}]}), "no usable scores"),
    ],
)
async def test_a_lasting_fault_leaves_every_text_unscored(
    serve: Serve, connect: Connect, pauses: list[float], fault: Reply, reason: str
):
    results = await connect(await serve(fault)).score(["a", "b"])

    for result in results:
        assert isinstance(result, Unscored)
        assert reason in result.reason


@pytest.mark.parametrize("fault", [raw(b"", 500), refuse("slow", status=429), raw(b"rubbish")])
async def test_a_passing_fault_is_tried_again(serve: Serve, connect: Connect, pauses: list[float], fault: Reply):
    server = await serve(fault, moderation(CATEGORIES))

    (result,) = await connect(server).score(["text"])

    assert not isinstance(result, Unscored)


async def test_the_wait_that_is_asked_for_is_kept(serve: Serve, connect: Connect, pauses: list[float]):
    server = await serve(reply_with({}, 429, {"Retry-After": "3"}), moderation(CATEGORIES))

    await connect(server).score(["text"])

    assert 3 <= pauses[0] <= 4


@pytest.mark.parametrize(
    ("status", "code", "fix"),
    [
        (401, None, "check the key in OPENAI_API_KEY"),
        (404, None, "check OPENAI_BASE_URL"),
        (429, "insufficient_quota", "billing"),
    ],
)
async def test_what_concerns_every_text_is_an_error_at_once(
    serve: Serve, connect: Connect, pauses: list[float], status: int, code: str | None, fix: str
):
    server = await serve(refuse(f"Incorrect API key: {KEY}", status=status, code=code))

    with pytest.raises(EndpointError, match=fix) as caught:
        await connect(server).score(["text"])

    assert caught.value.permanent
    assert KEY not in str(caught.value)
    assert len(server.requests) == 1


async def test_a_server_that_is_down_is_an_error(connect: Connect, pauses: list[float], closed_port: int):
    with pytest.raises(EndpointError, match="cannot be reached"):
        await connect(f"http://127.0.0.1:{closed_port}/v1").score(["text"])

    assert len(pauses) == 2


def test_the_model_stands_after_the_colon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    assert load_scorer("moderation").id == "moderation:omni-moderation-latest@1"
    assert load_scorer("moderation:my-guard").spec == "moderation:my-guard"


def test_without_key_and_endpoint_one_sentence_says_what_to_do():
    with pytest.raises(UsageError, match="set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        load_scorer("moderation")
