"""What goes wrong between a client and an endpoint: what is tried again, for how long, and what is said in the end."""

import socket
from collections.abc import Mapping
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from evenhand.core.errors import BadResponseError, EndpointError, ModelError
from evenhand.core.types import Message, Params
from support.fixtures import Connect, Serve
from support.server import Reply, chat, cut, outlast, raw, refuse, reply_with

QUESTION = [Message("user", "Who?")]
KEY = "sk-very-secret-key"
PAGE = b"<!DOCTYPE html><html><body>It works!</body></html>"

NOW = 1_800_000_000
"""15 January 2027, 08:00:00 GMT."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.core.http.time", SimpleNamespace(time=lambda: float(NOW)))


PASSING = {
    "500": reply_with({"error": "oops"}, 500),
    "502 with a page": raw(PAGE, 502),
    "503": raw(b"", 503),
    "429": refuse("Slow down.", status=429),
    "408": raw(b"", 408),
    "cut connection": cut(),
    "broken JSON": raw(b'{"choices": [{"mess'),
    "empty body": raw(b""),
    "no choices": reply_with({"choices": []}),
    "choices are null": reply_with({"choices": None}),
    "error with status 200": reply_with({"error": {"message": "overloaded"}}),
    "neither content nor finish": chat(None, finish=None),
    "content is not text": reply_with({"choices": [{"message": {"content": 3}, "finish_reason": "stop"}]}),
    "message is missing": reply_with({"choices": [{"finish_reason": "stop"}]}),
    "a list": reply_with([]),
    "not UTF-8": raw(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
async def test_a_passing_fault_is_tried_again(serve: Serve, connect: Connect, waits: list[float], fault: Reply):
    server = await serve(fault, fault, chat("B"))

    generation = await connect(server).generate(QUESTION, Params())

    assert (generation.text, generation.usage.retries, generation.usage.calls) == ("B", 2, 1)
    assert len(server.requests) == 3
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]


async def test_a_hanging_call_is_given_up_and_tried_again(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(outlast(3600), chat("B"))

    generation = await connect(server).generate(QUESTION, Params())

    assert (generation.text, generation.usage.retries) == ("B", 1)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (reply_with({"error": "no room left"}, 500), EndpointError, "kept answering 500: .*no room left"),
        (refuse("Slow down.", status=429), EndpointError, "kept answering 429; lower --concurrency"),
        (cut(), EndpointError, r"broke off its reply \(.*\)\.$"),
        (raw(b'{"choices": ['), BadResponseError, "did not send a chat completion but .*choices"),
        (reply_with({"choices": []}), BadResponseError, "did not send a chat completion"),
    ],
    ids=["500", "429", "cut", "broken JSON", "no choices"],
)
async def test_a_lasting_fault_is_an_error_with_a_reason(
    serve: Serve, connect: Connect, waits: list[float], fault: Reply, kind: type[ModelError], words: str
):
    server = await serve(fault)

    with pytest.raises(kind, match=words) as caught:
        await connect(server, retries=3).generate(QUESTION, Params())

    assert len(server.requests) == 4
    assert server.url in str(caught.value)


async def test_a_call_that_always_hangs_says_so(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(outlast(3600))

    with pytest.raises(EndpointError, match="did not answer in time; raise --timeout"):
        await connect(server, retries=1).generate(QUESTION, Params())

    assert len(server.requests) == 2


async def test_waits_grow_and_are_drawn_at_random(
    serve: Serve, connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch
):
    bounds: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        bounds.append((low, high))
        return high / 2

    monkeypatch.setattr("evenhand.core.http.random.uniform", draw)
    server = await serve(reply_with({}, 500))

    with pytest.raises(EndpointError):
        await connect(server, retries=8).generate(QUESTION, Params())

    assert [high for _, high in bounds] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert {low for low, _ in bounds} == {0}
    assert waits == [0.5, 1, 2, 4, 8, 15, 15, 15]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "2.5"}, 2.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After": formatdate(NOW + 20, usegmt=True)}, 20),
        ({"Retry-After": formatdate(NOW - 20, usegmt=True)}, 0),
        ({"Retry-After": "Fri Jan 15 08:00:20 2027"}, 20),
    ],
    ids=["seconds", "zero", "fraction", "milliseconds", "milliseconds first", "date", "past date", "old date form"],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_wait_that_the_server_asks_for_is_kept(
    serve: Serve,
    connect: Connect,
    waits: list[float],
    clock: None,
    headers: Mapping[str, str],
    seconds: float,
    status: int,
):
    server = await serve(reply_with({}, status, headers), chat("B"))

    await connect(server).generate(QUESTION, Params())

    # A little is added at random, so that not all come back at once.
    assert len(waits) == 1
    assert seconds <= waits[0] <= seconds + 1


@pytest.mark.parametrize("value", ["soon", "soon, please", "", "-5", "inf", "nan", "Mon, 99 Jan 2020 00:00:00 GMT"])
async def test_a_wait_that_makes_no_sense_is_ignored(serve: Serve, connect: Connect, waits: list[float], value: str):
    server = await serve(reply_with({}, 429, {"Retry-After": value}), chat("B"))

    generation = await connect(server).generate(QUESTION, Params())

    assert generation.text == "B"
    assert waits[0] <= 1


@pytest.mark.parametrize("value", ["86400", formatdate(NOW + 86_400, usegmt=True)])
async def test_an_absurd_wait_is_an_error_at_once(
    serve: Serve, connect: Connect, waits: list[float], clock: None, value: str
):
    server = await serve(reply_with({}, 429, {"Retry-After": value}))

    with pytest.raises(EndpointError, match=r"429.* It asks for a pause of .* s; resume the run after that"):
        await connect(server).generate(QUESTION, Params())

    assert (len(server.requests), waits) == (1, [])


@pytest.mark.parametrize(
    ("status", "fix"),
    [(401, "check the API key"), (403, "may use this model"), (404, "model name and the base URL"), (405, "base URL")],
)
async def test_a_refused_client_is_told_at_once_what_to_mend(
    serve: Serve, connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch, status: int, fix: str
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = await serve(refuse(f"Incorrect API key provided: {KEY}.", status=status))

    with pytest.raises(EndpointError, match=fix) as caught:
        await connect(server).generate(QUESTION, Params())

    assert caught.value.permanent
    assert f"{server.url}/chat/completions (test-model) answered {status}" in str(caught.value)
    assert "Incorrect API key provided: [key]." in str(caught.value)
    assert KEY not in str(caught.value)
    assert (len(server.requests), waits) == (1, [])


@pytest.mark.parametrize("before", range(90, 125, 7))
async def test_no_part_of_the_key_is_left_where_a_message_is_cut(
    serve: Serve, connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch, before: int
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    echo = KEY.encode().join([b"x" * before, b"y" * (385 - before), b""])
    server = await serve(raw(echo, 200), raw(echo, 500))

    with pytest.raises(ModelError) as first:
        await connect(server, retries=0).generate(QUESTION, Params())
    with pytest.raises(ModelError) as second:
        await connect(server, retries=0).generate(QUESTION, Params())

    assert "sk-" not in str(first.value) + str(second.value)


async def test_an_exhausted_quota_is_not_tried_again(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(refuse("You exceeded your quota.", code="insufficient_quota", status=429))

    with pytest.raises(EndpointError, match="billing") as caught:
        await connect(server).generate(QUESTION, Params())

    assert caught.value.permanent
    assert len(server.requests) == 1


async def test_a_redirect_is_not_followed(
    serve: Serve, connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    elsewhere = await serve(chat("B"))
    server = await serve(raw(b"", 307, {"Location": elsewhere.url}))

    with pytest.raises(EndpointError, match=f"it redirects to {elsewhere.url}; check the base URL"):
        await connect(server).generate(QUESTION, Params())

    assert elsewhere.requests == []


async def test_a_web_page_is_recognised_at_once(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(raw(PAGE))

    with pytest.raises(EndpointError, match=r"sent a web page .*It works.*usually ends in /v1") as caught:
        await connect(server).generate(QUESTION, Params())

    assert caught.value.permanent
    assert len(server.requests) == 1


async def test_a_web_page_from_an_endpoint_that_worked_is_tried_again(
    serve: Serve, connect: Connect, waits: list[float]
):
    server = await serve(chat("A"), raw(PAGE), chat("B"))
    model = connect(server)

    await model.generate(QUESTION, Params())
    generation = await model.generate(QUESTION, Params())

    assert (generation.text, generation.usage.retries) == ("B", 1)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def test_an_endpoint_that_was_never_there_is_given_up_soon(
    connect: Connect, waits: list[float], closed_port: int
):
    model = connect(f"http://127.0.0.1:{closed_port}/v1", retries=6)

    with pytest.raises(EndpointError, match=r"cannot be reached .*is the server up\?") as caught:
        await model.generate(QUESTION, Params())

    assert caught.value.permanent
    assert len(waits) == 2


async def test_an_endpoint_that_goes_away_is_waited_for(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(chat("B"))
    model = connect(server, retries=6)
    await model.generate(QUESTION, Params())
    await server.stop()

    with pytest.raises(EndpointError, match="cannot be reached") as caught:
        await model.generate(QUESTION, Params())

    assert not caught.value.permanent
    assert len(waits) == 6


def no_such_host(*_args: object, **_options: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_a_host_that_does_not_exist_is_told_at_once(
    connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("socket.getaddrinfo", no_such_host)
    model = connect("http://no-such-host.invalid/v1")

    with pytest.raises(EndpointError, match="does not exist; check the base URL") as caught:
        await model.generate(QUESTION, Params())

    assert caught.value.permanent
    assert waits == []


async def test_a_name_that_is_not_found_for_a_while_is_tried_again(
    serve: Serve, connect: Connect, waits: list[float], monkeypatch: pytest.MonkeyPatch
):
    server = await serve(chat("B"))
    model = connect(server.url.replace("127.0.0.1", "localhost"), retries=3)
    await model.generate(QUESTION, Params())
    await model.aclose()
    monkeypatch.setattr("socket.getaddrinfo", no_such_host)

    with pytest.raises(EndpointError, match="cannot be reached") as caught:
        await model.generate(QUESTION, Params())

    assert not caught.value.permanent
    assert len(waits) == 3


OVERLOADED = {
    "429": refuse("Slow down.", status=429),
    "503": raw(b"", 503),
    "529": raw(b"", 529),
    "time-out": outlast(9999),
}


@pytest.mark.parametrize("sign", OVERLOADED.values(), ids=OVERLOADED)
async def test_a_sign_of_overload_halves_the_calls_in_flight(
    serve: Serve, connect: Connect, waits: list[float], sign: Reply
):
    server = await serve(sign, chat("B"))
    model = connect(server, concurrency=16)

    await model.generate(QUESTION, Params())

    assert model.client.limit.size == 8


async def test_an_error_of_one_request_halves_nothing(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(raw(b"", 500), chat("B"))
    model = connect(server, concurrency=16)

    await model.generate(QUESTION, Params())

    assert model.client.limit.size == 16


async def test_a_closed_model_can_be_used_again(serve: Serve, connect: Connect):
    server = await serve(chat("B"))
    model = connect(server)

    await model.generate(QUESTION, Params())
    await model.aclose()
    generation = await model.generate(QUESTION, Params())

    assert generation.text == "B"
