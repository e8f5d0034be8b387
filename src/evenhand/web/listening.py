"""The listening socket, which accepts all waiting connections at once.

uvloop accepts one connection per loop iteration. On a busy server an iteration is long, and new clients would wait
for minutes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from evenhand.core.errors import UsageError

BACKLOG = 4096
PAUSE = 1.0
"""Seconds without new connections after the system ran out of file descriptors."""
_log = logging.getLogger("evenhand.server")
Protocols = Callable[[], asyncio.BaseProtocol]


class ListeningSocket:
    """Binds its address when created, and accepts connections from `start` to `close`."""

    def __init__(self, host: str, port: int, *, shared: bool = False) -> None:
        self._socket = bound(host, port, shared=shared)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._accepting: set[asyncio.Task[object]] = set()
        self._open = False

    @property
    def port(self) -> int:
        return self._socket.getsockname()[1]

    def start(self, protocols: Protocols) -> None:
        """Accept connections; each gets its own protocol."""
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
            self._loop.add_reader(self._socket, self._accept_all)

    def _accept_all(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files; waiting connections are accepted later
                _log.error("No new connections are accepted for %g s: %s", PAUSE, error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(PAUSE, self._listen)
                return
            connection.setblocking(False)
            task = asyncio.ensure_future(self._loop.connect_accepted_socket(self._protocols, connection))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)


def bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket bound to this address; `shared` lets several processes bind it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound_socket.bind((host, port))
    except OSError as error:
        bound_socket.close()
        why = error.strerror or str(error)
        raise UsageError(f"Cannot listen on {host} port {port}: {why}. Choose another --host or --port.") from error
    return bound_socket


def address(host: str, port: int) -> str:
    """Return the URL to show to people."""
    shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{port}"
