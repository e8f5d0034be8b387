"""Scoring given texts: by a fake, by an endpoint that echoes, and by the engines."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evenhand.core.errors import BadResponseError, UsageError
from evenhand.core.types import Completion, Message, Params, Price, TokenLogprob
from evenhand.models.base import ModelOptions, check_request, log_likelihood
from evenhand.models.budget import Budget, Limits, MeteredModel
from evenhand.models.cache import CachedModel, ResponseCache
from evenhand.models.fake import FunctionModel
from evenhand.models.load import load_model
from evenhand.models.openai import parse
from evenhand.models.request import request_key

TEXTS = ("The nurse came in.", "The pilot came in.")


def by_length(messages: Sequence[Message], params: Params) -> Completion:
    """Each word costs as many nats as it has letters."""
    words = params.given[0].split(" ")
    tokens = [f" {word}" if place else word for place, word in enumerate(words)]
    return Completion(params.given[0], logprobs=tuple(TokenLogprob(each, -float(len(each))) for each in tokens))


def scoring_model() -> FunctionModel:
    return FunctionModel(by_length, features=("likelihood",))


def test_a_fake_is_asked_for_each_text():
    generation = asyncio.run(scoring_model().generate((), Params(given=TEXTS)))

    assert [each.text for each in generation.completions] == list(TEXTS)
    assert generation.usage.calls == 1
    assert generation.usage.completion_tokens == 0


def test_tokens_of_the_condition_do_not_count():
    tokens = [TokenLogprob("The", -1.0), TokenLogprob(" nurse", -2.0), TokenLogprob(" left", -4.0)]

    assert log_likelihood(tokens) == (-7.0, 3)
    assert log_likelihood(tokens, len("The nurse")) == (-4.0, 1)


def test_a_model_that_cannot_score_texts_says_which_can():
    with pytest.raises(UsageError, match=r"cannot score given texts.*echo=true"):
        check_request(FunctionModel(lambda *_: "x"), Params(given=TEXTS))


def test_the_texts_are_part_of_the_cache_key_and_old_keys_stay():
    key = request_key(b"", (), Params(given=TEXTS))

    assert key != request_key(b"", (), Params(given=TEXTS[::-1]))
    assert key != request_key(b"", (), Params())
    # The key of a plain request, as it was before texts could be given.
    assert request_key(b"m", (Message("user", "x"),), Params()).hex()[:16] == PLAIN_KEY


PLAIN_KEY = "472de1b2b0df58ea"


def test_a_scored_text_comes_from_the_cache_and_costs_what_was_read(tmp_path):
    model = scoring_model()
    budget = Budget(Limits())
    cached = CachedModel(MeteredModel(model, Price(1_000_000.0, 5.0), budget), ResponseCache(tmp_path / "cache.db"))

    first = asyncio.run(cached.generate((), Params(given=TEXTS)))
    again = asyncio.run(cached.generate((), Params(given=TEXTS)))

    assert len(model.requests) == 1
    assert again.cached
    assert again.completions == first.completions
    assert budget.spent.cost == first.usage.prompt_tokens > 0


def echoed(texts: Sequence[str], special: str = "") -> dict[str, object]:
    """The reply of a server that adds a special token in front and generates one token behind."""
    choices: list[dict[str, object]] = []
    for index, text in enumerate(texts):
        words = text.split(" ")
        tokens = [special] * bool(special) + [words[0][:1], words[0][1:], *(f" {each}" for each in words[1:]), " Then"]
        values = [None, *(-float(place) for place in range(1, len(tokens)))]
        choices.append({"index": index, "logprobs": {"tokens": tokens, "token_logprobs": values}})
    return {"choices": choices[::-1], "usage": {"prompt_tokens": 12, "completion_tokens": 2}}


@pytest.mark.parametrize("special", ["", "<|begin|>"])
def test_an_echo_is_read_without_what_comes_before_and_behind(special: str):
    generation = parse(echoed([f"\n{text}" for text in TEXTS], special), TEXTS, "openai/m")

    tokens = generation.completions[0].logprobs or ()
    assert [each.token for each in tokens] == ["The", " nurse", " came", " in."]
    assert [each.logprob for each in tokens] == [value - bool(special) for value in (-1.0, -2.0, -3.0, -4.0)]
    assert generation.usage.prompt_tokens == 12


def test_an_endpoint_scores_texts_and_one_that_cannot_says_so():
    seen: list[dict[str, object]] = []

    async def completions(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body)
        reply = echoed(body["prompt"])
        if body["model"] == "mute":
            reply = {"choices": [{"index": 0, "text": "x", "logprobs": None}] * 2}
        return web.json_response(reply)

    async def scored(name: str):
        app = web.Application()
        app.router.add_post("/v1/completions", completions)
        async with TestServer(app) as server:
            options = ModelOptions(base_url=str(server.make_url("/v1")), retries=0, extra={"echo": True})
            async with load_model(f"openai/{name}", options) as model:
                assert "likelihood" in model.features
                return await model.generate((), Params(given=TEXTS))

    generation = asyncio.run(scored("m"))
    assert [each.text for each in generation.completions] == list(TEXTS)
    assert seen[0]["prompt"] == [f"\n{text}" for text in TEXTS]
    with pytest.raises(BadResponseError, match="remove echo=true"):
        asyncio.run(scored("mute"))
    assert json.dumps(seen[0])


def test_endpoints_score_no_texts_unless_told():
    model = load_model("openai/m", ModelOptions(base_url="http://127.0.0.1:1/v1"))

    assert "likelihood" not in model.features


@pytest.mark.weights
def test_both_engines_give_the_same_likelihoods():
    """One file in llama.cpp and in transformers; the second text has two tokens that fit at one place."""
    from evenhand.models import weights

    texts = ("The poor are really ignorant about money.", 'I like "cats", and i think she is naïve & ignorant 🙂.')

    async def scored(spec: str) -> list[tuple[TokenLogprob, ...]]:
        async with load_model(spec) as model:
            generation = await model.generate((), Params(given=texts))
        return [each.logprobs or () for each in generation.completions]

    local = asyncio.run(scored("local/builtin"))
    transformers = asyncio.run(scored(f"hf/{weights.find('builtin')}"))
    for ours, theirs in zip(local, transformers, strict=True):
        assert [each.token for each in ours] == [each.token for each in theirs]
        assert [each.logprob for each in ours] == pytest.approx([each.logprob for each in theirs], abs=0.5)
