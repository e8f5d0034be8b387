"""The older completions form."""

import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route, streamed
from support.server import chat


async def test_a_prompt_is_answered_through_the_method(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/completions", {"model": "guarded", "prompt": "Say:", "max_tokens": 9})

    assert answer.body["object"] == "text_completion"
    assert answer.body["choices"][0]["text"] == CLEAN
    assert answer.body["evenhand"]["action"] == "revised"
    assert behind.bodies[0]["messages"] == [{"role": "user", "content": "Say:"}]
    assert behind.bodies[0]["max_tokens"] == 9
    assert "prompt" not in behind.bodies[0]


async def test_several_prompts_and_answers_keep_their_order(serve: Serve, guarding: Guarding):
    behind = await serve(answer=lambda body: chat(f"{body['messages'][0]['content']} is fine."))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/completions", {"model": "guarded", "prompt": ["Ann", "Bea"], "n": 2, "echo": True})

    texts = [choice["text"] for choice in answer.body["choices"]]
    assert texts == ["AnnAnn is fine."] * 2 + ["BeaBea is fine."] * 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "prompt must be"),
        ({"prompt": [1, 2]}, "prompt must be"),
        ({"prompt": []}, "prompt must be"),
        ({"prompt": "a", "suffix": "b"}, "suffix is not supported here"),
        ({"prompt": "a", "logprobs": 3}, "logprobs is not supported here"),
        ({"prompt": ["a"] * 5, "n": 4}, "at most 8 texts"),
        ({"prompt": "a", "echo": True, "stream": True}, "echo cannot be streamed"),
    ],
)
async def test_what_cannot_be_carried_over_is_refused(serve: Serve, guarding: Guarding, fields: dict, words: str):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/completions", {"model": "guarded", **fields})

    assert answer.status == 400
    assert words in answer.body["error"]["message"]


async def test_completions_can_be_streamed(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open."]))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/completions", {"model": "guarded", "prompt": "Go on:", "stream": True})

    assert '"object":"text_completion"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
