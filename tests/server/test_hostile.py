"""Clients that mean harm, or are broken: whatever they send, a clear refusal comes back, no key, and never a 500."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from evenhand.server import limits as limits_module
from evenhand.server import process as connection_module
from evenhand.server.telemetry.audit import read_audit
from evenhand.web import keys as auth_module
from support.fixtures import Serve
from support.guard_server import CLEAN, Guarding, Served, route, streamed
from support.server import ChatServer, chat, raw, reply_with

KEY, UPSTREAM_KEY = "evh-clients-own-key-0123456789", "sk-upstream-key-0123456789"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello?"}]
ADDRESSES = (
    CHAT,
    "/v1/completions",
    "/v1/models",
    "/v1/models/guarded",
    "/v1/moderations",
    "/v1alpha1/comments:analyze",
    "/$discovery/rest",
    "/",
    "/page/live.js",
    "/page/state",
    "/healthz",
    "/readyz",
    "/metrics",
    "/admin/reload",
)


class Target:
    """A guard with keys in front of a stub endpoint and of a model in this process."""

    def __init__(self, guard: Served, behind: ChatServer) -> None:
        self.guard = guard
        self.behind = behind

    async def post(self, path: str, body: Any, **headers: str) -> SimpleNamespace:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.guard.post(path, data, headers={"Authorization": f"Bearer {KEY}", **headers})

    async def chat(self, **fields: Any) -> SimpleNamespace:
        return await self.post(CHAT, {"model": "guarded", "messages": HELLO, **fields})

    @contextlib.asynccontextmanager
    async def sent(self, data: bytes) -> AsyncIterator[asyncio.StreamReader]:
        """What comes back for raw bytes on a connection of their own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.guard.port)
        try:
            writer.write(data)
            yield reader
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def send(self, data: bytes) -> SimpleNamespace:
        """The whole answer, until the server closes the connection."""
        async with self.sent(data) as reader:
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return SimpleNamespace(status=int(head.split()[1]), head=head.decode(), text=body.decode())

    async def status(self, data: bytes) -> int:
        """The status of the answer, whether or not the request is over."""
        async with self.sent(data) as reader:
            return int((await reader.readline()).split()[1])


@pytest.fixture
async def target(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Target]:
    """Afterwards nothing was logged as an error, and no key is in any record."""
    monkeypatch.setenv("OPENAI_API_KEY", UPSTREAM_KEY)
    caplog.set_level(logging.INFO)
    behind = await serve(chat(CLEAN))
    key = {"hash": hashlib.sha256(KEY.encode()).hexdigest(), "may": ["admin", "score", "metrics"]}
    routes = {"guarded": route(behind.url), "plain": route(behind.url, method="default", evaluators=[])}
    routes["inside"] = {"model": "fake/Good day.", "method": "stardtox:performance=false"}
    guard = await guarding(routes=routes, keys={"team": key}, limits={"body_mb": 2})
    yield Target(guard, behind)
    told = [(each.levelname, each.getMessage()) for each in caplog.records if each.levelno >= logging.ERROR]
    assert [each for each in told if not each[1].startswith("request")] == []
    kept = repr(list(guard.server.events.recent)) + caplog.text
    assert KEY not in kept and UPSTREAM_KEY not in kept


