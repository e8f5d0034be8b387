"""Several processes that serve one port, watched by a parent that passes signals on and replaces the fallen."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event

from evenhand import aio
from evenhand.errors import UsageError
from evenhand.server.process.lifecycle import Order, address, serve
from evenhand.server.process.listening import bound
from evenhand.server.telemetry.metrics import shared_counts

_log = logging.getLogger("evenhand.server")
_LOOK_SECONDS = 0.5
_spawn = multiprocessing.get_context("spawn")


def serve_with_workers(order: Order, count: int, ready: Callable[[str], None]) -> bool:
    """Serve until told to end; whether all workers finished their requests."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("This system cannot share a port between processes; serve without --workers.")
    # The port is ours before any worker starts, also where it is to be found (0); nobody listens on this socket.
    with bound(order.host, order.port, shared=True) as held, shared_counts():
        port = held.getsockname()[1]
        parent = _Parent(replace(order, port=port), count)
        return parent.watch(lambda: ready(address(order.host, port)))


class _Worker:
    """One process; `listens` is set once it takes requests."""

    def __init__(self, order: Order) -> None:
        self.listens = _spawn.Event()
        self.process = _spawn.Process(target=_work, args=(order, self.listens), name=f"worker-{order.worker}")
        self.process.start()

    def send(self, number: int) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class _Parent:
    """The workers by their number, and what signals asked for."""

    def __init__(self, order: Order, count: int) -> None:
        self._order = order
        self._ending = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._pass_on)
        self._workers = {number: self._start(number) for number in range(1, count + 1)}

    def watch(self, ready: Callable[[], None]) -> bool:
        """Until all workers have ended, well or not; one that ends on its own is replaced, unless it never listened."""
        good, greeted = True, False
        while self._workers:
            if not greeted and all(each.listens.is_set() for each in self._workers.values()):
                ready()
                greeted = True
            timeout = _LOOK_SECONDS if greeted else 0.05
            for number in self._ended(timeout):
                worker = self._workers.pop(number)
                good = good and worker.process.exitcode == 0
                if self._ending:
                    continue
                if worker.listens.is_set():
                    _log.error("Worker %d ended on its own and is replaced", number)
                    self._workers[number] = self._start(number)
                else:
                    self._end()
        return good

    def _ended(self, timeout: float) -> list[int]:
        wait([each.process.sentinel for each in self._workers.values()], timeout)
        return [number for number, each in self._workers.items() if not each.process.is_alive()]

    def _start(self, number: int) -> _Worker:
        return _Worker(replace(self._order, worker=number))

    def _end(self, *_: object) -> None:
        self._ending = True
        for each in self._workers.values():
            each.send(signal.SIGTERM)

    def _pass_on(self, number: int, _frame: object) -> None:
        for each in self._workers.values():
            each.send(number)


def _work(order: Order, listens: Event) -> None:
    finished = aio.run(serve(order, lambda _address: listens.set()))
    sys.exit(0 if finished else 1)
