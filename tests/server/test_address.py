"""Client addresses behind proxies: headers of trusted proxies count, and what clients invent does not."""

import asyncio
from ipaddress import ip_network

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from evenhand.core.errors import PlanError
from evenhand.server.access import Proxies
from evenhand.server.config import make_config
from evenhand.server.telemetry.audit import read_audit
from evenhand.web.keys import address_of, new_key
from support.guard_server import Guarding

TRUSTED = Proxies([ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("127.0.0.1")])


def found(peer: str, *headers: tuple[str, str], proxies: Proxies = TRUSTED) -> str:
    request = make_mocked_request("GET", "/", CIMultiDict(headers)).clone(remote=peer)
    proxies.note_client(request)
    return address_of(request)


XFF, FORWARDED = "X-Forwarded-For", "Forwarded"
CLAIMS = {
    "no header": ((), "10.0.0.1"),
    "one proxy": (((XFF, "203.0.113.7"),), "203.0.113.7"),
    "two proxies": (((XFF, "203.0.113.7, 10.9.9.9"),), "203.0.113.7"),
    "invented by the client": (((XFF, "127.0.0.1, 198.51.100.1, 203.0.113.7"),), "203.0.113.7"),
    "invented in a line of its own": (((XFF, "198.51.100.1"), (XFF, "203.0.113.7")), "203.0.113.7"),
    "with ports": (((XFF, "[2001:db8::7]:4711"),), "2001:db8::7"),
    "IPv4 with a port": (((XFF, "203.0.113.7:4711"),), "203.0.113.7"),
    "IPv4 in IPv6": (((XFF, "::ffff:203.0.113.7"),), "203.0.113.7"),
    "unreadable": (((XFF, "203.0.113.7, <script>"),), "10.0.0.1"),
    "unreadable further left": (((XFF, "unknown, 10.9.9.9"),), "10.9.9.9"),
    "empty": (((XFF, ""),), "10.0.0.1"),
    "only proxies": (((XFF, "10.1.1.1, 10.2.2.2"),), "10.1.1.1"),
    "Forwarded": (((FORWARDED, 'for=198.51.100.1, for="[2001:db8::7]:80";proto=https;by=10.0.0.1'),), "2001:db8::7"),
    "Forwarded without for": (((FORWARDED, "proto=https"),), "10.0.0.1"),
    "both, the same": (((XFF, "203.0.113.7"), (FORWARDED, "For=203.0.113.7")), "203.0.113.7"),
    "both, contradicting": (((XFF, "203.0.113.7"), (FORWARDED, "for=198.51.100.1")), "10.0.0.1"),
}


@pytest.mark.parametrize(("headers", "address"), CLAIMS.values(), ids=CLAIMS.keys())
def test_behind_a_trusted_proxy_the_client_is_the_first_address_that_is_no_proxy(headers, address: str):
    assert found("10.0.0.1", *headers) == address


@pytest.mark.parametrize("header", [(XFF, "127.0.0.1"), (FORWARDED, "for=127.0.0.1")])
def test_headers_of_anybody_else_are_ignored(header: tuple[str, str]):
    assert found("203.0.113.7", header) == "203.0.113.7"
    assert found("10.0.0.1", header, proxies=Proxies()) == "10.0.0.1"


def test_a_proxy_may_connect_by_ipv6():
    assert found("::ffff:10.0.0.1", (XFF, "203.0.113.7")) == "203.0.113.7"
    assert found("fd00::1", (XFF, "203.0.113.7")) == "203.0.113.7"


async def test_log_audit_file_and_wrong_keys_have_the_clients_address(
    guarding: Guarding, tmp_path, caplog: pytest.LogCaptureFixture
):
    key, digest = new_key()
    file = tmp_path / "audit.sqlite"
    one = {"model": "fake/x", "method": "default"}
    keys = {"web": {"hash": digest}}
    guard = await guarding(one, keys=keys, proxies=["127.0.0.0/8"], audit={"file": str(file)})
    forwarded = {XFF: "127.0.0.1, 203.0.113.7"}

    await guard.chat(headers={"Authorization": f"Bearer {key}", **forwarded})
    await guard.chat(headers={"Authorization": "Bearer evh-wrong", **forwarded})
    await guard.told(2)

    assert [event.client for event in guard.server.events.recent] == ["203.0.113.7"] * 2
    assert "203.0.113.7 sent a wrong API key" in caplog.text
    await asyncio.to_thread(guard.server.audit.close)
    assert [row["client"] for row in read_audit(file)] == ["203.0.113.7"] * 2


async def test_without_keys_a_proxy_opens_the_server_to_nobody(guarding: Guarding):
    guard = await guarding({"model": "fake/x", "method": "default"}, proxies=["127.0.0.1"])

    outside = await guard.chat(headers={XFF: "203.0.113.7"})
    inside = await guard.chat(headers={XFF: "127.0.0.1"})

    assert (outside.status, inside.status) == (403, 200)


def test_what_is_no_network_is_refused_by_its_place():
    with pytest.raises(PlanError, match=r"proxies, entry 1"):
        make_config({"routes": {"a": {"model": "fake/x"}}, "proxies": ["proxy.example.org"]})