def assert_refused(answer: SimpleNamespace, status: int | None = None) -> None:
    """A 4xx in OpenAI's form or in Google's, without a key."""
    assert 400 <= answer.status < 500, answer.text[:300]
    assert status in (None, answer.status), answer.text[:300]
    error = orjson.loads(answer.text)["error"]
    assert error["message"]
    assert {"type", "param", "code"} <= set(error) or {"code", "status", "details"} == set(error) - {"message"}
    assert KEY not in answer.text and UPSTREAM_KEY not in answer.text
    assert len(answer.text) < 2_000, "it repeats what was sent"


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "two values": b"{} {}",
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "form": b"model=guarded&messages=x",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep but allowed": b'{"model":"guarded","messages":' + b"[" * 900 + b"]" * 900 + b"}",
    "no UTF-8": b'{"model":"\xff\xfe","messages":[]}',
    "half a surrogate": b'{"model":"guarded","messages":[{"role":"user","content":"\\ud800"}]}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"model":"guarded"}'.encode("utf-16"),
    "NaN": b'{"model":"guarded","messages":[],"temperature":NaN}',
    "Infinity": b'{"model":"guarded","messages":[],"temperature":-Infinity}',
    "zero bytes": b"\0" * 1000,
}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/moderations", "/v1alpha1/comments:analyze"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_bodies_that_are_no_request(target: Target, path: str, body: bytes):
    assert_refused(await target.post(path, body), 400)
    assert target.behind.bodies == []


DEEP: Any = "x"
for _ in range(900):
    DEEP = [DEEP]

FIELDS = {
    "model missing": {"model": None},
    "model a list": {"model": ["guarded"]},
    "model an object": {"model": {"name": "guarded"}},
    "model a number": {"model": 1},
    "model empty": {"model": ""},
    "model long": {"model": "x" * 1_000_000},
    "model an address": {"model": "http://169.254.169.254/v1"},
    "model a spec": {"model": "openai/behind"},
    "model with lines": {"model": 'a\r\nX-Injected: 1\n{"level": "info"}'},
    "model with a zero byte": {"model": "guarded\0"},
    "messages missing": {"messages": None},
    "messages empty": {"messages": []},
    "messages a text": {"messages": "Hello"},
    "messages an object": {"messages": {"0": {}}},
    "messages of texts": {"messages": ["Hello"]},
    "messages of lists": {"messages": [[]]},
    "message without a role": {"messages": [{"content": "Hello"}]},
    "role a list": {"messages": [{"role": ["user"], "content": "Hello"}]},
    "role made up": {"messages": [{"role": "emperor", "content": "Hello"}]},
    "n zero": {"n": 0},
    "n negative": {"n": -1},
    "n large": {"n": 1_000_000_000},
    "n a fraction": {"n": 1.5},
    "n a float": {"n": 1e9},
    "n true": {"n": True},
    "n a text": {"n": "2"},
    "stream a text": {"stream": "yes"},
    "stream a number": {"stream": 1},
    "stream an object": {"stream": {}},
    "our field a text": {"evenhand": "none"},
    "our field null": {"evenhand": None},
    "our field with more": {"evenhand": {"method": "none", "model": "x"}},
    "our method a list": {"evenhand": {"method": ["none"]}},
    "our method deep": {"evenhand": {"method": DEEP}},
    "off": {"evenhand": {"method": "none"}},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
async def test_fields_that_no_route_takes(target: Target, fields: dict[str, Any]):
    answer = await target.chat(**fields)

    assert_refused(answer)
    assert "X-Injected" not in answer.headers
    assert target.behind.bodies == []


COMPLETIONS = {
    "prompt missing": {"prompt": None},
    "prompt of tokens": {"prompt": [1, 2, 3]},
    "too many prompts": {"prompt": ["x"] * 17},
    "too many answers": {"prompt": ["x"] * 4, "n": 5},
    "echo a text": {"echo": "yes"},
    "echo in a stream": {"echo": True, "stream": True},
    "suffix": {"suffix": "x"},
    "best_of": {"best_of": 3},
    "logprobs": {"logprobs": 5},
}


@pytest.mark.parametrize("fields", COMPLETIONS.values(), ids=COMPLETIONS.keys())
async def test_fields_that_the_older_form_does_not_take(target: Target, fields: dict[str, Any]):
    assert_refused(await target.post("/v1/completions", {"model": "guarded", "prompt": "Hello?", **fields}), 400)
    assert target.behind.bodies == []


INSIDE = {
    "content a number": ({"messages": [{"role": "user", "content": 5}]}, None),
    "content an object": ({"messages": [{"role": "user", "content": {"text": "x"}}]}, None),
    "content of texts": ({"messages": [{"role": "user", "content": ["x"]}]}, 400),
    "content of nulls": ({"messages": [{"role": "user", "content": [None]}]}, 400),
    "content deep": ({"messages": [{"role": "user", "content": [{"type": DEEP}]}]}, 400),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400),
    "tools a text": ({"tools": "all"}, 400),
    "tools a number": ({"tools": 5}, 400),
    "tools of nulls": ({"tools": [None]}, 400),
    "max_tokens negative": ({"max_tokens": -5}, 400),
    "max_tokens zero": ({"max_tokens": 0}, 400),
    "max_tokens a text": ({"max_tokens": "many"}, 400),
    "max_tokens true": ({"max_tokens": True}, 400),
    "temperature negative": ({"temperature": -1}, 400),
    "temperature a list": ({"temperature": [1]}, 400),
    "stop a number": ({"stop": 5}, 400),
    "stop of numbers": ({"stop": [5]}, 400),
    "stop an object": ({"stop": {"a": 1}}, 400),
    "seed a fraction": ({"seed": 0.5}, 400),
    "modalities": ({"modalities": ["audio"]}, 400),
    "modalities a number": ({"modalities": 5}, 400),
    "form a text": ({"response_format": "json"}, None),
    "form of a list": ({"response_format": {"type": ["json_object"]}}, None),
    "schema a number": ({"response_format": {"type": "json_schema", "json_schema": 5}}, None),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "status"), INSIDE.values(), ids=INSIDE.keys())
