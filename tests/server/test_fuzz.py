"""Random requests against a guard with random endpoints behind it: every answer has a form, and no text goes unchecked.

Valid requests and replies are mutated: fields removed, replaced by odd values, bytes cut. Replies also say what the
check refuses in every field that carries text beside the content: names, ids and arguments of calls, keys of JSON,
refusals, thoughts, fields of the head, deltas of other forms. Whatever comes, the answer is
no 500, 502 to 504 come only from faults of the endpoint, an error has OpenAI's form, nothing is logged as a traceback,
and the marker that the check refuses never reaches the client.
"""

import asyncio
import copy
import json
import logging
import threading
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import orjson
import pytest
from aiohttp import web
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from support.guard_server import CLEAN, RUDE, Served, route
from support.server import ChatServer, completion

T = TypeVar("T")
MARKER = "worthless idiot"
RUDE_NAME = RUDE.replace(" ", "_").strip(".!")
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 422, 429}
UPSTREAM = {502, 503, 504}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "guarded",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hello?"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "Nothing."},
        ],
        "temperature": 0.5,
        "max_tokens": 20,
        "n": 1,
        "stream": False,
        "stop": ["x"],
        "user": "somebody",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "response_format": {"type": "text"},
        "stream_options": {"include_usage": True},
    },
    "/v1/completions": {"model": "guarded", "prompt": "Once", "max_tokens": 5, "stream": False, "n": 1},
    "/v1/responses": {
        "model": "guarded",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}],
        "instructions": "Be kind.",
        "stream": False,
        "max_output_tokens": 20,
        "metadata": {"a": "b"},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
        "text": {"format": {"type": "text"}},
    },
    "/v1/embeddings": {"model": "guarded", "input": ["Hello"], "encoding_format": "float"},
    "/v1/moderations": {"input": ["Hello", "there"], "model": "any"},
    "/v1alpha1/comments:analyze": {
        "comment": {"text": "Hello"},
        "requestedAttributes": {"TOXICITY": {}},
        "languages": ["en"],
    },
    "/openai/deployments/guarded/chat/completions?api-version=1": {"messages": [{"role": "user", "content": "Hello?"}]},
    "/v1/models/guarded": {},
    "/v1/nothing": {},
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 1, 7, 10**30, -(10**30), 2**63, 1e308, -0.0, 1e-320, "", " ", "NaN", "inf", "\u0000", "\ud800"]
    ),
    st.sampled_from([[], {}, [[]], [{}], [None], {"": None}, {"type": "text"}, {"type": "image_url"}, "guarded", RUDE]),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
)
"""Values that a field does not expect."""
CHANGE = st.tuples(st.integers(0, 200), st.sampled_from(["set", "remove", "add", "repeat"]), ODD)
TEARS = st.sampled_from(["", "", "", "", "half", "twice", "deep", "bytes", "nothing", "number"])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All paths to fields and elements of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*path, key)
        yield from places(each, (*path, key))


def changed(value: Any, changes: list[tuple[int, str, Any]]) -> Any:
    """A copy with the changes made."""
    value = copy.deepcopy(value)
    for number, how, shared in changes:
        odd = copy.deepcopy(shared)
        found = list(places(value))
        if not found:
            return value
        *path, last = found[number % len(found)]
        parent = value
        for key in path:
            parent = parent[key]
        if how == "remove":
            del parent[last]
        elif how == "repeat" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif how == "add" and isinstance(parent, dict):
            parent[str(odd)[:5]] = odd
        else:
            parent[last] = odd
    return value


