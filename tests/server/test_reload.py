"""Reloads of the config: none of them opens a server to clients that it kept out, and half a file is not used."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import PlanError, UsageError
from evenhand.server.config import make_config
from evenhand.server.process import Lifecycle
from evenhand.web.errors import RequestError
from evenhand.web.keys import new_key
from support.guard_server import Guarding
from support.server import skip

KEY, HASH = new_key()
ROUTES = {"guarded": {"model": "fake/Good day.", "method": "default"}}
KEYED: dict[str, Any] = {"routes": ROUTES, "keys": {"team": {"hash": HASH, "may": ["admin"]}}}
OPEN: dict[str, Any] = {"routes": ROUTES}


async def test_a_config_that_loses_its_keys_is_rejected_and_the_old_one_stays(guarding: Guarding, tmp_path: Path):
    guard = await guarding(**KEYED)
    file = tmp_path / "guard.yaml"
    file.write_text(json.dumps(OPEN))

    with pytest.raises(RequestError, match=r"has no keys.*restart with --open"):
        await Lifecycle(guard.server, file).reload()

    assert (await guard.chat()).status == 401
    assert (await guard.chat(headers={"Authorization": f"Bearer {KEY}"})).status == 200


async def test_the_last_key_may_go_where_the_server_was_started_with_open(guarding: Guarding):
    guard = await guarding(**KEYED, may_open=True)

    guard.server.reload(make_config(OPEN))

    assert (await guard.chat()).status == 200


async def test_a_server_without_keys_reloads_without_keys(guarding: Guarding):
    guard = await guarding(**OPEN)

    assert guard.server.reload(make_config(OPEN)) == []


async def test_new_origins_wait_for_the_restart_in_the_check_of_origins_too(guarding: Guarding):
    guard = await guarding(**OPEN)

    assert guard.server.reload(make_config({**OPEN, "cors": ["https://app.example.org"]})) == ["cors"]

    assert (await guard.chat(headers={"Origin": "https://app.example.org"})).status == 403


async def test_larger_requests_are_accepted_after_a_reload(guarding: Guarding):
    guard = await guarding(**OPEN, limits={"body_mb": 0.01})
    assert (await guard.chat("x" * 15_000)).status == 413

    guard.server.reload(make_config({**OPEN, "limits": {"body_mb": 0.02}}))

    assert (await guard.chat("x" * 15_000)).status == 200


async def test_a_file_is_read_again_until_it_is_complete(guarding: Guarding, tmp_path: Path):
    guard = await guarding(**KEYED)
    text = "routes: {after: {model: fake/Good day., method: default}}\n"
    file = tmp_path / "guard.yaml"
    file.write_text(text)
    reload = asyncio.ensure_future(Lifecycle(guard.server, file).reload())
    await asyncio.sleep(0)  # the first half is read

    file.write_text(f"{text}keys: {{team: {{hash: '{HASH}'}}}}\n")
    skip(60)
    await asyncio.sleep(0)
    skip(60)

    assert await reload == []
    assert guard.server.routes.names() == ["after"]
    assert (await guard.chat(model="after")).status == 401  # the second half has the keys


async def test_a_file_that_is_gone_is_reported(guarding: Guarding, tmp_path: Path):
    guard = await guarding(**KEYED)

    with pytest.raises(RequestError, match="cannot be read"):
        await Lifecycle(guard.server, tmp_path / "gone.yaml").reload()


async def test_star_as_origin_needs_keys(guarding: Guarding):
    with pytest.raises(PlanError, match="cors"):
        await guarding(**OPEN, cors=["*"])
    guard = await guarding(**KEYED, cors=["*"], may_open=True)
    with pytest.raises(PlanError, match="cors"):
        guard.server.reload(make_config(OPEN))


async def test_models_that_run_code_need_a_flag_also_in_a_reload(guarding: Guarding):
    code = {"routes": {"guarded": {"model": "call/os:system", "method": "default"}}}
    with pytest.raises(UsageError, match="The config names call/os:system, which runs Python code"):
        await guarding(**code)
    guard = await guarding(**OPEN)

    with pytest.raises(UsageError, match="--allow-call"):
        guard.server.reload(make_config(code))

    assert (await guarding(**code, allow_call=True)).server.routes.names() == ["guarded"]