async def test_fields_that_a_model_in_this_process_cannot_take(
    target: Target, fields: dict[str, Any], status: int | None, stream: bool
):
    """`None`: the field is answered as if it were not there."""
    answer = await target.chat(model="inside", stream=stream, **fields)

    if status is not None or answer.status != 200:
        assert_refused(answer, status)


ODD = {
    "tools of nulls": {"tools": [None]},
    "tools a text": {"tools": "all"},
    "tool_choice a list": {"tool_choice": []},
    "functions a number": {"functions": 5},
    "max_tokens negative": {"max_tokens": -5},
    "a large number": {"seed": 1e30},
    "content a number": {"messages": [{"role": "user", "content": 5}]},
    "content of nulls": {"messages": [{"role": "user", "content": [None, 5, "x", {"text": []}]}]},
    "stream_options": {"stream_options": [1]},
    "one word": {"messages": [{"role": "user", "content": "a" * 1_000_000}]},
    "zero bytes": {"messages": [{"role": "user", "content": "\0" * 1000}]},
}


@pytest.mark.parametrize("model", ["guarded", "plain"])
@pytest.mark.parametrize("fields", ODD.values(), ids=ODD.keys())
async def test_what_the_models_endpoint_must_judge_is_passed_on(target: Target, model: str, fields: dict[str, Any]):
    answer = await target.chat(model=model, **fields)

    assert answer.status == 200, answer.text
    name, value = next(iter(fields.items()))
    assert name == "stream_options" or target.behind.bodies[0][name] == value


