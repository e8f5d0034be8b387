"""comments:analyze: Perspective's form from the client's side, its errors, and the scorer that speaks it."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import aiohttp
import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.types import Unscored
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.scorers.perspective import PerspectiveScorer
from evenhand.server.access import auth_middleware
from evenhand.server.config import LimitsConfig
from evenhand.server.limits import ServerLimits
from evenhand.server.scoring_api import scoring_routes
from evenhand.server.scoring_api.perspective import MOST_SPANS, PATH, google_errors, sentences
from evenhand.server.ticket import Ticket
from evenhand.web.keys import Auth, KeyConfig, new_key
from support.small_app import serving

KIND, RUDE = "Have a lovely day in the park.", "You are a stupid worthless idiot."
TOXICITY: dict[str, Any] = {"TOXICITY": {}}


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, list[Ticket]]]:
    async with serving(scoring_routes(load_scorer("builtin")), google_errors()) as found:
        yield found


@pytest.fixture
def url(served: tuple[str, list[Ticket]]) -> str:
    return served[0]


async def ask(url: str, body: Any, **options: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url + PATH, json=body, **options) as response:
        return response.status, await response.json()


def comment(text: Any = RUDE, **fields: Any) -> dict[str, Any]:
    return {"comment": {"text": text}, "requestedAttributes": TOXICITY, **fields}


async def test_the_answer_has_perspectives_form(url: str):
    (own,) = await load_scorer("builtin").score([RUDE])
    assert not isinstance(own, Unscored)

    status, answer = await ask(
        url,
        {
            "comment": {"text": RUDE, "type": "PLAIN_TEXT"},
            "languages": ["en"],
            "requestedAttributes": {"TOXICITY": {}, "INSULT": {"scoreType": "PROBABILITY"}},
            "clientToken": "mine-7",
            "sessionId": "ignored",
        },
    )

    def scored(name: str) -> dict[str, Any]:
        score = {"value": own[name], "type": "PROBABILITY"}
        return {"spanScores": [{"begin": 0, "end": len(RUDE), "score": score}], "summaryScore": score}

    assert status == 200
    assert answer == {
        "attributeScores": {"TOXICITY": scored("toxicity"), "INSULT": scored("insult")},
        "languages": ["en"],
        "clientToken": "mine-7",
    }


async def test_sentences_are_scored_apart_when_asked_for(url: str):
    text = f"{KIND} {RUDE}"

    _, answer = await ask(url, comment(text, spanAnnotations=True))

    spans = answer["attributeScores"]["TOXICITY"]["spanScores"]
    assert [text[span["begin"] : span["end"]] for span in spans] == [KIND, RUDE]
    assert spans[0]["score"]["value"] < 0.3 < spans[1]["score"]["value"]


async def test_a_sentence_without_words_has_no_span(url: str):
    _, answer = await ask(url, comment(f"{KIND} 123. {RUDE}", spanAnnotations=True))

    assert len(answer["attributeScores"]["TOXICITY"]["spanScores"]) == 2


def test_the_number_of_spans_is_bounded():
    text = "No. " * 5_000

    spans = sentences(text)

    assert len(spans) == MOST_SPANS
    assert spans[-1][1] == len(text)
    assert sentences("One line\n\n  Another one? Yes…  ") == [(0, 8), (12, 24), (25, 29)]


async def test_scores_below_the_threshold_are_not_sent(url: str):
    asked = {"TOXICITY": {"scoreThreshold": 0.5}, "THREAT": {"scoreThreshold": 0.99}}

    _, answer = await ask(url, comment(requestedAttributes=asked))

    assert set(answer["attributeScores"]) == {"TOXICITY"}


async def test_an_experimental_attribute_is_answered_as_the_plain_one(url: str):
    asked = {"TOXICITY": {}, "TOXICITY_EXPERIMENTAL": {}}

    _, answer = await ask(url, comment(requestedAttributes=asked))

    scores = answer["attributeScores"]
    assert scores["TOXICITY"] == scores["TOXICITY_EXPERIMENTAL"]


class Fixed(Scorer):
    """Gives what it is told to, and notes what texts answer."""

    name: ClassVar[str] = "fixed"
    version = "1"
    attributes = ("toxicity", "hate/threatening")

    def __init__(self, result: Scores | Unscored | Exception) -> None:
        self.result = result
        self.contexts: Sequence[str] | None = None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        self.contexts = contexts
        if isinstance(self.result, Exception):
            raise self.result
        return [self.result] * len(texts)


async def test_any_scorer_answers_under_its_own_names_in_capitals():
    scorer = Fixed({"toxicity": 0.25, "hate/threatening": 0.5})
    asked = comment(requestedAttributes={"HATE_THREATENING": {}}, context={"entries": [{"text": "Before"}, {}]})

    async with serving(scoring_routes(scorer), google_errors()) as (url, _):
        _, answer = await ask(url, asked)

    assert answer["attributeScores"]["HATE_THREATENING"]["summaryScore"]["value"] == 0.5
    assert scorer.contexts == ["Before"]


@pytest.mark.parametrize(
    "result",
    [Unscored("the judge gave no number"), EndpointError("https://x/?key=secret is down"), {"hate/threatening": 0.5}],
    ids=["unscored", "unreachable", "left out"],
)
async def test_a_scorer_that_fails_may_be_asked_again_and_is_never_a_zero(result: Any):
    async with serving(scoring_routes(Fixed(result)), google_errors()) as (url, _):
        status, answer = await ask(url, comment())

    assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE")
    assert "attributeScores" not in answer
    assert "secret" not in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (comment(""), "COMMENT_EMPTY", "Comment must be non-empty."),
        (comment(None), "COMMENT_EMPTY", "Comment must be non-empty."),
        ({"requestedAttributes": TOXICITY}, "COMMENT_EMPTY", "Comment must be non-empty."),
        (comment("ä" * 10_241), "COMMENT_TOO_LONG", "Comment text too long."),
        (comment(requestedAttributes={}), "NO_REQUESTED_ATTRIBUTES", "Missing requested_attributes"),
        ({"comment": {"text": RUDE}}, "NO_REQUESTED_ATTRIBUTES", "Missing requested_attributes"),
        (comment(requestedAttributes={"FLIRTATION": {}}), "INVALID_REQUEST", "Unknown requested attribute: FLIRTATION"),
        (
            comment(languages=["de", "fr"]),
            "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE",
            "Attribute TOXICITY does not support request languages: de, fr",
        ),
        (comment("Привет, как дела?"), "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE", "does not support"),
        (comment("123 456"), "LANGUAGE_DETECTION_FAILED", "Unable to detect language"),
        (comment(languages="en"), "INVALID_REQUEST", "languages must be a list"),
        (comment(clientToken=5), "INVALID_REQUEST", "clientToken must be a string"),
        ({**comment(), "comment": {"text": RUDE, "type": "HTML"}}, "INVALID_REQUEST", "only 'PLAIN_TEXT'"),
        (
            comment(requestedAttributes={"THREAT": {"scoreType": "RANK"}}),
            "INVALID_REQUEST",
            "Requested score type RANK is not supported by attribute THREAT",
        ),
        (comment(requestedAttributes={"THREAT": {"scoreThreshold": "x"}}), "INVALID_REQUEST", "must be a number"),
    ],
)
async def test_errors_are_perspectives_own(url: str, body: Any, kind: str, words: str):
    status, answer = await ask(url, body)

    error = answer["error"]
    assert (status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert words in error["message"]
    assert error["details"][0]["errorType"] == kind
    assert error["details"][0]["@type"] == "type.googleapis.com/google.commentanalyzer.v1alpha1.Error"


async def test_what_is_no_json_is_refused_in_googles_form(url: str):
    async with aiohttp.ClientSession() as session, session.post(url + PATH, data=b"{") as response:
        assert response.status == 400
        assert (await response.json())["error"]["status"] == "INVALID_ARGUMENT"


async def test_a_text_that_is_not_to_be_stored_is_not_noted(served: tuple[str, list[Ticket]]):
    url, tickets = served

    await ask(url, comment(KIND))
    await ask(url, comment(RUDE, doNotStore=True))

    assert [ticket.prompt for ticket in tickets] == [KIND, ""]


async def test_keys_and_limits_refuse_in_googles_form_too():
    key, digest = new_key()
    auth = Auth({"team": KeyConfig(hash=digest, may=("score",), per_minute=6)}, "127.0.0.1")
    parts = (google_errors(), auth_middleware(lambda: auth), ServerLimits(LimitsConfig()).middleware())
    async with serving(scoring_routes(load_scorer("builtin")), *parts) as (url, _):
        missing = await ask(url, comment())
        wrong = await ask(url, comment(), params={"key": "wrong"})
        right = await ask(url, comment(), params={"key": key})
        again = await ask(url, comment(), params={"key": key})

    assert (missing[0], missing[1]["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert (wrong[0], wrong[1]["error"]["details"][0]["reason"]) == (400, "API_KEY_INVALID")
    assert right[0] == 200
    assert (again[0], again[1]["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")


async def test_our_own_client_gets_the_very_scores(monkeypatch: pytest.MonkeyPatch):
    key, digest = new_key()
    auth = Auth({"team": KeyConfig(hash=digest, may=("score",))}, "127.0.0.1")
    texts = [KIND, RUDE, "Привет, как дела?", ""]
    async with serving(scoring_routes(load_scorer("builtin")), google_errors(), auth_middleware(lambda: auth)) as (
        url,
        _,
    ):
        monkeypatch.setenv("PERSPECTIVE_URL", f"{url}/v1alpha1")
        monkeypatch.setenv("PERSPECTIVE_RATE", "1000")
        monkeypatch.setenv("PERSPECTIVE_API_KEY", key)
        async with PerspectiveScorer() as scorer:
            found = await scorer.score(texts)
        monkeypatch.setenv("PERSPECTIVE_API_KEY", "wrong")
        async with PerspectiveScorer() as scorer:
            with pytest.raises(EndpointError, match="PERSPECTIVE_API_KEY"):
                await scorer.score([KIND])

    assert found[:2] == await load_scorer("builtin").score(texts[:2])
    assert [isinstance(each, Unscored) for each in found] == [False, False, True, True]
    assert "language" in found[2].reason  # pyright: ignore[reportAttributeAccessIssue]


async def test_googles_client_library_finds_the_method(url: str):
    async with aiohttp.ClientSession() as session:
        where = f"{url}/$discovery/rest?version=v1alpha1"
        async with session.get(where, headers={"X-Forwarded-Proto": "https"}) as response:
            document = await response.json()

    assert document["rootUrl"] == url.replace("http", "https") + "/"
    assert document["resources"]["comments"]["methods"]["analyze"]["path"] == "v1alpha1/comments:analyze"
