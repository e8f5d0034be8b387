"""A server as a process of its own: it starts, reloads, and ends without losing a request."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from evenhand.server.telemetry.audit import verify_audit
from evenhand.web.keys import new_key
from support.fixtures import Serve
from support.guard_server import CLEAN, route, until
from support.redis_server import redis_server
from support.server import ChatServer, chat

Start = Callable[..., Awaitable["Process"]]
ASKED = {"model": "guarded", "messages": [{"role": "user", "content": "Hello?"}]}


class Process:
    """`evenhand serve`, with its address and what it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, greeting: str) -> None:
        self.process = process
        self.greeting = greeting
        self.url = re.findall(r"http://[\d.:]+", greeting)[0]

    async def line(self, words: str) -> str:
        """The next line of the log with these words."""
        assert self.process.stderr is not None
        while text := (await self.process.stderr.readline()).decode():
            if words in text:
                return text
        raise AssertionError(f"the log ended without {words!r}")

    async def ended(self) -> int:
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    running: list[asyncio.subprocess.Process] = []

    async def begin(*arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenhand", "serve", "--port", "0", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
        running.append(process)
        assert process.stdout is not None
        greeting = ""
        while "Try:" not in greeting:
            line = (await process.stdout.readline()).decode()
            assert line, (await process.communicate())[1].decode()
            greeting += line
        return Process(process, greeting)

    yield begin
    for each in running:
        if each.returncode is None:
            each.kill()
            await each.communicate()


def write(file: Path, **config: Any) -> Path:
    file.write_text(json.dumps(config))
    return file


async def ask(session: aiohttp.ClientSession, server: Process) -> tuple[int, Any]:
    async with session.post(f"{server.url}/v1/chat/completions", json=ASKED) as reply:
        return reply.status, await reply.json()


async def test_flags_make_a_route_and_the_greeting_teaches(start: Start, serve: Serve):
    behind = await serve(chat(CLEAN))
    server = await start("--model", "openai/behind", "--base-url", behind.url, "--name", "guarded")

    async with aiohttp.ClientSession() as session:
        status, body = await ask(session, server)

    assert (status, body["choices"][0]["message"]["content"]) == (200, CLEAN)
    assert "curl" in server.greeting
    assert "guarded: openai/behind through stardtox, policy revise" in server.greeting


async def test_a_profile_is_what_a_route_is_deployed_with(start: Start, serve: Serve, tmp_path: Path):
    behind = await serve(chat(CLEAN))
    (tmp_path / "shots.yaml").write_text("- {user: 'Hello?', assistant: 'Good day.'}\n")
    (tmp_path / "evenhand.toml").write_text(
        '[profiles.production]\nsystem = "Be brief."\nhistory = "shots.yaml"\n'
        'stop = "END"\ntemperature = 0.3\nmax_tokens = 77\n'
    )
    flags = ("--model", "openai/behind", "--base-url", behind.url, "--name", "guarded")
    server = await start(*flags, "--profile", "production", "--system", "Be kind.")
    messages = [{"role": "user", "content": "Hi?"}]

    async with aiohttp.ClientSession() as session:
        await ask(session, server)
        own = {"model": "guarded", "messages": messages, "temperature": 1, "max_completion_tokens": 5}
        async with session.post(f"{server.url}/v1/chat/completions", json=own) as reply:
            assert reply.status == 200

    first, second = behind.bodies
    assert [each["content"] for each in first["messages"]][:3] == ["Be kind.", "Hello?", "Good day."]
    assert (first["temperature"], first["stop"], first["max_tokens"]) == (0.3, ["END"], 77)
    assert (second["temperature"], second["stop"], "max_tokens" in second) == (1, ["END"], False)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
async def test_sigterm_under_load_loses_nothing(start: Start, serve: Serve, workers: int):
    waiting = asyncio.Event()

    async def slow(request):
        await waiting.wait()
        return await chat(CLEAN)(request)

    behind = await serve(slow)
    flags = ("--model", "openai/behind", "--base-url", behind.url, "--name", "guarded", "--workers", str(workers))
    server = await start(*flags)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        asked = [asyncio.ensure_future(ask(session, server)) for _ in range(50)]
        await behind.has_seen(50)
        server.process.send_signal(signal.SIGTERM)
        for _ in range(workers):
            await server.line("No new requests")
        status, refused = await ask(session, server)
        waiting.set()
        answers = await asyncio.gather(*asked)

    assert (status, refused["error"]["code"]) == (503, "shutting_down")
    assert [status for status, _ in answers] == [200] * 50
    assert all(body["choices"][0]["message"]["content"] == CLEAN for _, body in answers)
    assert await server.ended() == 0


@pytest.mark.processes
async def test_a_second_signal_ends_it_at_once(start: Start, serve: Serve):
    async def never(request):
        await asyncio.Event().wait()

    behind = await serve(never)
    server = await start("--model", "openai/behind", "--base-url", behind.url, "--name", "guarded")

    async with aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(ask(session, server))
        await behind.has_seen(1)
        server.process.send_signal(signal.SIGINT)
        await server.line("Shutting down with 1")
        server.process.send_signal(signal.SIGINT)
        assert await server.ended() == 1
        with pytest.raises(aiohttp.ClientError):
            await asked


async def reloaded_from(behind: ChatServer, new: ChatServer, start: Start, tmp_path: Path) -> tuple[Process, Path]:
    file = write(tmp_path / "guard.yaml", routes={"guarded": route(behind.url)}, log={"requests": False})
    server = await start("--config", str(file))
    write(file, routes={"guarded": route(new.url)}, log={"requests": False})
    return server, file


@pytest.mark.processes
@pytest.mark.parametrize("how", ["file", "signal", "request"])
async def test_the_config_is_read_again(start: Start, serve: Serve, tmp_path: Path, how: str):
    old, new = await serve(chat("Old.")), await serve(chat("New."))
    server, _ = await reloaded_from(old, new, start, tmp_path)

    async with aiohttp.ClientSession() as session:
        if how == "request":
            async with session.post(f"{server.url}/admin/reload") as reply:
                assert await reply.json() == {"reloaded": True, "needs_restart": []}
        elif how == "signal":
            server.process.send_signal(signal.SIGHUP)
            await server.line("Config reloaded")
        else:
            await server.line("Config reloaded")
        _, body = await ask(session, server)

    assert body["choices"][0]["message"]["content"] == "New."


@pytest.mark.processes
async def test_a_bad_config_is_refused_and_the_old_one_stays(start: Start, serve: Serve, tmp_path: Path):
    behind = await serve(chat(CLEAN))
    file = write(tmp_path / "guard.yaml", routes={"guarded": route(behind.url)})
    server = await start("--config", str(file))
    write(file, routes={"guarded": route(behind.url, method="nothing")})

    async with aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}/admin/reload") as reply:
            refused = await reply.json()
        status, _ = await ask(session, server)

    assert "no method named 'nothing'" in refused["error"]["message"]
    assert status == 200
    assert "is ignored: " in await server.line("The new config is not valid")


