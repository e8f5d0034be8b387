"""Any endpoint as a model, from its table in evenhand.toml: what it is sent, and what counts as an answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from evenhand.core.errors import EvenhandError, ModelError
from evenhand.core.types import Message, Params
from evenhand.models.load import load_model
from support.fixtures import Serve
from support.server import ChatServer, raw, reply_with

Described = Callable[..., None]


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Described:
    """Writes the table [http.support] into the evenhand.toml of this folder."""
    monkeypatch.chdir(tmp_path)

    def write(server: ChatServer | str, **fields: Any) -> None:
        url = server if isinstance(server, str) else f"{server.url}/ask"
        lines = "\n".join(f"{name} = {_toml(value)}" for name, value in {"url": url, "retries": 0, **fields}.items())
        (tmp_path / "evenhand.toml").write_text(f"[http.support]\n{lines}\n")

    return write


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f'"{name}" = {_toml(each)}' for name, each in cast("dict[str, Any]", value).items()) + "}"
        )
    return orjson.dumps(value).decode()


async def answered(*turns: str, spec: str = "http/support") -> str:
    roles = ("user", "assistant")
    messages = [Message(roles[place % 2], text) for place, text in enumerate(turns)]  # pyright: ignore[reportArgumentType]
    async with load_model(spec) as model:
        return (await model.generate(messages, Params())).text


async def test_a_target_is_sent_its_body_and_headers_and_read_at_its_path(
    serve: Serve, described: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(reply_with({"reply": {"parts": [{"text": "Good "}, {"text": "day."}]}}))
    monkeypatch.setenv("SUPPORT_KEY", "hush")
    described(
        server,
        headers={"Authorization": "Bearer $SUPPORT_KEY"},
        body={"question": "Q: {{prompt}}", "turns": "{{messages}}"},
        answer="$.reply.parts[*].text",
    )

    assert await answered("Hello?") == "Good day."
    [seen] = server.requests
    assert seen.headers["Authorization"] == "Bearer hush"
    assert seen.body == {"question": "Q: Hello?", "turns": [{"role": "user", "content": "Hello?"}]}


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (
            "sse",
            b'data: {"piece": "Good "}\n\n: still there\ndata: {"piece": "day."}\ndata: {"n": 1}\ndata: [DONE]\n',
        ),
        ("lines", b'{"piece": "Good "}\n{"piece": "day."}\n{"done": true}\n'),
    ],
)
async def test_a_stream_is_joined(serve: Serve, described: Described, form: str, data: bytes) -> None:
    described(await serve(raw(data)), answer="$.piece", stream=form)
    assert await answered("Hello?") == "Good day."


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (b"<html><body>Sign in</body></html>", 200, "a web page"),
        (b"Good day.", 200, "no JSON but 'Good day.'"),
        (b'{"text": "Good day."}', 200, "nothing at $.reply"),
        (b'{"reply": ""}', 200, "an empty answer"),
        (b'{"reply": null}', 200, "nothing at $.reply"),
        (b'{"reply": 3}', 200, "no text at $.reply but '3'"),
        (b'{"error": "no such user"}', 403, "answered 403"),
        (b"", 204, "no JSON but ''"),
    ],
)
async def test_what_is_no_answer_is_an_error_in_one_sentence(
    serve: Serve, described: Described, reply: bytes, status: int, said: str
) -> None:
    described(await serve(raw(reply, status)), answer="$.reply")
    with pytest.raises(ModelError) as error:
        await answered("Hello?")
    assert said in str(error.value) and "\n" not in str(error.value)


async def test_a_secret_is_in_no_message_and_in_no_fingerprint(
    serve: Serve, described: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPPORT_KEY", "hush-hush")
    described(await serve(raw(b"denied: hush-hush", 403)), headers={"X-Key": "$SUPPORT_KEY"}, answer="$.reply")
    async with load_model("http/support") as model:
        assert "hush-hush" not in str(model.fingerprint())
        with pytest.raises(ModelError) as error:
            await model.generate([Message("user", "Hello?")], Params())
    assert "hush-hush" not in str(error.value)


class Counting:
    """An endpoint that keeps conversations by a cookie or an id, and counts their turns."""

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = {}
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "Counting":
        app = web.Application()
        app.router.add_route("*", "/ask", self._ask)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/ask"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _ask(self, request: web.Request) -> web.Response:
        sent = dict(request.query) or await request.json()
        session = sent.get("session") or request.cookies.get("sid") or f"s{len(self.heard)}"
        turns = self.heard.setdefault(session, [])
        turns.append(sent["text"])
        response = web.json_response({"reply": f"turn {len(turns)}"})
        response.set_cookie("sid", session)
        return response


@pytest.mark.parametrize("session", ["cookie", "id"])
async def test_a_conversation_stays_in_its_session(described: Described, session: str) -> None:
    body = {"text": "{{prompt}}", **({"session": "{{session}}"} if session == "id" else {})}
    async with Counting() as server:
        described(server.url, body=body, answer="$.reply", session=session)
        async with load_model("http/support") as model:

            async def said(*turns: str) -> str:
                roles = ("user", "assistant")
                shown = [Message(roles[at % 2], text) for at, text in enumerate(turns)]  # pyright: ignore[reportArgumentType]
                return (await model.generate(shown, Params())).text

            assert [await said("a"), await said("b")] == ["turn 1", "turn 1"]
            assert await said("a", "turn 1", "a again") == "turn 2"
        assert sorted(server.heard.values()) == [["a", "a again"], ["b"]]


async def test_a_session_that_is_gone_is_begun_again(described: Described) -> None:
    async with Counting() as server:
        described(server.url, method="GET", body={"text": "{{prompt}}"}, answer="$.reply", session="cookie")
        assert await answered("a", "turn 1", "b") == "turn 2"
        assert list(server.heard.values()) == [["a", "b"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"headers": {"Authorization": "Bearer sk-123"}}, "environment variable"),
        ({"headers": {"Authorization": "Bearer $NOT_SET_HERE"}}, "NOT_SET_HERE, which is not set"),
        ({"answer": "$..text"}, "answer must be a path"),
        ({"anser": "$.text"}, "anser"),
        ({"url": "ftp://example.org"}, "url must be an http address"),
    ],
)
async def test_a_wrong_table_is_one_sentence(described: Described, fields: dict[str, Any], said: str) -> None:
    described("http://localhost:1/ask", **fields)
    with pytest.raises(EvenhandError, match=said.replace("$", r"\$")):
        await answered("Hello?")


async def test_a_target_that_is_not_described_is_named(described: Described) -> None:
    described("http://localhost:1/ask")
    with pytest.raises(EvenhandError, match="support"):
        await answered("Hello?", spec="http/suport")


async def test_a_key_in_the_path_is_a_variable(
    serve: Serve, described: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(raw(b"Good day."))
    monkeypatch.setenv("SUPPORT_KEY", "hush-4f9aK2mQ7xZt1Kd7Vb5")
    described(f"{server.url}/$SUPPORT_KEY/ask")

    assert await answered("Hello?") == "Good day."
    assert server.requests[0].path == "/v1/hush-4f9aK2mQ7xZt1Kd7Vb5/ask"

    described(f"{server.url}/hush-4f9aK2mQ7xZt1Kd7Vb5/ask")
    with pytest.raises(EvenhandError, match=r"without a password or key \(\$NAME is one\)") as refused:
        load_model("http/support")
    assert "hush" not in str(refused.value)
