"""The listening socket. All connections that wait are taken at once, however busy the server is.

uvloop takes one per turn of its loop; a turn is long where many clients have something to say, and newcomers would
wait for minutes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from evenhand.errors import UsageError

BACKLOG = 4096
PAUSE = 1.0
"""Seconds without new connections when the system has no room for them."""
_log = logging.getLogger("evenhand.server")
Protocols = Callable[[], asyncio.BaseProtocol]


class Listener:
    """Bound to its address from the beginning; connections are taken from `start` to `close`."""

    def __init__(self, host: str, port: int, *, shared: bool = False) -> None:
        self._socket = bound(host, port, shared=shared)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._taking: set[asyncio.Task[object]] = set()
        self._open = False

    @property
    def port(self) -> int:
        return self._socket.getsockname()[1]

    def start(self, protocols: Protocols) -> None:
        """Give every connection a protocol of its own."""
        self._socket.listen(BACKLOG)
        self._protocols = protocols
        self._open = True
        self._listen()

    def close(self) -> None:
        if self._open:
            self._loop.remove_reader(self._socket)
        self._open = False
        self._socket.close()

    def _listen(self) -> None:
        if self._open:
            self._loop.add_reader(self._socket, self._take_all)

    def _take_all(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files: those that wait may come in later
                _log.error("No new connections for %g s: %s", PAUSE, error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(PAUSE, self._listen)
                return
            connection.setblocking(False)
            task = asyncio.ensure_future(self._loop.connect_accepted_socket(self._protocols, connection))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)


def bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket with this address, which others may share where several processes serve it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        why = error.strerror or str(error)
        raise UsageError(f"Cannot listen on {host} port {port}: {why}; choose another --host or --port.") from error
    return found
