"""Findings on the config: what is served is always the last accepted one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evenhand.server.process import Lifecycle
from evenhand.web.errors import RequestError
from evenhand.web.keys import new_key
from support.guard_server import Guarding

KEY, HASH = new_key()
REVOKED, REVOKED_HASH = new_key()
ROUTES = {"guarded": {"model": "fake/Good day.", "method": "default"}}
BEFORE: dict[str, Any] = {"routes": ROUTES, "keys": {"team": {"hash": HASH}, "left": {"hash": REVOKED_HASH}}}
AFTER: dict[str, Any] = {"routes": ROUTES, "keys": {"team": {"hash": HASH}}}


async def _status(guard: Any, key: str) -> int:
    return (await guard.chat(headers={"Authorization": f"Bearer {key}"})).status


async def test_01_a_revoked_key_stays_revoked_after_a_bad_edit_and_the_crash_of_a_worker(
    guarding: Guarding, tmp_path: Path
):
    file, accepted = tmp_path / "guard.yaml", tmp_path / "run" / "accepted.yaml"
    accepted.parent.mkdir()
    worker = await guarding(**BEFORE)
    file.write_text(json.dumps(AFTER))
    await Lifecycle(worker.server, file, accepted).reload()
    file.write_text("routes: {")  # a bad edit

    restarted = await guarding(**BEFORE)  # the parent starts it with the config that it read at first
    await Lifecycle(restarted.server, file, accepted).catch_up()

    assert await _status(restarted, REVOKED) == 401
    assert await _status(restarted, KEY) == 200
    assert accepted.stat().st_mode & 0o077 == 0


async def test_01_a_worker_follows_a_config_that_another_one_has_accepted(guarding: Guarding, tmp_path: Path):
    file, accepted = tmp_path / "guard.yaml", tmp_path / "accepted.yaml"
    first, second = await guarding(**BEFORE), await guarding(**BEFORE)
    late = Lifecycle(second.server, file, accepted)
    file.write_text(json.dumps(AFTER))
    await Lifecycle(first.server, file, accepted).reload()
    file.write_text("routes: {")

    await late.catch_up()

    assert await _status(second, REVOKED) == 401


async def test_11_a_config_path_that_becomes_a_pipe_does_not_hang_the_reload(guarding: Guarding, tmp_path: Path):
    guard = await guarding(**BEFORE)
    os.mkfifo(tmp_path / "guard.yaml")

    with pytest.raises(RequestError, match="not a regular file"):
        await Lifecycle(guard.server, tmp_path / "guard.yaml").reload()
