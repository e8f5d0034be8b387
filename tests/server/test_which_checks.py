"""Which checks run, where people look for it: in the record, at /healthz, on the live page and in the terminal."""

import json
from pathlib import Path

from evenhand.server.config import make_config
from evenhand.server.page import LivePage
from evenhand.server.process import ServeOptions, check
from evenhand.server.telemetry.events import Events
from support.fixtures import Serve
from support.guard_server import Guarding
from support.guarding import KIND, RUDE, by_turn
from support.server import chat


def route(url: str, **fields: object) -> dict[str, object]:
    return {"model": "openai/m", "base_url": url, "key_env": "", **fields}


async def test_every_record_and_the_health_page_say_which_checks_run(serve: Serve, guarding: Guarding, tmp_path: Path):
    behind = await serve(answer=by_turn(KIND))
    guard = await guarding(route(behind.url), audit={"file": str(tmp_path / "audit.sqlite")})

    whole, streamed = await guard.chat(), await guard.chat(stream=True)

    said = whole.body["evenhand"]["checks"]
    assert said["not_run"] == ["bias"]
    assert said["run"][0].startswith("toxicity (builtin ")
    assert '"not_run":["bias"]' in streamed.text
    assert (await guard.get("/healthz")).body == {"status": "alive", "checks": [said]}
    assert guard.event.checks is not None and guard.event.checks.not_run == ("bias",)


async def test_health_names_neither_routes_nor_models(serve: Serve, guarding: Guarding):
    behind = await serve(chat(KIND))
    guard = await guarding(route(behind.url, evaluators=["toxicity", "bias"], judge="openai/secret-judge"))

    text = (await guard.get("/healthz")).text

    assert "bias (a judge)" in text
    assert "secret" not in text and "guarded" not in text


async def test_an_answer_that_could_not_be_improved_is_withheld_where_the_route_says_so(
    serve: Serve, guarding: Guarding
):
    behind = await serve(answer=by_turn(RUDE))
    guard = await guarding(route(behind.url, on_unrevised="block"))

    answer = await guard.chat()

    assert answer.headers["X-Evenhand-Action"] == "blocked"
    assert RUDE not in answer.text


async def test_what_is_returned_and_still_fails_is_counted_by_route(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_turn(RUDE))
    guard = await guarding(route(behind.url))

    await guard.chat()

    state = (await guard.get("/page/state")).body
    assert state["routes"][0]["failing"] == 1
    assert state["checks"][0]["route"] == "guarded"
    assert state["checks"][0]["not_run"] == ["bias"]


def test_the_page_knows_the_checks_before_the_first_request():
    checks = check(ServeOptions(make_config({"routes": {"a": {"model": "fake/Yes."}}})))

    assert json.loads(json.dumps(LivePage(Events(), lambda: checks).state()["checks"]))[0]["not_run"] == ["bias"]