async def test_a_port_that_is_taken_is_told(start: Start, serve: Serve, tmp_path: Path):
    behind = await serve(chat(CLEAN))
    port = behind.url.split(":")[2].removesuffix("/v1")

    with pytest.raises(AssertionError, match=r"Cannot listen on 127\.0\.0\.1 port"):
        await start("--model", "fake/x", "--port", port)


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_two_servers_do_not_write_one_audit_file(start: Start, tmp_path: Path, workers: str):
    routes = {"guarded": {"model": "fake/Good day.", "method": "default", "evaluators": []}}
    config = write(tmp_path / "guard.yaml", routes=routes, audit={"file": str(tmp_path / "audit.sqlite")})
    first = await start("--config", str(config), "--workers", workers)

    with pytest.raises(AssertionError, match=r"^evenhand: Another server writes the audit file .*; name another file"):
        await start("--config", str(config), "--workers", workers)

    first.process.send_signal(signal.SIGTERM)
    assert await first.ended() == 0
    for file in [*tmp_path.glob("audit*.sqlite")]:  # noqa: ASYNC240
        assert (verify_audit(file).crashes, verify_audit(file).problems) == (0, [])


@pytest.mark.processes
async def test_a_worker_that_dies_is_replaced(start: Start, serve: Serve):
    behind = await serve(chat(CLEAN))
    flags = ("--model", "openai/behind", "--base-url", behind.url, "--name", "guarded", "--workers", "2")
    server = await start(*flags)
    async with aiohttp.ClientSession() as session:
        first, second = _children(server.process.pid)
        os.kill(first, signal.SIGKILL)
        await until(lambda: len({*_children(server.process.pid)} - {first, second}) == 1)
        status, _ = await ask(session, server)
        async with session.get(f"{server.url}/metrics") as reply:
            counted = await reply.text()

    assert status == 200
    assert re.search(r"evenhand_requests_total\{.*\} 1\.0", counted)
    server.process.send_signal(signal.SIGTERM)
    await server.ended()