ITSELF = {"$ref": "#"}
SCHEMAS = {
    "nonsense": {"type": {}, "enum": 5, "required": 5, "properties": [], "anyOf": [5]},
    "of itself": {"anyOf": [ITSELF, ITSELF, ITSELF], "oneOf": [ITSELF, ITSELF]},
    "of others": {
        "$ref": "#/$defs/0",
        "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 3} for n in range(30)},
    },
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
async def test_no_schema_holds_the_server_up(serve: Serve, guarding: Guarding, schema: dict[str, Any]):
    behind = await serve(chat('{"a": 1}'))
    guard = await guarding(route(behind.url))
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    answer = await guard.chat(response_format=form)

    assert answer.body["choices"][0]["message"]["content"] == '{"a": 1}'


async def test_what_cannot_be_sent_on_is_refused(target: Target):
    assert_refused(await target.chat(metadata=DEEP), 400)
    assert_refused(await target.chat(messages=[{"role": "user", "content": [{"type": DEEP}]}]), 400)
    assert_refused(await target.chat(n=2, seed=2**64 - 1), 400)


async def test_of_a_field_that_comes_twice_all_see_the_last(target: Target):
    body = b'{"model":"none","model":"guarded","evenhand":{"method":"none"},"evenhand":{},"messages":%s}'
    answer = await target.post(CHAT, body % orjson.dumps(HELLO))

    assert answer.body["evenhand"]["action"] == "passed"
    assert [each["model"] for each in target.behind.bodies] == ["behind"]


async def test_no_field_or_header_leads_elsewhere_or_takes_a_key_along(target: Target, serve: Serve):
    other = await serve(chat("from elsewhere"))
    picture = {"type": "image_url", "image_url": {"url": f"{other.url}/a.png"}}
    fields = {"base_url": other.url, "api_base": other.url, "extra_headers": {"X-Extra": "1"}, "api_key": "sk-clients"}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Look!"}, picture]}]
    headers = {"X-Forwarded-Host": other.url, "X-Extra": "1", "OpenAI-Organization": "org", "Cookie": "a=1"}

    answer = await target.post(CHAT, {"model": "guarded", "messages": messages, **fields}, **headers)

    (seen,) = target.behind.requests
    assert answer.status == 200
    assert other.requests == []
    assert seen.headers["Authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert not {"X-Extra", "X-Forwarded-Host", "OpenAI-Organization", "Cookie"} & set(seen.headers)
    assert KEY not in repr(seen)
    assert UPSTREAM_KEY not in answer.text + repr(answer.headers)


@pytest.mark.parametrize("key", ["", f"Bearer {KEY}"], ids=["no key", "a key"])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "GET", "POST", "QUERY"])
async def test_every_address_answers_every_method(target: Target, method: str, key: str):
    for path in ADDRESSES:
        length = "Content-Length: 0\r\n" if method not in ("GET", "HEAD") else ""
        sent = f"Authorization: {key}\r\n" if key else ""
        answer = await target.send(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{sent}{length}\r\n".encode()
        )
        assert answer.status < 500, (path, answer.text)
        if answer.status >= 400 and method != "HEAD":
            assert_refused(answer)
        assert "Access-Control-Allow-Origin" not in answer.head
        opened = path in ("/", "/page/live.js", "/healthz", "/readyz") and method in ("GET", "HEAD")
        assert key or opened or answer.status in (401, 403), path


