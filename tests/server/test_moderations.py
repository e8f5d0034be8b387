"""/v1/moderations: by hand, with OpenAI's own client, and with the scorer that speaks to such endpoints."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import aiohttp
import openai
import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, Scorer, Scores, load_scorer
from evenhand.scorers.moderation import ModerationScorer
from evenhand.server.access import auth_middleware
from evenhand.server.scoring_api import scoring_routes
from evenhand.web.keys import Auth, KeyConfig, new_key
from support.small_app import serving

KIND, RUDE = "Have a lovely day in the park.", "You are a stupid worthless idiot."


class Fixed(Scorer):
    """Gives what it is told to."""

    name: ClassVar[str] = "fixed"
    version = "1"
    attributes = ("toxicity",)

    def __init__(self, result: Scores | Unscored | Exception) -> None:
        self.result = result

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        if isinstance(self.result, Exception):
            raise self.result
        return [self.result] * len(texts)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(scoring_routes(load_scorer("builtin"))) as (url, _):
        yield url


async def ask(url: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/moderations", json=body) as response:
        return response.status, await response.json()


async def test_a_text_is_scored_under_openais_names_and_our_own(url: str):
    (own,) = await load_scorer("builtin").score([RUDE])
    assert not isinstance(own, Unscored)

    status, answer = await ask(url, {"input": RUDE, "model": "omni-moderation-latest"})

    assert status == 200
    assert answer["model"] == load_scorer("builtin").id
    (result,) = answer["results"]
    scores = result["category_scores"]
    assert {name: scores[name] for name in ATTRIBUTES} == own
    assert (scores["harassment"], scores["hate"]) == (own["insult"], own["identity_attack"])
    assert scores["hate/threatening"] == min(own["identity_attack"], own["threat"])
    assert scores["self-harm"] is None  # not known is not zero
    assert result["categories"]["self-harm"] is None
    assert result["categories"]["harassment"] is True
    assert result["flagged"] is True
    assert result["category_applied_input_types"]["harassment"] == ["text"]
    assert result["category_applied_input_types"]["self-harm"] == []


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        (KIND, [False]),
        ([KIND, RUDE, KIND], [False, True, False]),
        ([{"type": "text", "text": KIND}, {"type": "text", "text": RUDE}], [True]),  # the parts of one text
    ],
)
async def test_all_forms_of_input(url: str, given: Any, flags: list[bool]):
    status, answer = await ask(url, {"input": given})

    assert status == 200
    assert [result["flagged"] for result in answer["results"]] == flags


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input must be"),
        ({"input": []}, "input must be"),
        ({"input": 5}, "input must be"),
        ({"input": [5]}, "Write a part of the input"),
        ({"input": [KIND, {"type": "text", "text": KIND}]}, "Write a part of the input"),
        (
            {"input": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]},
            "Images are not supported",
        ),
        ({"input": [KIND] * 101}, "at most 100 texts"),
        ({"input": ""}, "empty text"),
        ({"input": [KIND, "Привет, как дела?"]}, "language"),
        ([], "must be a JSON object"),
    ],
)
async def test_what_cannot_be_scored_is_an_error_in_a_sentence(url: str, body: Any, words: str):
    status, answer = await ask(url, body)

    assert status == 400
    assert words in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


async def test_what_is_no_json_is_refused(url: str):
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/moderations", data=b"{") as response:
        assert response.status == 400


@pytest.mark.parametrize(
    ("result", "status"),
    [(Unscored("the judge gave no number"), 503), (EndpointError("https://x/?key=secret is down"), 502)],
)
async def test_a_scorer_that_fails_is_never_a_zero_and_tells_no_secrets(result: Any, status: int):
    async with serving(scoring_routes(Fixed(result))) as (url, _):
        told, answer = await ask(url, {"input": KIND})

    assert told == status
    assert "results" not in answer
    assert "secret" not in answer["error"]["message"]


async def test_a_scorer_of_toxicity_alone_flags_by_it():
    async with serving(scoring_routes(Fixed({"toxicity": 0.8}))) as (url, _):
        _, answer = await ask(url, {"input": KIND})

    (result,) = answer["results"]
    assert result["flagged"] is True
    assert result["category_scores"]["harassment"] is None


async def test_a_scorer_of_something_else_is_refused():
    scorer = Fixed({"fluency": 0.8})
    scorer.attributes = ("fluency",)
    async with serving(scoring_routes(scorer)) as (url, _):
        status, answer = await ask(url, {"input": KIND})

    assert status == 501
    assert "does not score toxicity" in answer["error"]["message"]


async def test_openais_client_works_unchanged():
    key, digest = new_key()
    auth = Auth({"team": KeyConfig(hash=digest, may=("score",))}, "127.0.0.1")
    async with serving(scoring_routes(load_scorer("builtin")), auth_middleware(lambda: auth)) as (url, _):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
            answer = await client.moderations.create(input=[KIND, RUDE], model="omni-moderation-latest")
            with pytest.raises(openai.BadRequestError):
                await client.moderations.create(input="")
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.moderations.create(input=KIND)

    assert [result.flagged for result in answer.results] == [False, True]
    assert answer.results[1].categories.harassment is True
    assert answer.results[1].category_scores.harassment > 0.5
    assert not answer.results[1].categories.self_harm


async def test_our_own_client_gets_the_very_scores(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    texts = [KIND, RUDE, ""]
    expected = await load_scorer("builtin").score(texts)

    async with ModerationScorer() as scorer:
        found = await scorer.score(texts)

    for mine, theirs in zip(found[:2], expected[:2], strict=True):
        assert not isinstance(mine, Unscored) and not isinstance(theirs, Unscored)
        assert {name: mine[name] for name in ATTRIBUTES} == theirs
    assert isinstance(found[2], Unscored)
