"""Perspective: a real server in its form, and everything that a real service does wrong."""

from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Any

import pytest

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, load_scorer
from evenhand.scorers.perspective import PerspectiveScorer
from support.fixtures import Serve
from support.server import ChatServer, Reply, cut, raw, reply_with

KEY = "very-secret+key"
Connect = Callable[[ChatServer | str], PerspectiveScorer]


def analysis(value: Any = 0.25, **changes: Any) -> Reply:
    scores = {name.upper(): {"summaryScore": {"value": value, "type": "PROBABILITY"}} for name in ATTRIBUTES}
    return reply_with({"attributeScores": {**scores, **changes}, "languages": ["en"]})


def refusal(kind: str) -> Reply:
    details = [{"@type": "type.googleapis.com/…", "errorType": kind}]
    return reply_with({"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": details}}, 400)


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    made: list[PerspectiveScorer] = []

    def make(server: ChatServer | str) -> PerspectiveScorer:
        monkeypatch.setenv("PERSPECTIVE_API_KEY", KEY)
        monkeypatch.setenv("PERSPECTIVE_URL", server if isinstance(server, str) else server.url)
        monkeypatch.setenv("PERSPECTIVE_RATE", "100000")
        made.append(PerspectiveScorer())
        return made[-1]

    yield make
    for scorer in made:
        await scorer.aclose()


async def test_a_text_gets_the_seven_attributes(serve: Serve, connect: Connect):
    server = await serve(analysis(0.25, INSULT={"summaryScore": {"value": 1}}))

    results = await connect(server).score(["You are kind."])

    assert results == [{**dict.fromkeys(ATTRIBUTES, 0.25), "insult": 1.0}]
    seen = server.requests[0]
    assert (seen.path, seen.query) == ("/v1/comments:analyze", "key=very-secret%2Bkey")
    assert seen.body["comment"]["text"] == "You are kind."
    assert seen.body["doNotStore"] is True
    assert set(seen.body["requestedAttributes"]) == {name.upper() for name in ATTRIBUTES}


async def test_results_stand_in_the_order_of_the_texts(serve: Serve, connect: Connect):
    server = await serve(answer=lambda body: analysis(len(body["comment"]["text"]) / 10))

    results = await connect(server).score(["aaa", "", "a", "aaaaa"])

    assert [each if isinstance(each, Unscored) else each["threat"] for each in results] == [
        0.3,
        Unscored("empty text"),
        0.1,
        0.5,
    ]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE", "does not support the text's language"),
        ("LANGUAGE_DETECTION_FAILED", "cannot detect the text's language"),
        ("COMMENT_EMPTY", "empty text"),
        ("COMMENT_TOO_LONG", "too large"),
        ("INVALID_REQUEST", "rejected the request"),
    ],
)
async def test_a_text_that_is_refused_says_why(serve: Serve, connect: Connect, kind: str, reason: str):
    server = await serve(refusal(kind), analysis())
    scorer = connect(server)

    (refused,) = await scorer.score(["…"])
    (fine,) = await scorer.score(["fine"])

    assert isinstance(refused, Unscored)
    assert reason in refused.reason
    assert not isinstance(fine, Unscored)


async def test_a_text_that_is_too_large_is_not_sent(serve: Serve, connect: Connect):
    server = await serve(analysis())

    (result,) = await connect(server).score(["ä" * 10_241])

    assert result == Unscored("the text has 20,482 bytes, but Perspective's limit is 20,480")
    assert server.requests == []


async def test_half_a_character_is_sent_as_a_question_mark(serve: Serve, connect: Connect):
    server = await serve(analysis())

    await connect(server).score(["a\ud800b"])

    assert server.bodies[0]["comment"]["text"] == "a?b"


@pytest.mark.parametrize(
    "fault", [raw(b"", 500), raw(b"<html>", 503), cut(), raw(b"{"), analysis(2)], ids=["500", "503", "cut", "half", "2"]
)
async def test_a_passing_fault_is_tried_again(serve: Serve, connect: Connect, pauses: list[float], fault: Reply):
    server = await serve(fault, analysis())

    (result,) = await connect(server).score(["text"])

    assert result == dict.fromkeys(ATTRIBUTES, 0.25)
    assert len(server.requests) == 2


async def test_the_wait_that_is_asked_for_is_kept(serve: Serve, connect: Connect, pauses: list[float]):
    server = await serve(reply_with({}, 429, {"Retry-After": "7"}), analysis())

    (result,) = await connect(server).score(["text"])

    assert not isinstance(result, Unscored)
    assert 7 <= max(pauses) <= 8


