"""Smaller findings: nothing leaks in errors, odd values are refused, and pages survive odd headers."""

import asyncio
import json
import logging
import zlib
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

import evenhand
from evenhand.core import sqlite
from evenhand.core.format import plain_text
from evenhand.core.types import token_count
from evenhand.guards.types import Check, InputRecord
from evenhand.models.openai.wire import parse_generation, parse_reply
from evenhand.models.request import unpack
from evenhand.server.page import _from_json, _to_json  # pyright: ignore[reportPrivateUsage]
from evenhand.server.telemetry.events import Event
from evenhand.web.keys import KeyConfig, new_key
from evenhand.web.site import Site, html
from evenhand.web.site import serve as serve_site
from support.fixtures import Serve
from support.guard_server import Guarding, route
from support.live_page import event
from support.server import completion, reply_with


@pytest.mark.parametrize("place", ["type", "code", "param"])
@pytest.mark.parametrize("text", ["gpu-node-7.internal.example", "db.internal", "/srv/models/llama", "gpu-7:8000"])
async def test_11_error_types_codes_and_parameters_carry_no_hosts_and_paths(
    serve: Serve, guarding: Guarding, place: str, text: str
):
    error = {"message": "No.", "type": "invalid_request_error", "param": None, "code": None} | {place: text}
    behind = await serve(reply_with({"error": error}, 400))
    guard = await guarding(route(behind.url))

    answer = await guard.chat()

    assert answer.status == 400 and text not in answer.text


@pytest.mark.parametrize("param", ["temperature", "messages[0].content", "messages.0.role"])
async def test_11_parameters_of_a_request_are_still_named(serve: Serve, guarding: Guarding, param: str):
    error = {"message": "No.", "type": "invalid_request_error", "param": param, "code": "invalid_value"}
    behind = await serve(reply_with({"error": error}, 400))
    guard = await guarding(route(behind.url))

    told = (await guard.chat()).body["error"]

    assert told["code"] == "invalid_value"
    assert told["param"] == param


def test_11_a_log_probability_that_is_no_number_counts_as_not_given():
    reply = completion("Good day.", logprobs=True)
    payload = json.dumps(reply).replace("-0.1", "NaN").encode()

    assert parse_generation(parse_reply(payload), "openai/x").completions[0].logprobs is None


def test_11_a_usage_of_a_thousand_million_tokens_is_none():
    assert token_count(10**9) == 0
    assert token_count(10**9 - 1) == 10**9 - 1


@pytest.mark.parametrize("evaluators", [[], ["toxicity"]], ids=["passed through", "checked"])
async def test_11_a_negative_usage_is_not_relayed(serve: Serve, guarding: Guarding, evaluators: list[str]):
    reply = completion("Good day.") | {"usage": {"prompt_tokens": -5, "completion_tokens": 3, "total_tokens": -2}}
    behind = await serve(reply_with(reply))
    guard = await guarding(route(behind.url, method="default", evaluators=evaluators))

    assert "-" not in orjson.dumps((await guard.chat()).body["usage"]).decode()


def test_11_the_live_page_reads_input_records_of_other_processes():
    checked = InputRecord("flagged", ("toxicity",), (Check("toxicity", 0.9, 0.5, False),))
    told: Event = event(input=checked)

    assert _from_json(_to_json(told)).input == checked


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"])
def test_11_cells_of_an_export_are_no_formulas(sign: str):
    assert plain_text(f"{sign}SUM(A1)") == f"'{sign}SUM(A1)"
    assert plain_text("5 = 5") == "5 = 5"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:notaport"},
        {"Host": "127.0.0.1:99999999"},
        {"Origin": "http://["},
        {"X-Token": "\udcff\udcfe"},
    ],
    ids=["host", "port", "origin", "token"],
)
async def test_11_pages_answer_odd_headers_with_a_client_error(headers: dict[str, str]):
    async def page(_request: web.Request) -> web.Response:
        return html("Hello.")

    keys: Any = {}
    runner = web.AppRunner(Site([web.get("/", page), web.post("/", page)], keys=keys).app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        for method in ("GET", "POST"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = {"Host": f"127.0.0.1:{port}", "Content-Length": "0", "Connection": "close"} | headers
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"{method} /login HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape"))
            status = int((await reader.readline()).split()[1])
            writer.close()
            assert status < 500
    finally:
        await runner.cleanup()


async def test_11_a_wrong_key_for_a_page_leaves_a_trace_in_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    logger = logging.getLogger("evenhand")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    site = Site([], keys={"reader": KeyConfig(hash=new_key()[1])})
    serving = asyncio.create_task(serve_site(site, 0, address.set_result))

    wrong = {"Authorization": "Bearer evh-wrong"}
    async with aiohttp.ClientSession() as client, client.get(await address, headers=wrong) as response:
        assert response.status == 401
    serving.cancel()
    await asyncio.wait([serving])

    assert "127.0.0.1 sent a wrong API key" in capsys.readouterr().err


def test_08_a_stored_row_does_not_unpack_without_a_limit():
    deflate = zlib.compressobj(9)
    blob = b"".join([*(deflate.compress(b"0" * 2**20) for _ in range(300)), deflate.flush()])

    with pytest.raises(ValueError, match="larger"):
        unpack(blob)


def test_11_files_of_runs_and_caches_are_for_their_user_only(tmp_path: Path):
    sqlite.connect(tmp_path / "run.sqlite").close()

    assert (tmp_path / "run.sqlite").stat().st_mode & 0o077 == 0


def test_11_nobody_else_enters_the_folder_of_a_run(tmp_path: Path):
    evenhand.audit("fake/A", out=tmp_path / "run", limit=2)

    assert (tmp_path / "run" / "run.sqlite").is_file()
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0
