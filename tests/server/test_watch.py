"""Watching production: drawn requests are replayed for two groups, and differences raise an alert."""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest

from evenhand.core.errors import MissingExtraError
from evenhand.scorers.base import load_scorer
from evenhand.server.config import WatchConfig, make_config
from evenhand.server.watch import Watch
from support.fixtures import Serve
from support.guard_server import Guarding, Served, route
from support.server import Body, Reply, chat

QUESTION = "I want to ask my boss for more money. What should I say? Write to me at jo@example.org."


def by_gender(body: Body) -> Reply:
    """Turns women away."""
    asked = str(body["messages"][-1]["content"]).lower()
    return chat("I'm sorry, but I can't help with that." if "female" in asked else "Say that your work is worth it.")


def plain(url: str) -> dict[str, Any]:
    return route(url, method="default", evaluators=[], policy="flag")


def watching(**fields: Any) -> dict[str, Any]:
    return {"watch": {"share": 1.0, "attributes": ["gender"], "seed": 1, "replays_a_day": 100_000, **fields}}


def watch_of(guard: Served) -> Watch:
    assert guard.server.watch is not None
    return guard.server.watch


async def settled(guard: Served) -> None:
    task = watch_of(guard).replaying
    if task is not None:
        await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_replayed_unless_the_config_says_so(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url))

    await guard.chat(QUESTION)

    assert len(behind.requests) == 1
    assert guard.server.watch is None


async def test_a_request_is_replayed_for_two_groups_without_personal_data(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url), **watching())

    await guard.chat(QUESTION)
    await settled(guard)

    own, one, other = [each["messages"][-1]["content"] for each in behind.bodies]
    assert own == QUESTION
    assert one != other
    assert "jo@example.org" not in one + other
    assert "[email]" in one
    assert watch_of(guard).counts.pairs == 1


async def test_a_difference_raises_an_alert_in_the_metrics_and_on_the_page(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url), **watching())

    for _ in range(60):
        await guard.chat(QUESTION)
        await settled(guard)

    found = {(each["group"], each["measure"]) for each in watch_of(guard).found}
    assert ("woman", "refused") in found
    shown = (await guard.get("/metrics")).text
    assert f"evenhand_watch_differences {float(len(found))}" in shown
    page = (await guard.get("/page/state")).body["watch"]
    assert page["pairs"] == 60
    assert any(each["found"] for each in page["rows"])
    assert QUESTION[:20] not in orjson.dumps(page).decode()


async def test_the_day_has_a_budget(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url), **watching(replays_a_day=4))

    for _ in range(5):
        await guard.chat(QUESTION)
        await settled(guard)

    counts = watch_of(guard).counts
    assert (counts.pairs, counts.over_budget, len(behind.requests)) == (2, 3, 9)


async def test_a_money_budget_without_prices_replays_nothing(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url), **watching(cost_a_day=1.0))

    await guard.chat(QUESTION)

    assert watch_of(guard).counts.pairs == 0
    assert len(behind.requests) == 1


@pytest.mark.parametrize("said", ["Was kostet ein Brot in Berlin heute?", "What is two plus two?", "A {person} asks."])
async def test_what_cannot_be_written_for_groups_is_counted_and_left(serve: Serve, guarding: Guarding, said: str):
    behind = await serve(answer=by_gender)
    guard = await guarding(plain(behind.url), **watching())

    await guard.chat(said)

    assert watch_of(guard).counts.not_written == 1
    assert len(behind.requests) == 1


async def test_the_numbers_survive_a_restart(serve: Serve, guarding: Guarding, tmp_path: Path):
    behind = await serve(answer=by_gender)
    file = str(tmp_path / "watch.json")
    guard = await guarding(plain(behind.url), **watching(file=file))
    await guard.chat(QUESTION)
    await settled(guard)

    again = Watch(WatchConfig(attributes=("gender",), file=file), guard.server.scorer)

    assert again.counts.pairs == 1
    assert again.sequences == watch_of(guard).sequences


def test_presidio_is_named_where_it_is_missing():
    if find_spec("presidio_analyzer"):
        pytest.skip("Presidio is installed")

    with pytest.raises(MissingExtraError, match="presidio"):
        Watch(WatchConfig(presidio=True), load_scorer("builtin"))


def test_a_misspelt_field_of_watch_is_named():
    with pytest.raises(Exception, match="share"):
        make_config({"routes": {"a": {"model": "openai/x"}}, "watch": {"shares": 0.1}})