HEADS = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": b"GET / HTTP/9.9\r\n\r\n",
    "a space before the colon": b"POST /v1/completions HTTP/1.1\r\nHost : x\r\n\r\n",
    "a folded header": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
    "a zero byte": b"POST /v1/completions HTTP/1.1\r\nHost: x\0y\r\n\r\n",
    "two lengths": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n"
    ),
    "chunks that are not last": (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    ),
    "a negative length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "a length in words": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
    "a large header": b"GET /healthz HTTP/1.1\r\nAuthorization: Bearer " + KEY.encode() * 1000 + b"\r\n\r\n",
    "many headers": b"GET /healthz HTTP/1.1\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n",
    "a long address": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "an unknown encoding": (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
        + KEY.encode()
        + b"\r\n"
        b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "no address": b"GET http://[x HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS.keys())
async def test_what_is_no_http_is_refused_in_openais_form_and_not_repeated(target: Target, data: bytes):
    assert_refused(await target.send(data), 400)


CHUNKED = "Transfer-Encoding: chunked\r\n"
UNREADABLE = {
    "a chunk of no size": (CHUNKED, b"zz\r\nab\r\n0\r\n\r\n"),
    "a chunk that is too long": (CHUNKED, b"2\r\nabcdef\r\n0\r\n\r\n"),
    "gzip that is none": ("Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"{} {"),
    "deflate that is none": ("Content-Encoding: deflate\r\nContent-Length: 4\r\n", b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("path", [CHAT, "/v1alpha1/comments:analyze?key=" + KEY])
@pytest.mark.parametrize(("head", "body"), UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_bodies_that_cannot_be_read(target: Target, path: str, head: str, body: bytes):
    first = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n{head}\r\n"

    assert_refused(await target.send(first.encode() + body), 400)


async def test_too_much_is_refused_before_it_is_sent_and_after_it_is_unpacked(target: Target):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    assert await target.status(f"{head}Content-Length: 9000000000\r\n\r\n".encode()) == 413
    bomb = gzip.compress(b" " * 50_000_000)
    assert_refused(await target.post(CHAT, bomb, **{"Content-Encoding": "gzip"}), 413)


@pytest.mark.parametrize("path", [CHAT, "/v1/moderations"])
async def test_a_body_that_trickles_in_is_given_up(target: Target, monkeypatch: pytest.MonkeyPatch, path: str):
    monkeypatch.setattr(limits_module, "BODY_SECONDS", 0.05)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 100\r\n\r\n"

    assert await target.status(head.encode() + b"{") == 408


async def test_a_request_within_a_body_is_not_answered(target: Target):
    inner = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(inner)}\r\n\r\n".encode()
    last = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    answer = await target.send(head + inner + last)

    assert (answer.head + answer.text).count("HTTP/1.1 401") == 2
    assert "alive" not in answer.text


@pytest.mark.parametrize("data", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost:"])
async def test_a_connection_that_brings_no_request_is_closed(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch, data: bytes
):
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.05)
    behind = await serve(chat(CLEAN))
    target = Target(await guarding(route(behind.url)), behind)

    async with target.sent(data) as reader:
        assert await reader.read() == b""


async def test_without_a_key_no_body_is_read(target: Target):
    for path in (CHAT, "/", "/healthz", "/page/live.js"):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        assert await target.status(head.encode()) == 401, path


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../../etc/passwd",
        "/page/..%2f..%2f..%2fetc%2fpasswd",
        "/page/%2e%2e/%2e%2e/etc/passwd",
        "/page/....//live.js",
        "/page//state",
        "//page/state",
        "/page%2fstate",
        "/page/live.js/../state",
        "/page/state?key=" + KEY,
        "/page/events?key=" + KEY,
        "/metrics?key=" + KEY,
        "/v1/models?api_key=" + KEY,
    ],
)
async def test_no_way_of_writing_an_address_leads_to_files_or_data(target: Target, path: str):
    assert_refused(await target.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()), 401)
    if "key=" not in path:
        sent = f"Authorization: Bearer {KEY}\r\n"
        answer = await target.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{sent}\r\n".encode())
        assert_refused(answer, 404)


async def test_made_up_names_reach_neither_metrics_nor_headers(target: Target):
    for name in ('x"} 1\nevil_total 5', "a\r\nX-Injected: 1", "${jndi:x}", "' OR 1=1 --"):
        answer = await target.chat(model=name)
        assert_refused(answer, 404)
        assert "X-Injected" not in answer.headers
    metrics = await target.guard.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})

    assert "evil" not in metrics.text and "jndi" not in metrics.text
    counted = [line for line in metrics.text.splitlines() if line.startswith("evenhand_requests_total{")]
    assert len(counted) == 1
    assert 'route="other"' in counted[0] and counted[0].endswith(" 4.0")


async def test_a_key_is_compared_with_all_that_there_are(target: Target, monkeypatch: pytest.MonkeyPatch):
    compared: list[bytes] = []
    keys = {str(n): auth_module.KeyConfig(hash=f"{n:064x}") for n in range(5)}
    right = auth_module.KeyConfig(hash=hashlib.sha256(KEY.encode()).hexdigest())
    target.guard.server.auth = auth_module.Auth({"first": right, **keys}, "0.0.0.0")
    same = auth_module.hmac.compare_digest
    monkeypatch.setattr(
        auth_module, "hmac", SimpleNamespace(compare_digest=lambda a, b: compared.append(a) or same(a, b))
    )

    assert (await target.chat()).status == 200
    assert len(compared) == 6


