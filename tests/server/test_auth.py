"""Who gets in, with real requests: keys in every form, rights, and the exception for this machine."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from evenhand.core.errors import PlanError
from evenhand.server.access import auth_middleware, caller_of
from evenhand.server.config import make_config
from evenhand.server.state.state import State
from evenhand.web import keys
from evenhand.web.keys import FORGET_SECONDS, FREE_TRIES, LOCAL_CALLER, Auth, KeyConfig, WrongKeys, is_loopback, new_key
from support.guard_server import Guarding, until
from support.server import skip
from support.small_app import serving

KEY, HASH = new_key()
Ask = Callable[..., Any]


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def app_with(auth: Auth) -> Any:
    async def who(request: web.Request) -> web.Response:
        client = caller_of(request)
        return web.json_response({"name": client.name, "may": sorted(client.may)})

    return serving([web.route("*", "/{path:.*}", who)], auth_middleware(lambda: auth, {"/open"}))


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def keyed(*may: Any) -> Auth:
    other = KeyConfig(hash=new_key()[1])
    return Auth({"first": other, "team": KeyConfig(hash=HASH, may=may), "last": other}, "0.0.0.0")


async def test_the_right_key_gets_in_and_is_known_by_its_name(session: aiohttp.ClientSession):
    async with app_with(keyed("bypass")) as (url, _):
        async with session.post(f"{url}/v1/chat/completions", headers=bearer(KEY)) as response:
            assert response.status == 200
            assert await response.json() == {"name": "team", "may": ["bypass"]}
        async with session.post(f"{url}/v1/chat/completions", headers={"X-Api-Key": KEY}) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("evh-wrong"),
        bearer(KEY[:-1]),
        bearer(HASH),
        bearer("ключ"),
        {"Authorization": KEY},
        {"Authorization": "Basic !!"},
        basic(KEY),  # browsers add it to the requests of other sites
        {"Cookie": f"key={KEY}"},
    ],
)
async def test_without_the_right_key_nobody_gets_in(session: aiohttp.ClientSession, headers: dict[str, str]):
    async with (
        app_with(keyed()) as (url, _),
        session.post(f"{url}/v1/chat/completions", headers=headers) as response,
    ):
        error = (await response.json())["error"]
        assert response.status == 401
        assert error["type"] == "authentication_error"
        assert KEY not in error["message"]
        assert "WWW-Authenticate" not in response.headers  # a browser would ask, and then send it with everything


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/page/state", "admin"),
        ("/page/events", "admin"),
        ("/admin/reload", "admin"),
        ("/metrics", "metrics"),
        ("/%6Detrics", "metrics"),
        ("/metrics", "admin"),
        ("/v1/moderations", "score"),
        ("/v1alpha1/comments:analyze", "score"),
        ("/v1alpha1/comments%3Aanalyze", "score"),
    ],
)
async def test_what_needs_a_right_is_refused_without_it(session: aiohttp.ClientSession, path: str, right: Any):
    async with app_with(keyed("bypass")) as (url, _), session.get(url + path, headers=bearer(KEY)) as response:
        assert response.status == 403
        assert (await response.json())["error"]["code"] == "missing_right"
    async with app_with(keyed(right)) as (url, _), session.get(url + path, headers=bearer(KEY)) as response:
        assert response.status == 200


async def test_a_key_in_the_address_counts_for_perspective_alone(session: aiohttp.ClientSession):
    query = {"key": KEY}
    async with app_with(keyed("score")) as (url, _):
        async with session.post(f"{url}/v1alpha1/comments:analyze", params=query) as response:
            assert response.status == 200
        async with session.post(f"{url}/v1alpha1/comments:analyze", headers={"X-Goog-Api-Key": KEY}) as response:
            assert response.status == 200
        async with session.post(f"{url}/v1/chat/completions", params=query) as response:
            assert response.status == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/open", 200),
        ("HEAD", "/open", 200),
        ("POST", "/open", 401),  # its body would be read
        ("GET", "/open/", 401),
        ("GET", "//open", 401),
        ("GET", "/opened", 401),
    ],
)
async def test_open_paths_may_be_read_without_a_key(
    session: aiohttp.ClientSession, method: str, path: str, status: int
):
    async with app_with(keyed()) as (url, _), session.request(method, url + path) as response:
        assert response.status == status


async def test_keys_can_be_exchanged_while_serving(session: aiohttp.ClientSession):
    current = keyed()

    async def fine(request: web.Request) -> web.Response:
        return web.Response()

    async with serving([web.get("/v1/models", fine)], auth_middleware(lambda: current)) as (url, _):
        async with session.get(f"{url}/v1/models", headers=bearer(KEY)) as response:
            assert response.status == 200
        current = Auth({"new": KeyConfig(hash=new_key()[1])}, "0.0.0.0")
        async with session.get(f"{url}/v1/models", headers=bearer(KEY)) as response:
            assert response.status == 401


async def test_without_keys_this_machine_gets_in_but_may_not_switch_the_method_off(session: aiohttp.ClientSession):
    async with app_with(Auth({}, "127.0.0.1")) as (url, _), session.get(f"{url}/metrics") as response:
        assert (await response.json()) == {"name": "", "may": ["admin", "metrics", "score"]}
    assert "bypass" not in LOCAL_CALLER.may


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # a name that its owner points to 127.0.0.1
        {"Host": "guard.example.org"},  # a reverse proxy that makes the server public
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_without_keys_other_sites_are_kept_out(session: aiohttp.ClientSession, headers: dict[str, str]):
    async with (
        app_with(Auth({}, "127.0.0.1", origins=["https://app.example.org"])) as (url, _),
        session.post(f"{url}/v1/chat/completions", headers=headers) as response,
    ):
        assert response.status == 403


@pytest.mark.parametrize("origin", ["https://app.example.org", None])
async def test_without_keys_our_own_page_and_allowed_origins_get_in(session: aiohttp.ClientSession, origin: str | None):
    async with (
        app_with(Auth({}, "127.0.0.1", origins=["https://app.example.org"])) as (url, _),
        session.post(f"{url}/v1/chat/completions", headers={"Origin": origin or url}) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "guard.example.org", ""])
def test_an_open_address_without_keys_is_refused_at_start(host: str):
    with pytest.raises(PlanError, match="needs API keys"):
        Auth({}, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_addresses(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "a" * 63, pytest.param(KEY, id="a key")])
def test_what_is_no_hash_is_refused_at_start_and_not_repeated(text: str):
    with pytest.raises(PlanError, match="64 hex digits") as caught:
        Auth({"team": KeyConfig(hash=text)}, "127.0.0.1")
    assert KEY not in str(caught.value)


async def test_a_key_for_some_routes_sees_and_uses_these_only(guarding: Guarding):
    routes = {name: {"model": "fake/x", "method": "default"} for name in ("one", "two")}
    guard = await guarding(routes=routes, keys={"team": {"hash": HASH, "routes": ["two"]}})

    listed = await guard.get("/v1/models", headers=bearer(KEY))
    hidden = await guard.chat(model="one", headers=bearer(KEY))

    assert [each["id"] for each in listed.body["data"]] == ["two"]
    assert (hidden.status, hidden.body["error"]["code"]) == (404, "model_not_found")
    assert (await guard.get("/v1/models/one", headers=bearer(KEY))).status == 404
    assert (await guard.chat(model="two", headers=bearer(KEY))).status == 200
    with pytest.raises(PlanError, match="is for the route three, which does not exist"):
        make_config({"routes": routes, "keys": {"team": {"hash": HASH, "routes": ["three"]}}})


@pytest.mark.parametrize(
    ("expires", "status"),
    [("2020-01-31", 401), ("2020-01-31T12:00:00+02:00", 401), (date(2020, 1, 31), 401), ("2999-01-31", 200)],
)
async def test_a_key_works_until_it_expires(guarding: Guarding, expires: Any, status: int):
    key = {"hash": HASH, "expires": expires}
    guard = await guarding({"model": "fake/x", "method": "default"}, keys={"team": key})

    answer = await guard.chat(headers=bearer(KEY))

    assert answer.status == status
    assert status == 200 or answer.body["error"]["code"] == "expired_api_key"


async def test_wrong_keys_are_logged_with_their_address_and_counted(
    guarding: Guarding, caplog: pytest.LogCaptureFixture
):
    guard = await guarding({"model": "fake/x", "method": "default"}, keys={"team": {"hash": HASH, "may": ["metrics"]}})

    refused = await guard.chat(headers=bearer("evh-wrong"))
    metrics = await guard.get("/metrics", headers=bearer(KEY))

    assert refused.status == 401
    assert "127.0.0.1 sent a wrong API key" in caplog.text
    assert "evh-wrong" not in caplog.text
    assert "evenhand_wrong_keys 1.0" in metrics.text


async def test_many_wrong_keys_are_slowed_and_right_ones_are_not(guarding: Guarding, caplog: pytest.LogCaptureFixture):
    guard = await guarding({"model": "fake/x", "method": "default"}, keys={"team": {"hash": HASH}})
    for _ in range(FREE_TRIES):
        await guard.chat(headers=bearer("evh-wrong"))

    slowed = asyncio.ensure_future(guard.chat(headers=bearer("evh-wrong")))
    await until(lambda: guard.server.wrong_keys.count > FREE_TRIES)
    right = await guard.chat(headers=bearer(KEY))

    assert right.status == 200
    assert not slowed.done()
    skip(60)
    assert (await slowed).status == 401
    assert len(caplog.records) == FREE_TRIES


async def test_an_address_is_forgiven_after_a_while_and_addresses_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(keys, "MOST_ADDRESSES", 3)
    now = [0.0]
    state = State()
    wrong = WrongKeys(state, lambda: now[0])
    for _ in range(FREE_TRIES):
        await wrong.note("10.0.0.1")
    now[0] += FORGET_SECONDS
    caplog.clear()

    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"):
        await wrong.note(address)

    assert len(caplog.records) == 5
    assert len(state._memory._wrong._streaks) == 3  # pyright: ignore[reportPrivateUsage]


def test_new_keys_differ_and_only_their_hash_is_for_the_config():
    (one, one_hash), (two, two_hash) = new_key(), new_key()

    assert one != two and one_hash != two_hash
    assert one.startswith("evh-") and len(one) > 40
    assert hashlib.sha256(one.encode()).hexdigest() == one_hash
