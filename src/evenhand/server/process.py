"""The server as processes: connections, start, reload of the config, graceful shutdown, and workers on one port.

With several workers, a parent process forwards signals and restarts workers that crash. Bytes that are not valid HTTP
get an error in OpenAI's format and are never echoed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from aiohttp import web

from evenhand.core import aio
from evenhand.core.errors import DataError, EvenhandError, UsageError
from evenhand.core.files import scratch, write_bytes
from evenhand.core.language import preload
from evenhand.guards.types import CheckList
from evenhand.server.app import make_runner
from evenhand.server.config import ServeConfig, parse_config
from evenhand.server.server import Server
from evenhand.server.state.state import try_state
from evenhand.server.telemetry.audit import check_place, one_writer
from evenhand.server.telemetry.logs import ServerLog
from evenhand.server.telemetry.metrics import shared_counts
from evenhand.web.errors import RequestError
from evenhand.web.listening import ListeningSocket, Protocols, address, bound

IDLE_SECONDS = 75.0
"""Time after which a connection without a complete request is closed."""
_UNREADABLE = "This is not a valid HTTP request: its header is malformed, too large, or names an unknown encoding."
_log = logging.getLogger("evenhand.server")
POLL_SECONDS = 2.0
"""How often the config file is checked for changes."""
SETTLE_SECONDS = 0.1
"""A file counts as completely written if it has not changed for this time."""
SWITCH_SECONDS = 0.0005
"""How long a thread that scores, redacts or writes may keep the interpreter while the event loop waits for it."""
COLLECT_AFTER = 100_000
"""New objects between two garbage collections; with Python's 700, they take a tenth of the CPU under load."""
_POLL_SECONDS = 0.5
_spawn = multiprocessing.get_context("spawn")


class Connection(web.RequestHandler):
    """Reads requests and passes them to the application."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        _log.info("%s sent an invalid HTTP request (%s)", request.remote, type(exc).__name__)
        response = RequestError(status, _UNREADABLE).response()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log faults of the server; a body that the client encoded wrongly is the client's."""
        error = sys.exception()
        if isinstance(error, web.RequestPayloadError):
            _log.info("%s sent a body that cannot be decoded", self._peer())
        elif not isinstance(error, ConnectionError):  # of a client that left, the request's line tells
            super().log_exception(*args, **kw)

    def _peer(self) -> str:
        peer = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else "A client"