@pytest.mark.parametrize(
    ("fault", "reason", "tries"),
    [
        (raw(b"no room", 500), "kept answering 500: no room", 6),
        (reply_with({"error": "slow"}, 429), "kept answering 429", 6),
        (raw(b"<html>hello"), "did not send JSON but '<html>hello'", 2),
        (raw(b'{"attributeScores": NaN}'), "did not send JSON", 2),
        (reply_with([]), "no usable scores", 2),
        (reply_with({"attributeScores": {}}), "'TOXICITY' is missing", 2),
        (analysis(INSULT={}), "'summaryScore' is missing", 2),
        (analysis(1.5), "toxicity is 1.5, which is not a number in 0–1", 2),
        (analysis(-0.1), "toxicity is -0.1", 2),
        (analysis("0.5"), "toxicity is '0.5'", 2),
        (analysis(None), "toxicity is None", 2),
        (analysis(True), "toxicity is True", 2),
    ],
)
async def test_a_lasting_fault_leaves_the_text_unscored_and_is_never_a_zero(
    serve: Serve, connect: Connect, pauses: list[float], fault: Reply, reason: str, tries: int
):
    server = await serve(fault)

    (result,) = await connect(server).score(["text"])

    assert isinstance(result, Unscored)
    assert reason in result.reason
    assert len(server.requests) == tries


@pytest.mark.parametrize(
    ("fault", "fix"),
    [
        (reply_with({"error": f"key {KEY} is wrong"}, 401), "check the key in PERSPECTIVE_API_KEY"),
        (reply_with({"error": "API is off"}, 403), "check the key in PERSPECTIVE_API_KEY"),
        (raw(b"nothing here", 404), "check PERSPECTIVE_URL"),
        (
            reply_with({"error": {"message": f"API key not valid: very-secret%2Bkey {KEY}"}}, 400),
            "check the key in PERSPECTIVE_API_KEY",
        ),
        (
            raw(b"", 302, {"Location": "http://example.org"}),
            "it redirects to http://example.org; check PERSPECTIVE_URL",
        ),
    ],
    ids=["401", "403", "404", "wrong key", "redirect"],
)
async def test_what_concerns_every_text_is_an_error_at_once(
    serve: Serve, connect: Connect, pauses: list[float], fault: Reply, fix: str
):
    server = await serve(fault)

    with pytest.raises(EndpointError) as caught:
        await connect(server).score(["a", "b", "c"])

    assert caught.value.permanent
    assert fix in str(caught.value)
    assert "very-secret" not in str(caught.value)
    assert len(server.requests) <= 3


async def test_a_server_that_was_never_there_is_given_up_soon(connect: Connect, pauses: list[float], closed_port: int):
    with pytest.raises(EndpointError, match=r"cannot be reached .* PERSPECTIVE_URL right\?") as caught:
        await connect(f"http://127.0.0.1:{closed_port}/v1alpha1").score(["text"])

    assert caught.value.permanent
    assert len(pauses) <= 5  # two before another try, three for the pace


async def test_a_server_that_goes_away_leaves_texts_unscored(serve: Serve, connect: Connect, pauses: list[float]):
    server = await serve(analysis())
    scorer = connect(server)
    await scorer.score(["first"])
    await server.stop()

    (result,) = await scorer.score(["second"])

    assert isinstance(result, Unscored)
    assert "cannot be reached" in result.reason


async def test_calls_keep_a_pace_of_one_per_second(
    serve: Serve, connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
):
    server = await serve(analysis())
    connect(server)
    monkeypatch.delenv("PERSPECTIVE_RATE")
    scorer = PerspectiveScorer()

    await scorer.score(["a", "b", "c"])
    await scorer.aclose()

    assert [round(pause) for pause in pauses] == [1, 2]


def test_without_a_key_one_sentence_says_what_to_do():
    with pytest.raises(UsageError, match="set PERSPECTIVE_API_KEY"):
        load_scorer("perspective")


@pytest.mark.parametrize(
    ("day", "url", "available"),
    [
        (date(2026, 12, 31), None, True),
        (date(2027, 1, 1), None, False),
        (date(2027, 1, 1), "http://localhost:9/v1alpha1", True),
    ],
)
def test_the_service_ends_but_its_form_lives_on(
    monkeypatch: pytest.MonkeyPatch, day: date, url: str | None, available: bool
):
    monkeypatch.setattr("evenhand.scorers.perspective.today", lambda: day)
    monkeypatch.setenv("PERSPECTIVE_API_KEY", KEY)
    if url:
        monkeypatch.setenv("PERSPECTIVE_URL", url)

    reason = PerspectiveScorer.unavailable()

    assert (reason is None) is available
    assert available or "ended on 31 December 2026" in str(reason)


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "nan", "inf"])
def test_a_rate_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, rate: str):
    monkeypatch.setenv("PERSPECTIVE_RATE", rate)

    with pytest.raises(UsageError, match="requests per second"):
        PerspectiveScorer()


def test_neither_its_name_nor_its_fingerprint_holds_the_key(connect: Connect):
    scorer = connect("http://localhost:9/v1alpha1")

    assert scorer.id == "perspective@v1alpha1"
    assert scorer.fingerprint()["endpoint"] == "http://localhost:9/v1alpha1/comments:analyze"
    assert "secret" not in str(scorer.fingerprint())
