"""The lifecycle of a server process: start, reload of the config, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path

from evenhand.core.errors import DataError, EvenhandError
from evenhand.server.app import make_runner
from evenhand.server.config import ServeConfig, parse_config
from evenhand.server.errors import RequestError
from evenhand.server.process.connection import connections
from evenhand.server.process.listening import Listener
from evenhand.server.server import Server
from evenhand.server.telemetry.logs import ServerLog

POLL_SECONDS = 2.0
"""How often the config file is checked for changes."""
SETTLE_SECONDS = 0.1
"""A file counts as completely written if it has not changed for this time."""
SWITCH_SECONDS = 0.0005
"""How long a thread that scores, redacts or writes may keep the interpreter while the event loop waits for it."""
COLLECT_AFTER = 20_000
"""New objects between two garbage collections; with Python's 700, they take a tenth of the CPU under load."""
_log = logging.getLogger("evenhand.server")


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
    """The state that several processes share if the config names none."""

    def server(self, config: ServeConfig) -> Server:
        return Server(
            config,
            self.host,
            self.worker,
            may_open=self.may_open,
            allow_call=self.allow_call,
            run_file=self.run_file,
        )


def check(options: ServeOptions) -> None:
    """Load everything once, as the server would, and raise the first error; no file is written."""
    audit = options.config.audit.model_copy(update={"file": None})

    async def load() -> None:
        await options.server(options.config.model_copy(update={"audit": audit})).close()

    asyncio.run(load())


async def serve(options: ServeOptions, ready: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT and return whether all requests were finished; `ready` gets the address."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # modules stay; routes come later, because a reload must be able to free them
    gc.set_threshold(COLLECT_AFTER, 5, 2)  # older objects soon, too, so that memory stays flat
    server = options.server(options.config)
    lifecycle = Lifecycle(server, options.file)
    runner = make_runner(server, lifecycle.reload)
    with ServerLog():
        await runner.setup()
        try:
            await server.state.start()
            if options.restarted and options.file:  # keys that were removed since must not work again
                with contextlib.suppress(RequestError):  # already logged
                    await lifecycle.reload()
            listener = Listener(options.host, options.port, shared=bool(options.worker))
            listener.start(connections(runner))
            lifecycle.handle_signals()
            ready(address(options.host, listener.port))
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
    """Reacts to signals and to changes of the config file."""

    def __init__(self, server: Server, file: Path | None) -> None:
        self._server = server
        self._file = file
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
            needs_restart = self._server.reload(parse_config(await _settled(self._file), self._file))
        except EvenhandError as error:
            _log.error("The new config is not valid and is ignored: %s", error)
            raise RequestError(
                422, f"The new config is not valid and is ignored: {error}", code="bad_config"
            ) from error
        _log.info("Config reloaded%s", f"; restart to apply {', '.join(needs_restart)}" if needs_restart else "")
        return needs_restart

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
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error}.", file=file) from error


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Return a value that changes with the file; None if there is no file at the moment."""
    try:
        status = file.stat() if file else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def address(host: str, port: int) -> str:
    """Return the URL to show to people."""
    shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{port}"