def connections(runner: web.BaseRunner) -> Protocols:
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None
    return lambda: Connection(server, loop=loop, access_log=None, keepalive_timeout=IDLE_SECONDS)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve, and at which address."""

    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8790
    file: Path | None = None
    """The config file, if it can be reloaded."""
    worker: int = 0
    """Counts from 1 if several processes serve one port."""
    restarted: bool = False
    """Whether `config` was read long ago, because this process replaces one that died."""
    may_open: bool = False
    """Whether a reload may remove all keys."""
    allow_call: bool = False
    """Whether routes may have call/ models, which run Python code."""
    run_file: Path | None = None
    """The state shared by several processes if the config names none; the accepted config is stored next to it."""

    def server(self, config: ServeConfig) -> Server:
        return Server(
            config,
            self.host,
            self.worker,
            may_open=self.may_open,
            allow_call=self.allow_call,
            run_file=self.run_file,
        )


Ready = Callable[[str, Mapping[str, CheckList]], None]
"""Gets the address once requests are accepted, and which checks each route runs."""


def check(options: ServeOptions) -> Mapping[str, CheckList]:
    """Load everything once, as the server would, and return which checks run; raises the first error.

    No file is written.
    """
    if file := options.config.audit.path:
        check_place(file)
    audit = options.config.audit.model_copy(update={"file": None})

    async def load() -> Mapping[str, CheckList]:
        server = options.server(options.config.model_copy(update={"audit": audit}))
        await server.close()
        return server.checks()

    return asyncio.run(load())


async def serve(options: ServeOptions, ready: Ready) -> bool:
    """Serve until SIGTERM or SIGINT and return whether all requests were finished."""
    # First of all: a start that has no port must not stand in the audit file of the server that has it.
    with contextlib.closing(ListeningSocket(options.host, options.port, shared=bool(options.worker))) as listener:
        return await _serve_at(listener, options, ready)


async def _serve_at(listener: ListeningSocket, options: ServeOptions, ready: Ready) -> bool:
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # modules stay; routes come later, because a reload must be able to free them
    gc.set_threshold(COLLECT_AFTER, 5, 2)  # older objects soon, too, so that memory stays flat
    server = options.server(options.config)
    accepted = options.run_file and options.run_file.with_name("accepted.yaml")
    lifecycle = Lifecycle(server, options.file, accepted)
    runner = make_runner(server, lifecycle.reload)
    with ServerLog():
        await runner.setup()
        try:
            await server.state.start()
            if options.restarted:
                await lifecycle.catch_up()
            listener.start(connections(runner))
            lifecycle.handle_signals()
            ready(address(options.host, listener.port), server.checks())
            if any(each.run for each in server.checks().values()):
                asyncio.get_running_loop().run_in_executor(None, preload)
            try:
                await lifecycle.until_stopped()
                finished = await lifecycle.until_drained()
            finally:
                listener.close()
        finally:
            if server.page is not None:
                server.page.close()
            await runner.cleanup()
            await server.close()
    return finished


class Lifecycle:
    """Reacts to signals and to changes of the config file.

    `accepted` is a copy of the last valid config file, which all workers of a server keep and follow: a worker that
    starts again, or that has missed an edit, never serves an older config than the others.
    """

    def __init__(self, server: Server, file: Path | None, accepted: Path | None = None) -> None:
        self._server = server
        self._file = file
        self._accepted = accepted
        self._followed = _stamp(accepted)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._reload_requested = asyncio.Event()
        self._seen = _stamp(file)

    def handle_signals(self) -> None:
        """Install the signal handlers; call this before the address is announced."""
        loop = asyncio.get_running_loop()
        if parent := parent_process():
            # A worker must stop when its parent dies, and only the parent reacts to Ctrl-C.
            loop.add_reader(parent.sentinel, self._stop.set)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            loop.add_signal_handler(signal.SIGINT, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGTERM, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload_requested.set)

    async def until_stopped(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        await self._stop.wait()
        watching.cancel()

    async def until_drained(self) -> bool:
        """Wait until all requests have ended, the time limit is reached, or a second signal arrives."""
        _log.info("Shutting down with %d requests in flight", self._server.in_flight)
        waits = {asyncio.ensure_future(each) for each in (self._server.drain(), self._stop_now.wait())}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if self._server.in_flight:
            _log.warning("Shut down; %d requests got no answer", self._server.in_flight)
        return not self._server.in_flight

    async def reload(self) -> list[str]:
        """Reload the config file; an invalid file is rejected and changes nothing."""
        if self._file is None:
            raise RequestError(409, "This server was started without a config file, so it cannot reload one.")
        self._seen = _stamp(self._file)
        try:
            content = await _settled(self._file)
            needs_restart = self._server.reload(parse_config(content, self._file))
        except EvenhandError as error:
            _log.error("The new config is not valid and is ignored: %s", error)
            raise RequestError(
                422, f"The new config is not valid and is ignored: {error}", code="bad_config"
            ) from error
        if self._accepted is not None:
            write_bytes(self._accepted, content, mode=0o600)
            self._followed = _stamp(self._accepted)
        _log.info("Config reloaded%s", f"; restart to apply {', '.join(needs_restart)}" if needs_restart else "")
        return needs_restart

    async def catch_up(self) -> None:
        """Use the last accepted config, and then the file if it is valid: keys that were removed must not work again.

        Raises if the accepted config cannot be used: an older one must not be served.
        """
        self._follow()
        if self._file is not None:
            with contextlib.suppress(RequestError):  # already logged
                await self.reload()

    def _follow(self) -> None:
        """Use the config that another worker has accepted, if there is a newer one."""
        if self._accepted is not None and (stamp := _stamp(self._accepted)) is not None:
            self._server.reload(parse_config(self._accepted.read_bytes(), self._accepted))
            self._followed = stamp

    async def _watch(self) -> None:
        """Reload on SIGHUP and when the file has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._reload_requested.wait()
            if self._reload_requested.is_set() or _stamp(self._file) != self._seen:
                self._reload_requested.clear()
                with contextlib.suppress(RequestError):  # already logged
                    await self.reload()
            if _stamp(self._accepted) != self._followed:
                try:
                    self._follow()
                except EvenhandError as error:
                    _log.error("A config that another worker uses cannot be used here: %s", error)
                    self._stop.set()  # it is started again; an older config must not be served

    def _on_stop_signal(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()


async def _settled(file: Path) -> bytes:
    """Read the file again until two reads are the same, because it may be half written."""
    content = None
    while (again := _content(file)) != content:
        content = again
        await asyncio.sleep(SETTLE_SECONDS)
    return again


def _content(file: Path) -> bytes:
    try:
        # A pipe that took the file's place would be read for ever.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise DataError("cannot be read: it is not a regular file.", file=file)
            return opened.read()
    except OSError as error:
        raise DataError(f"cannot be read: {error}.", file=file) from error


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Return a value that changes with the file; None if there is no file at the moment."""
    try:
        status = file.stat() if file else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def serve_with_workers(options: ServeOptions, count: int, ready: Ready) -> bool:
    """Serve until stopped and return whether all workers finished their requests."""
    checks = check(options)  # one message, not one per process
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("This system cannot share a port between processes. Serve without --workers.")
    if options.config.state.file:
        aio.run(try_state(options.config.state))  # one message, not one per process
    # Reserves the port before any worker starts, also if the system chooses it (port 0); this socket never listens.
    with (
        bound(options.host, options.port, shared=True) as reserved,
        one_writer(audit) if (audit := options.config.audit.path) else contextlib.nullcontext(),
        shared_counts(),
        _run_folder() as folder,
    ):
        port = reserved.getsockname()[1]
        parent = _Parent(replace(options, port=port, run_file=folder / "state.sqlite"), count)
        return parent.watch(lambda: ready(address(options.host, port), checks))


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
    finished = aio.run(serve(options, lambda _address, _checks: listens.set()))
    sys.exit(0 if finished else 1)
