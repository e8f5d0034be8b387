"""A judge at another endpoint than the model's: each gets its own key, and never the other's."""

from typing import Any

import pytest

import evenhand
from evenhand.core.errors import PlanError
from evenhand.server.config import make_config
from support.fixtures import Serve
from support.guard_server import CLEAN, Guarding, route
from support.server import ChatServer, chat

VERDICT = '{"harm": 0, "harm_reason": ""}'
ASKED = [{"role": "user", "content": "Hello?"}]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MODEL_KEY", "JUDGE_KEY"):
        monkeypatch.setenv(name, f"sk-{name.lower()}")


def judged(url: str, **fields: Any) -> dict[str, Any]:
    return route(url, method="default", evaluators=["bias"], judge="openai/critic", key_env="MODEL_KEY", **fields)


def keys_seen(server: ChatServer) -> set[str]:
    return {each.headers.get("Authorization", "none") for each in server.requests}


@pytest.mark.parametrize(
    ("key", "sent"), [({"judge_key_env": "JUDGE_KEY"}, "Bearer sk-judge_key"), ({}, "none")], ids=["its own", "none"]
)
async def test_each_endpoint_gets_its_own_key_alone(serve: Serve, guarding: Guarding, key: dict[str, str], sent: str):
    model, judge = await serve(chat(CLEAN)), await serve(chat(VERDICT))
    options = {"extra": {"extra_body": {"top_k": 5}}}
    guard = await guarding(judged(model.url, judge_base_url=judge.url, **key, **options))

    answer = await guard.chat()

    assert answer.body["choices"][0]["message"]["content"] == CLEAN
    assert answer.body["evenhand"]["before"][0]["score"] == 0
    assert [each["model"] for each in (*model.bodies, *judge.bodies)] == ["behind", "critic"]
    assert (keys_seen(model), keys_seen(judge)) == ({"Bearer sk-model_key"}, {sent})
    assert "top_k" in model.bodies[0] and "top_k" not in judge.bodies[0]


@pytest.mark.parametrize(
    ("key", "sent"), [({}, "Bearer sk-model_key"), ({"judge_key_env": "JUDGE_KEY"}, "Bearer sk-judge_key")]
)
async def test_at_one_endpoint_the_judge_may_have_a_key_of_its_own(
    serve: Serve, guarding: Guarding, key: dict[str, str], sent: str
):
    behind = await serve(chat(CLEAN), chat(VERDICT))
    guard = await guarding(judged(behind.url, **key))

    await guard.chat()

    assert [each.headers["Authorization"] for each in behind.requests] == ["Bearer sk-model_key", sent]


async def test_the_judges_complaint_holds_no_key(serve: Serve, guarding: Guarding):
    async def telling(request: Any) -> Any:
        from aiohttp import web

        return web.json_response({"error": {"message": f"bad {request.headers['Authorization']}"}}, status=400)

    model, judge = await serve(chat(CLEAN)), await serve(telling)
    guard = await guarding(judged(model.url, judge_base_url=judge.url, judge_key_env="JUDGE_KEY"))

    answer = await guard.chat()

    assert answer.body["evenhand"]["before"][0]["problem"]
    assert "sk-" not in answer.text


async def test_the_library_takes_options_for_the_judge(serve: Serve):
    model, judge = await serve(chat(CLEAN)), await serve(chat(VERDICT))
    reach = evenhand.ModelOptions(base_url=model.url, extra={"key_env": "MODEL_KEY"})
    critic = evenhand.ModelOptions(base_url=judge.url, extra={"key_env": "JUDGE_KEY"})

    async with evenhand.guard(
        "openai/behind",
        method="default",
        evaluators=("bias",),
        judge="openai/critic",
        options=reach,
        judge_options=critic,
    ) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (CLEAN, "passed")
    assert (keys_seen(model), keys_seen(judge)) == ({"Bearer sk-model_key"}, {"Bearer sk-judge_key"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"judge_base_url": "http://127.0.0.1:1/v1"}, "judge_base_url needs a judge"),
        ({"judge_key_env": "JUDGE_KEY"}, "judge_key_env needs a judge"),
        ({"judge_price": {"input": 1, "output": 1}}, "judge_price needs a judge"),
        ({"judge": "openai/one", "judge_price": {"input": 1, "output": 1}}, "give them the same price"),
    ],
)
def test_fields_of_a_judge_that_make_no_sense_are_refused(fields: dict[str, Any], words: str):
    with pytest.raises(PlanError, match=words):
        make_config({"routes": {"one": {"model": "openai/one", **fields}}})
