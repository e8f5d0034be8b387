"""Several worker processes on one port, with a parent that forwards signals and restarts crashed workers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path

from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.files import scratch
from evenhand.server.process.lifecycle import ServeOptions, address, serve
from evenhand.server.process.listening import bound
from evenhand.server.state.state import try_state
from evenhand.server.telemetry.metrics import shared_counts

_log = logging.getLogger("evenhand.server")
_POLL_SECONDS = 0.5
_spawn = multiprocessing.get_context("spawn")


def serve_with_workers(options: ServeOptions, count: int, ready: Callable[[str], None]) -> bool:
    """Serve until stopped and return whether all workers finished their requests."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("This system cannot share a port between processes. Serve without --workers.")
    if options.config.state.file:
        aio.run(try_state(options.config.state))  # one message, not one per process
    # Reserves the port before any worker starts, also if the system chooses it (port 0); this socket never listens.
    with bound(options.host, options.port, shared=True) as reserved, shared_counts(), _run_folder() as folder:
        port = reserved.getsockname()[1]
        parent = _Parent(replace(options, port=port, run_file=folder / "state.sqlite"), count)
        return parent.watch(lambda: ready(address(options.host, port)))


@contextmanager
def _run_folder() -> Generator[Path]:
    """A folder that only this user can read, in memory if the system allows it: the live page's texts pass through."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it is private
    where = memory if os.access(memory, os.W_OK) else None
    with scratch(where) as folder:
        yield folder


class _Worker:
    """One process; `listens` is set once it accepts requests."""

    def __init__(self, options: ServeOptions) -> None:
        self.listens = _spawn.Event()
        self.process = _spawn.Process(target=_work, args=(options, self.listens), name=f"worker-{options.worker}")
        self.process.start()

    def send(self, number: int) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class _Parent:
    """Starts, watches and stops the workers."""

    def __init__(self, options: ServeOptions, count: int) -> None:
        self._options = options
        self._ending = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._forward)
        self._workers = {number: self._start(number) for number in range(1, count + 1)}

    def watch(self, ready: Callable[[], None]) -> bool:
        """Wait until all workers have stopped; restart a worker that crashes, unless it never listened."""
        succeeded, announced = True, False
        while self._workers:
            if not announced and all(each.listens.is_set() for each in self._workers.values()):
                ready()
                announced = True
            timeout = _POLL_SECONDS if announced else 0.05
            for number in self._ended(timeout):
                worker = self._workers.pop(number)
                succeeded = succeeded and worker.process.exitcode == 0
                if self._ending:
                    continue
                if worker.listens.is_set():
                    _log.error("Worker %d stopped unexpectedly and is restarted", number)
                    self._workers[number] = self._start(number, restarted=True)
                else:
                    self._end()
        return succeeded

    def _ended(self, timeout: float) -> list[int]:
        wait([each.process.sentinel for each in self._workers.values()], timeout)
        return [number for number, each in self._workers.items() if not each.process.is_alive()]

    def _start(self, number: int, *, restarted: bool = False) -> _Worker:
        return _Worker(replace(self._options, worker=number, restarted=restarted))

    def _end(self, *_: object) -> None:
        self._ending = True
        for each in self._workers.values():
            each.send(signal.SIGTERM)

    def _forward(self, number: int, _frame: object) -> None:
        for each in self._workers.values():
            each.send(number)


def _work(options: ServeOptions, listens: Event) -> None:
    finished = aio.run(serve(options, lambda _address: listens.set()))
    sys.exit(0 if finished else 1)