def as_bytes(value: Any, tear: str) -> bytes:
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    return {
        "half": data[: len(data) // 2],
        "twice": data + data,
        "deep": b"[" * 3000 + b"]" * 3000,
        "bytes": b"\xff\xfe" + data,
        "nothing": b"",
        "number": b"1" * 5000,
    }.get(tear, data)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    path = draw(st.sampled_from(list(BODIES)))
    body = changed(BODIES[path], draw(st.lists(CHANGE, max_size=3)))
    if isinstance(body, dict) and "stream" in body and draw(st.booleans()):
        body["stream"] = True
    method = draw(st.sampled_from(["POST"] * 12 + ["GET", "PUT", "DELETE", "OPTIONS"]))
    headers = draw(
        st.sampled_from(
            [{}] * 8
            + [{"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}, {"Authorization": "Bearer \u00ff"}]
            + [
                {"X-Evenhand-Bypass": "1"},
                {"Accept": "text/event-stream"},
                {"Content-Type": "application/json; charset=x"},
            ]
        )
    )
    return method, path, as_bytes(body, draw(TEARS)), headers


CHUNKS = [
    {
        "id": "x",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
    },
    {"id": "x", "choices": [{"index": 0, "delta": {"content": "The park is "}, "finish_reason": None}]},
    {"id": "x", "choices": [{"index": 0, "delta": {"content": "open. It is mild."}, "finish_reason": None}]},
    {
        "id": "x",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    },
]


EMBEDDING = {
    "object": "list",
    "model": "behind",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}


def _call(name: str = "look", arguments: str = "{}", id: str = "call_1", kind: str = "function") -> dict[str, Any]:  # noqa: A002
    return {"index": 0, "id": id, "type": kind, kind: {"name": name, WRITTEN[kind]: arguments}}


WRITTEN = {"function": "arguments", "custom": "input"}
SAID_BESIDE: list[dict[str, Any]] = [
    {"refusal": RUDE},
    {"reasoning_content": RUDE},
    {"annotations": [{"type": "note", "text": RUDE}]},
    {"audio": {"transcript": RUDE}},
    {"content": [{"type": "text", "text": RUDE}, {"type": "other", "other": RUDE}]},
    {"content": "".join(f"\\u{ord(sign):04x}" for sign in RUDE)},
    {"content": f"```json\n{json.dumps({'text': RUDE})}\n```"},
    {"tool_calls": [_call(arguments=json.dumps({"text": RUDE}))]},
    {"tool_calls": [_call(arguments=f'{{"text": "{RUDE}", "text": "Good day."}}')]},
    {"tool_calls": [_call(arguments=f'{{"text": "Good day.", "text": "{RUDE}"}}')]},
    {"tool_calls": [_call(arguments=json.dumps({RUDE_NAME: 1}))]},
    {"tool_calls": [_call(arguments=json.dumps({"a": [{"b": {RUDE: None}}]}))]},
    {"tool_calls": [_call(arguments=RUDE)]},
    {"tool_calls": [_call(name=RUDE_NAME)]},
    {"tool_calls": [_call(id=RUDE_NAME)]},
    {"tool_calls": [_call(), _call(arguments=RUDE) | {"index": 1}]},
    {"tool_calls": [_call(arguments=RUDE, kind="custom")]},
    {"tool_calls": [_call(name=RUDE_NAME, kind="custom")]},
    {"function_call": {"name": "look", "arguments": json.dumps({"text": RUDE})}},
    {"function_call": {"name": RUDE_NAME, "arguments": "{}"}},
]
"""Fields of a message, or of the delta of a stream, that say what the check refuses."""
SAID_AROUND: list[dict[str, Any]] = [
    {"system_fingerprint": RUDE_NAME},
    {"service_tier": RUDE_NAME},
    {"id": RUDE},
    {"model": RUDE},
    {"usage": {"prompt_tokens": 1, RUDE_NAME: 2, "prompt_tokens_details": {RUDE: 1}}},
    {"warning": RUDE},
]
"""The same for fields around the choices."""


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as `completion` takes them."""
    return {"text" if name == "content" else name: value for name, value in fields.items()}


@st.composite
def replies(draw: st.DrawFn) -> SimpleNamespace:
    """What the endpoint sends, and whether that is a fault of its own."""
    changes = draw(st.lists(CHANGE, max_size=2))
    text = draw(st.sampled_from([CLEAN, RUDE]))
    tear = draw(TEARS)
    status = draw(st.sampled_from([200] * 8 + [400, 404, 429, 500, 503, 302]))
    beside = draw(st.sampled_from([{}] * 10 + SAID_BESIDE))
    around = draw(st.sampled_from([{}] * 6 + SAID_AROUND))
    whole = as_bytes(changed({**completion(**{"text": text, **_renamed(beside)}), **around}, changes), tear)
    chunks = changed(CHUNKS, changes)
    if beside:
        form = draw(st.sampled_from(["delta", "message"]))
        chunks = [*chunks[:2], {**around, "choices": [{"index": 0, form: beside, "finish_reason": None}]}, *chunks[2:]]
    if text is RUDE and draw(st.booleans()):
        said = draw(st.sampled_from([{"delta": {"content": RUDE}}, {"message": {"content": RUDE}}, {"text": RUDE}]))
        chunks = [*chunks[:2], {"choices": [{"index": 0, **said, "finish_reason": None}]}, *chunks[2:]]
    stream = (
        draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
        + b"".join(b"data: " + as_bytes(chunk, "") + b"\n\n" for chunk in chunks)
        + b"data: [DONE]\n\n"
    )
    stream = stream[: len(stream) // 2] if tear == "half" else stream
    embedding = as_bytes(changed(EMBEDDING, changes), tear)
    plain = not changes and not tear and status == 200
    return SimpleNamespace(whole=whole, stream=stream, embedding=embedding, status=status, plain=plain)


class World:
    """A guard and its endpoint on an event loop of their own, in a thread."""

    def __init__(self) -> None:
        self.reply = SimpleNamespace(whole=b"", stream=b"", embedding=b"", status=200, plain=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> SimpleNamespace:
        return self.run(self._ask(method, path, body, headers))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        async def reply(request: web.Request) -> web.StreamResponse:
            body: Any = orjson.loads(await request.read())
            streams = isinstance(body, dict) and bool(body.get("stream"))
            kind = "text/event-stream" if streams else "application/json"
            data = self.reply.stream if streams else self.reply.whole
            data = self.reply.embedding if request.path.endswith("/embeddings") else data
            return web.Response(body=data, status=self.reply.status, headers={"Content-Type": kind, "Location": "/"})

        self._behind = await ChatServer(answer=lambda _: reply).start()
        config = {"routes": {"guarded": route(self._behind.url, policy="block", timeout=20)}}
        self._guard = await Served(config).start()
        self._session = aiohttp.ClientSession()

    async def _stop(self) -> None:
        await self._session.close()
        await self._guard.stop()
        await self._behind.stop()

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> SimpleNamespace:
        url = self._guard.root + path
        self._behind.requests.clear()
        async with self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            return SimpleNamespace(status=response.status, type=response.content_type, data=await response.read())


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenhand.guards.upstreams.FAILURES", 10**9)  # every request reaches the endpoint
        world.start()
    yield world
    world.stop()


def check(world: World, request: tuple[str, str, bytes, dict[str, str]], reply: SimpleNamespace) -> None:
    world.reply = reply
    answer = world.ask(*request)
    assert answer.status in ALLOWED | UPSTREAM, answer.data
    fits = reply.plain and request[1] != "/v1/embeddings"  # the endpoint's one vector may not be what was asked for
    assert not (answer.status in UPSTREAM and fits), answer.data
    assert b"Traceback" not in answer.data
    for marker in (MARKER.encode(), MARKER.replace(" ", "_").encode()):
        assert marker in request[2] or marker not in answer.data, answer.data
    if answer.status >= 400 and request[0] != "OPTIONS":
        assert answer.type == "application/json", answer.data
        error = orjson.loads(answer.data)["error"]
        assert isinstance(error["message"], str)
        assert error["message"]


FEW = settings(max_examples=100, phases=[Phase.explicit, Phase.generate, Phase.shrink])


@FEW
@given(requests(), replies())
def test_any_request_gets_an_answer_in_form(
    world: World, request_: tuple[str, str, bytes, dict[str, str]], reply: SimpleNamespace
) -> None:
    check(world, request_, reply)


@pytest.mark.processes
@pytest.mark.parametrize("part", range(30))
def test_thirty_thousand_requests(world: World, part: int) -> None:
    @seed(part)
    @settings(FEW, max_examples=1000, derandomize=False)
    @given(requests(), replies())
    def ask(request_: tuple[str, str, bytes, dict[str, str]], reply: SimpleNamespace) -> None:
        check(world, request_, reply)

    ask()


@pytest.fixture(autouse=True)
def _no_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR and record.exc_info]
