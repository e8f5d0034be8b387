"""Guard servers for tests, stopped after each."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.guard_server import Guarding, Served


@pytest.fixture
async def guarding() -> AsyncIterator[Guarding]:
    """`await guarding(route(url))` starts a server with the one route `guarded`; fields of the config by name.

    `may_open` and `allow_call` are options of the server.
    """
    started: list[Served] = []

    async def start(one: dict[str, Any] | None = None, **config: Any) -> Served:
        routes = {} if one is None else {"routes": {"guarded": one}}
        options = {name: config.pop(name) for name in ("may_open", "allow_call") if name in config}
        started.append(await Served({**routes, **config}, **options).start())
        return started[-1]

    yield start
    for each in started:
        await each.stop()
