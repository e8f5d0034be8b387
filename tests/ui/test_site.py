"""Who gets in and what another site can make a browser send, with real requests."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evenhand.core.errors import PlanError
from evenhand.show.markup import tag
from evenhand.web.keys import KeyConfig, new_key
from evenhand.web.site import HEADERS, Site, html, page

KEY, HASH = new_key()
ADMIN, ADMIN_HASH = new_key()
KEYS = {"reader": KeyConfig(hash=HASH), "owner": KeyConfig(hash=ADMIN_HASH, may=("admin",))}
BROWSER = {"Accept": "text/html"}


@asynccontextmanager
async def opened(keys: Mapping[str, KeyConfig] | None = None, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async def show(request: web.Request) -> web.Response:
        return html(page("Runs", tag("section", tag("h1", "Runs"), site.token_field(request), id="runs")))

    async def write(_: web.Request) -> web.Response:
        return web.Response(text="written")

    async def fail(_: web.Request) -> web.Response:
        raise ZeroDivisionError("secret detail")

    async def own(request: web.Request) -> web.Response:
        site.require(request, "admin")
        return web.Response(text="yours")

    routes = [web.get("/", show), web.post("/write", write), web.get("/fail", fail), web.get("/own", own)]
    site = Site([*routes, web.get("/rate/me", write)], keys=keys, **options)
    async with (
        TestServer(site.app()) as server,
        aiohttp.ClientSession(server.make_url(""), cookie_jar=aiohttp.CookieJar(unsafe=True)) as client,
    ):
        yield client


async def token(client: aiohttp.ClientSession, path: str = "/") -> str:
    async with client.get(path, headers=BROWSER) as response:
        found = re.search('name="token" value="([0-9a-f]{64})"', await response.text())
    assert found is not None
    return found[1]


async def status(client: aiohttp.ClientSession, method: str, path: str, **options: Any) -> int:
    async with client.request(method, path, allow_redirects=False, **options) as response:
        return response.status


async def test_a_page_has_the_headers_that_protect_it():
    async with opened() as client, client.get("/") as response:
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
        assert "<main" in await response.text()


@pytest.mark.parametrize("name", ["style.css", "ui.js", "page.js"])
async def test_style_and_scripts_are_our_own_files_and_kept_by_the_browser(name: str):
    async with opened() as client:
        async with client.get(f"/static/{name}") as response:
            assert response.status == 200
            known = {"If-None-Match": response.headers["ETag"]}
        assert await status(client, "GET", f"/static/{name}", headers=known) == 304
        assert await status(client, "GET", "/static/..%2fsite.py") == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
async def test_pages_of_other_sites_are_kept_out(headers: dict[str, str]):
    async with opened() as client:
        assert await status(client, "GET", "/", headers=headers) == 403


async def test_a_link_from_another_site_may_be_followed():
    async with opened() as client:
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert await status(client, "GET", "/", headers=headers) == 200
        assert await status(client, "POST", "/write", headers=headers, data={"token": await token(client)}) == 403


async def test_a_post_needs_the_token_of_our_pages():
    async with opened() as client:
        good = await token(client)
        assert await status(client, "POST", "/write") == 403
        assert await status(client, "POST", "/write", data={"token": "0" * 64}) == 403
        assert await status(client, "POST", "/write", data={"token": good}) == 200
        assert await status(client, "POST", "/write", headers={"X-Token": good}) == 200


async def test_a_failure_is_one_sentence_without_its_details(caplog: pytest.LogCaptureFixture):
    async with opened() as client:
        async with client.get("/fail", headers=BROWSER) as response:
            assert response.status == 500
            assert "secret detail" not in await response.text()
        assert "secret detail" in caplog.text
        async with client.get("/nowhere", headers=BROWSER) as response:
            assert response.status == 404
            assert "There is no such page." in await response.text()


def test_other_machines_need_keys():
    with pytest.raises(PlanError, match="needs API keys"):
        Site([], host="0.0.0.0")


async def test_with_keys_a_browser_is_sent_to_the_login_and_a_program_is_refused():
    async with opened(KEYS) as client:
        async with client.get("/", headers=BROWSER, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/login?to=/")
        assert await status(client, "GET", "/") == 401
        assert await status(client, "GET", "/", headers={"Authorization": f"Bearer {KEY}"}) == 200
        assert await status(client, "GET", "/", headers={"Authorization": "Bearer evh-wrong"}) == 401


async def test_a_login_gives_a_session_and_never_the_key():
    async with opened(KEYS) as client:
        form = {"token": await token(client, "/login"), "key": KEY, "to": "/"}
        async with client.post("/login", data=form, allow_redirects=False) as response:
            cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert KEY not in cookie
        inside = await token(client)
        assert inside != form["token"]
        assert await status(client, "POST", "/write", data={"token": form["token"]}) == 403
        assert await status(client, "POST", "/write", data={"token": inside}) == 200
        assert await status(client, "POST", "/logout", data={"token": inside}) == 303
        assert await status(client, "GET", "/") == 401


async def test_a_wrong_key_gives_no_session():
    async with opened(KEYS) as client:
        form = {"token": await token(client, "/login"), "key": "evh-wrong"}
        assert await status(client, "POST", "/login", data=form) == 401
        assert await status(client, "GET", "/") == 401


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "\\/evil", "/\r\nX: y"])
async def test_a_login_leads_to_our_own_pages_only(to: str):
    async with opened(KEYS) as client:
        form = {"token": await token(client, "/login"), "key": KEY, "to": to}
        async with client.post("/login", data=form, allow_redirects=False) as response:
            assert response.headers["Location"] == "/"


async def test_permissions_are_those_of_the_key():
    async with opened(KEYS) as client:
        assert await status(client, "GET", "/own", headers={"Authorization": f"Bearer {KEY}"}) == 403
        assert await status(client, "GET", "/own", headers={"Authorization": f"Bearer {ADMIN}"}) == 200


async def test_a_link_with_its_own_proof_needs_no_key():
    async with opened(KEYS, is_open=lambda request: request.path.startswith("/rate/")) as client:
        assert await status(client, "GET", "/rate/me") == 200
        assert await status(client, "GET", "/") == 401