@pytest.mark.parametrize("hosts", [["127.0.0.1", "evil.example"], ["127.0.0.1", "127.0.0.1"]])
async def test_two_hosts_are_no_request(target: Target, hosts: list[str]):
    lines = "".join(f"Host: {host}\r\n" for host in hosts)

    assert (await target.send(f"GET /v1/models HTTP/1.1\r\n{lines}\r\n".encode())).status == 400


@pytest.mark.parametrize("value", ["inf", "nan", "1e309", "1e300"])
@pytest.mark.parametrize("status", [429, 503])
async def test_an_endpoint_with_an_absurd_retry_after(serve: Serve, guarding: Guarding, value: str, status: int):
    behind = await serve(reply_with({}, status, {"Retry-After": value}))
    guard = await guarding(route(behind.url))

    answer = await guard.chat()

    assert answer.status == status
    assert 1 <= int(answer.headers["Retry-After"]) <= 86_400


@pytest.mark.parametrize(
    "call",
    [
        {"index": 0, "function": {"name": "f", "arguments": {"a": 1}}},
        {"index": 0, "function": {"name": "f", "arguments": ["a"]}},
        {"index": 0, "function": "f"},
        {"index": {}, "function": {"name": "f", "arguments": "{}"}},
    ],
)
@pytest.mark.parametrize("checked", [True, False])
async def test_malformed_tool_calls_of_a_stream_are_put_in_form(
    serve: Serve, guarding: Guarding, call: dict[str, Any], checked: bool
):
    behind = await serve(streamed([], tool_calls=[call]))
    guard = await guarding(route(behind.url, **({} if checked else {"method": "default", "evaluators": []})))

    answer = await guard.chat(stream=True)

    chunks = [json.loads(each) for each in answer.text.split("data: ")[1:-1]]
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert (answer.status, guard.event.status) == (200, 200)
    assert calls
    assert all(isinstance(each["function"]["arguments"], str) for each in calls)


HALVES = {
    "text": b'"content":"a \\ud83d b"',
    "arguments": b'"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d\\"}"}}]',
    "escaped arguments": b'"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\\"a\\":\\"\\\\ud83d\\"}"}}]',
    "arguments as an object": b'"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":"\\ud83d"}}}]',
    "name": b'"tool_calls":[{"id":"\\ud83d","function":{"name":"\\ud83d","arguments":"{}"}}]',
    "refusal": b'"refusal":"\\ud83d"',
}
"""Messages with one half of a character."""


@pytest.mark.parametrize("message", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["whole", "to a stream"])
async def test_half_a_character_is_mended_and_recorded(
    serve: Serve, guarding: Guarding, tmp_path: Path, message: bytes, path: str, more: dict[str, Any]
):
    reply = b'{"choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":"stop"}]}' % message
    behind = await serve(raw(reply, headers={"Content-Type": "application/json"}))
    audit = {"file": str(tmp_path / "audit.sqlite"), "texts": "full"}
    guard = await guarding(route(behind.url, policy="flag"), audit=audit)
    asked = {"input": "Hello?"} if path == "responses" else {"messages": [{"role": "user", "content": "Hello?"}]}

    answer = await guard.post(f"/v1/{path}", {"model": "guarded", "max_tokens": 9, **asked, **more})

    await guard.told()
    assert (answer.status, guard.event.status) == (200, 200), answer.text
    assert guard.server.audit is not None
    await asyncio.to_thread(guard.server.audit.close)
    assert guard.server.audit.dropped == 0
    assert len(list(read_audit(tmp_path / "audit.sqlite"))) == 1


async def test_a_body_that_cannot_be_decoded_is_no_fault_of_the_server(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"not gzip"
    head = (
        f"PUT /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with caplog.at_level(logging.INFO):
        assert await target.status(head.encode() + body) in {400, 401, 405}
    assert not [record for record in caplog.records if record.exc_info]
