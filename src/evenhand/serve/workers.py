"""Several processes that serve one port, watched by a parent that passes signals on and replaces the fallen."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from evenhand import aio
from evenhand.errors import UsageError
from evenhand.serve.lifecycle import Order, address, serve

_BRIEF = 3.0
"""Seconds that a worker must live; one that ends sooner would end again."""
_spawn = multiprocessing.get_context("spawn")


def serve_with_workers(order: Order, count: int, ready: Callable[[str], None]) -> bool:
    """Serve until told to end; whether all workers finished their requests."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("This system cannot share a port between processes; serve without --workers.")
    with _reserved(order) as port, _Parent(replace(order, port=port), count) as parent:
        ready(address(order.host, port))
        return parent.watch()


class _Parent:
    """The workers, and what signals asked for."""

    def __init__(self, order: Order, count: int) -> None:
        self._order = order
        self._ending = False
        self._workers = {number: self._start(number) for number in range(1, count + 1)}

    def __enter__(self) -> _Parent:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for process, _began in self._workers.values():
            process.join()

    def watch(self) -> bool:
        """Until all workers have ended; one that ends on its own is replaced."""
        good = True
        while self._workers:
            wait([process.sentinel for process, _ in self._workers.values()], timeout=0.5)
            for number, (process, began) in list(self._workers.items()):
                if process.is_alive():
                    continue
                good = good and process.exitcode == 0
                del self._workers[number]
                if self._ending:
                    continue
                if time.monotonic() - began < _BRIEF:
                    self._end()
                    raise UsageError(f"Worker {number} ended as soon as it began; its last words are above.")
                self._workers[number] = self._start(number)
        return good

    def _start(self, number: int) -> tuple[BaseProcess, float]:
        process = _spawn.Process(target=_work, args=(replace(self._order, worker=number),), name=f"worker-{number}")
        process.start()
        return process, time.monotonic()

    def _end(self, *_: object) -> None:
        self._ending = True
        self._send(signal.SIGTERM)

    def _pass_on(self, number: int, _frame: object) -> None:
        self._send(number)

    def _send(self, number: int) -> None:
        for process, _ in self._workers.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)


def _work(order: Order) -> None:
    finished = aio.run(serve(order, lambda _address: None))
    sys.exit(0 if finished else 1)


@contextmanager
def _reserved(order: Order) -> Generator[int]:
    """A port that is ours before any worker starts, also when it is to be found (0); nobody listens on this socket."""
    family = socket.AF_INET6 if ":" in order.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind((order.host, order.port))
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"Cannot listen on {order.host} port {order.port}: {why}; choose another --port."
            ) from error
        yield held.getsockname()[1]
