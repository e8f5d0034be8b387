"""Runs whose requests go into batches, against a real server: waves, failures, expiry, kill -9, nothing paid twice."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from evenhand.core import events
from evenhand.core.errors import UsageError
from evenhand.core.progress import Progress
from evenhand.core.types import Message, Params, Price
from evenhand.models import batch
from evenhand.models.base import ModelOptions
from evenhand.models.budget import Budget, Limits, MeteredModel
from evenhand.models.load import load_model
from evenhand.runs.parts import Settings, paid_prices
from evenhand.runs.plan import make_plan
from support.batches import BatchServer, Row
from support.fixtures import Serve as ServeChat
from support.runs import Workshop
from support.server import refuse

SIZE = 24
"""Samples of the toy benchmark."""
Serve = Callable[..., Awaitable[BatchServer]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "QUIET", 0.04)
    monkeypatch.setattr(batch, "POLL", 0.02)
    monkeypatch.setattr(batch, "LONGEST_POLL", 0.02)


@pytest.fixture
async def batch_server() -> AsyncGenerator[Serve]:
    made: list[BatchServer] = []

    async def serve(answer: Callable[[Row], str | int | None] = lambda _: "A", **options: Any) -> BatchServer:
        made.append(await BatchServer(answer, **options).start())
        return made[-1]

    yield serve
    for each in made:
        await each.stop()


def states(folder: Path, content: bytes) -> bool:
    """Whether the state of some batch holds this."""
    return any(content in each.read_bytes() for each in folder.rglob("*.state.json"))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come")


async def run(workshop: Workshop, server: BatchServer, provider: str = "openai", **fields: Any) -> Progress:
    model = {"spec": f"{provider}/test", "base_url": server.url, "retries": 3}
    settings = {"batch_api": True, **fields.pop("settings", {})}
    return await workshop.run(models=[model], reading="text", settings=settings, **fields)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_all_samples_but_the_first_share_one_batch(workshop: Workshop, batch_server: Serve, provider: str):
    server = await batch_server()

    progress = await run(workshop, server, provider)

    assert progress.statuses == {"graded": SIZE}
    assert len(server.live) == 1
    assert server.sizes() == [SIZE - 1]
    assert set(server.paid.values()) == {1}


async def test_a_method_of_several_rounds_goes_round_by_round(workshop: Workshop, batch_server: Serve):
    server = await batch_server()

    await run(workshop, server, methods=["cot"])

    rounds = {round(len(server.paid) / SIZE)}
    assert rounds == {2}
    assert sum(size >= SIZE - 2 for size in server.sizes()) == 2
    assert len(server.sizes()) <= 4


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_what_failed_or_expired_goes_into_the_next_batch(workshop: Workshop, batch_server: Serve, provider: str):
    seen: dict[bytes, int] = {}

    def answer(body: Row) -> str | int | None:
        key = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        seen[key] = seen.get(key, 0) + 1
        number = sorted(seen).index(key)
        return (None if number % 2 else 500) if seen[key] == 1 and number % 3 == 0 and len(seen) > 1 else "A"

    server = await batch_server(answer)

    progress = await run(workshop, server, provider)

    assert progress.statuses == {"graded": SIZE}
    assert len(server.batches) > 1
    assert set(server.paid.values()) == {1}


async def test_an_account_that_takes_few_at_a_time_gets_smaller_batches(workshop: Workshop, batch_server: Serve):
    server = await batch_server()
    server.most = 8

    progress = await run(workshop, server)

    assert progress.statuses == {"graded": SIZE}
    assert server.sizes() == [23, 11, 5, 5, 5, 5, 3]
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_submission_whose_reply_is_lost_is_not_repeated(workshop: Workshop, batch_server: Serve, provider: str):
    server = await batch_server()
    server.lose = 1

    progress = await run(workshop, server, provider)

    assert progress.statuses == {"graded": SIZE}
    assert len(server.batches) == 1
    assert set(server.paid.values()) == {1}


async def test_answers_in_the_cache_are_not_submitted(workshop: Workshop, batch_server: Serve, tmp_path: Path):
    server = await batch_server()
    cache = {"cache": tmp_path / "cache.sqlite"}
    await run(workshop, server, "openai", folder="first", limit=4, settings=cache)

    await run(workshop, server, "openai", folder="second", settings=cache)

    assert set(server.paid.values()) == {1}
    assert len(server.paid) == SIZE


async def test_calls_in_batches_cost_half(workshop: Workshop, batch_server: Serve):
    server = await batch_server()

    progress = await run(workshop, server, settings={"prices": {"openai/test": Price(1.0, 2.0)}})

    assert progress.spent.cost == pytest.approx(0.5 * progress.spent.calls * (20 * 1.0 + 5 * 2.0) / 1e6)


def test_the_forecast_counts_half_for_models_with_a_batch_api_only():
    fields = {"benchmark": "bbq_builtin", "models": [{"base": "openai/a", "judge": "gemini/b"}]}
    prices = {"openai/a": Price(1.0, 2.0), "gemini/b": Price(1.0, 2.0)}

    found = paid_prices(make_plan(fields).every_model(), Settings(batch_api=True, prices=prices))

    assert found == {"openai/a": Price(0.5, 1.0), "gemini/b": Price(1.0, 2.0)}


async def test_batches_without_a_model_that_takes_them_are_refused(workshop: Workshop):
    workshop.model(lambda _messages, _params: "A")

    with pytest.raises(UsageError, match="none of the models has an endpoint that takes batches"):
        await workshop.run(settings={"batch_api": True})


async def test_any_endpoint_is_reached_through_files(workshop: Workshop, batch_server: Serve, tmp_path: Path):
    server = await batch_server()
    going = asyncio.create_task(run(workshop, server, settings={"batch_api": False, "batch_queue": True}))
    await until(lambda: states(tmp_path, b'"id":"'))
    requests = next((tmp_path / "run").rglob("*.requests.jsonl"))
    rows = [orjson.loads(line) for line in requests.read_bytes().splitlines()]
    assert rows[0]["url"] == "/v1/chat/completions"
    answers = [{"custom_id": row["custom_id"], "response": {"status_code": 200, "body": BODY}} for row in rows]
    requests.with_suffix(".answers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, answers)))

    progress = await going

    assert progress.statuses == {"graded": SIZE}
    assert (server.live, server.batches) == ([], [])


BODY: Row = {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}], "usage": {}}


async def test_several_answers_to_one_request_do_not_hold_up_the_batch(batch_server: Serve, tmp_path: Path):
    server = await batch_server()
    events.counted_activity()
    model = load_model("anthropic/test", ModelOptions(base_url=server.url))
    batch.in_batches(model, tmp_path, queue=False, cached=True, retries=1)

    async with MeteredModel(model, None, Budget(Limits())) as metered:
        found = await asyncio.wait_for(metered.generate([Message("user", "Who?")], Params(n=3)), 30)

    assert [each.text for each in found.completions] == ["A", "A", "A"]
    assert server.sizes() == [2]


@pytest.mark.parametrize("cache", [True, False])
async def test_a_run_that_is_stopped_while_a_batch_is_open_waits_for_the_same_batch(
    workshop: Workshop, batch_server: Serve, tmp_path: Path, cache: bool
):
    server = await batch_server()
    server.hold = True
    how = {"cache": tmp_path / "cache.sqlite"} if cache else {}
    going = asyncio.create_task(run(workshop, server, settings=how))
    await server.has_batches(1)
    await until(lambda: states(tmp_path, b"batch_0"))
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    server.hold = False

    progress = await run(workshop, server, settings={**how, "resume": True})

    assert progress.statuses == {"graded": SIZE}
    assert server.sizes() == [SIZE - 1]
    assert set(server.paid.values()) == {1}


async def test_a_batch_that_was_taken_stays_open_when_the_key_fails_meanwhile(
    workshop: Workshop, batch_server: Serve, tmp_path: Path
):
    server = await batch_server()
    server.locked = True

    await run(workshop, server)
    server.locked = False
    progress = await run(workshop, server, settings={"resume": True, "retry_failed": True})

    assert progress.statuses == {"graded": SIZE}
    assert server.sizes() == [SIZE - 1]
    assert set(server.paid.values()) == {1}


async def test_an_endpoint_that_never_worked_ends_the_wait(workshop: Workshop, serve: ServeChat):
    broken = await serve(refuse("overloaded", status=500))
    model = {"spec": "openai/test", "retries": 0, "provider": "openai"}
    plan = {"reading": "text", "limit": 4, "models": [{**model, "base_url": broken.url}]}

    async with asyncio.timeout(30):
        progress = await workshop.run("r", settings={"batch_api": True}, **plan)

    assert progress.statuses == {"failed": 4}
    assert not states(workshop.directory, b'"failed"')


START = """
import sys
from evenhand.models import batch
batch.QUIET, batch.POLL = 0.05, 0.05
from evenhand.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


async def started(server: BatchServer, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", START, *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@pytest.mark.processes
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_kill_9_while_a_batch_is_open_pays_nothing_twice(batch_server: Serve, tmp_path: Path, provider: str):
    server = await batch_server()
    server.hold = True
    out = str(tmp_path / "run")
    model = ["--model", f"{provider}/test", "--base-url", server.url, "--no-cache", "--batch-api"]
    plan = ["--benchmark", "bbq_builtin", "--limit", "10", "--reading", "text", "--method", "cot", "--out", out]
    process = await started(server, "run", *model, *plan)
    await server.has_batches(1)
    process.kill()  # at once: its id may not be stored yet
    await process.communicate()
    server.hold = False

    process = await started(server, "resume", out)
    output, _ = await process.communicate()

    assert process.returncode == 0, output.decode()
    assert b"10 of 10 done" in output or b"graded" in output
    assert set(server.paid.values()) == {1}
