"""The listening socket takes whoever waits."""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.server.config import make_config
from evenhand.server.process import ServeOptions, serve
from evenhand.web import listening
from evenhand.web.listening import ListeningSocket, bound
from support.guard_server import until


class Counting(asyncio.Protocol):
    made = 0

    def connection_made(self, transport: Any) -> None:
        Counting.made += 1
        transport.close()


@pytest.fixture(autouse=True)
def _from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "made", 0)


def test_a_start_without_a_port_leaves_the_audit_file_alone(tmp_path: Path):
    config = make_config({"routes": {"a": {"model": "fake/x"}}, "audit": {"file": str(tmp_path / "audit.sqlite")}})
    with bound("127.0.0.1", 0, shared=False) as taken:
        taken.listen()

        with pytest.raises(UsageError, match="Cannot listen"):
            asyncio.run(serve(ServeOptions(config, port=taken.getsockname()[1]), lambda *_: None))

    assert not any(tmp_path.iterdir())


async def test_all_who_wait_are_taken_in_a_few_turns_of_the_loop():
    listener = ListeningSocket("127.0.0.1", 0)
    listener.start(Counting)
    port = listener.port
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]

    for _ in range(5):
        await asyncio.sleep(0)

    assert Counting.made == 100
    listener.close()
    for client in clients:
        client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_without_room_for_new_connections_it_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch, caplog):
    monkeypatch.setattr(listening, "PAUSE", 0.01)
    listener = ListeningSocket("127.0.0.1", 0)
    full = OSError(errno.EMFILE, "Too many open files")
    room = listener._socket

    class Full:
        """The socket while there is no room."""

        def __getattr__(self, name: str) -> Any:
            return getattr(room, name)

        def accept(self) -> Any:
            listener._socket = room
            raise full

    listener.start(Counting)
    listener._socket = Full()  # type: ignore[assignment]
    with socket.create_connection(("127.0.0.1", room.getsockname()[1])):
        await until(lambda: Counting.made > 0)
    listener.close()

    assert "Too many open files" in caplog.text


async def test_an_address_that_is_taken_is_told():
    first = ListeningSocket("127.0.0.1", 0)
    first.start(Counting)
    with pytest.raises(UsageError, match="Choose another"):
        ListeningSocket("127.0.0.1", first.port)
    first.close()


def test_a_shared_address_can_be_bound_twice():
    with bound("127.0.0.1", 0, shared=True) as first:
        bound("127.0.0.1", first.getsockname()[1], shared=True).close()