@pytest.mark.processes
async def test_a_worker_that_is_replaced_does_not_bring_removed_keys_back(start: Start, tmp_path: Path):
    (_, old), (key, new) = new_key(), new_key()
    routes = {"guarded": {"model": "fake/Good day.", "method": "default"}}
    file = write(tmp_path / "guard.yaml", routes=routes, keys={"a": {"hash": old}})
    server = await start("--config", str(file), "--workers", "2")
    write(file, routes=routes, keys={"b": {"hash": new}})
    for _ in range(2):
        await server.line("Config reloaded")

    killed = _children(server.process.pid)
    for each in killed:
        os.kill(each, signal.SIGKILL)
    await until(lambda: len({*_children(server.process.pid)} - {*killed}) == 2 and _listens(server))

    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(force_close=True)) as session:
        assert [(await ask(session, server))[0] for _ in range(8)] == [200] * 8
    server.process.send_signal(signal.SIGTERM)
    await server.ended()


@pytest.mark.processes
@pytest.mark.parametrize("place", ["", "file", "redis"])
async def test_workers_share_budgets_places_and_the_live_page(start: Start, serve: Serve, tmp_path: Path, place: str):
    behind = await serve(chat(CLEAN))  # 25 tokens
    key, digest = new_key()
    keys = {"team": {"hash": digest, "may": ["admin"], "budget": {"tokens": 240, "per": "total"}, "per_minute": 600}}
    with redis_server(tmp_path) if place == "redis" else nullcontext(str(tmp_path / "state.sqlite")) as where:
        state = {place: where} if place else {}
        routes = {"guarded": route(behind.url)}
        server = await start(
            "--workers", "2", "--config", str(write(tmp_path / "guard.yaml", routes=routes, keys=keys, state=state))
        )
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, connector=connector) as session:
            codes: list[str | None] = []
            while codes.count("insufficient_quota") < 6:
                _, body = await ask(session, server)
                codes.append(body["error"]["code"] if "error" in body else None)
            pages = await _pages(session, server, len(codes))
            async with session.get(f"{server.url}/admin/spent") as reply:
                spent = await reply.json()
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 0

        # A worker may not know yet that a request of the other has ended, and then asks for patience.
        known = [code for code in codes if code != "rate_limit_exceeded"]
        assert known == [None] * 10 + ["insufficient_quota"] * 6
        assert spent["team"]["total"]["tokens"] == 250
        assert [page["worker"] for page in pages] == [0] * len(pages)
        assert ("forgotten when the server stops" in server.greeting) == (not place)
        if place:
            again = await start("--config", str(tmp_path / "guard.yaml"))
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
                assert (await ask(session, again))[0] == 429
            again.process.send_signal(signal.SIGTERM)
            await again.ended()


async def _pages(session: aiohttp.ClientSession, server: Process, count: int) -> list[Any]:
    """The live page, asked several times, so that both workers answer; all have so many requests."""
    pages: list[Any] = []
    while len(pages) < 8:
        async with session.get(f"{server.url}/page/state") as reply:
            page = await reply.json()
        if page["totals"]["requests"] == len(page["rows"]) == count:
            pages.append(page)
    return pages


def _listens(server: Process) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(server.url.rpartition(":")[2]))) == 0


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
