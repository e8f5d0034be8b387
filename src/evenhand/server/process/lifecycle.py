"""A server's life: it starts to listen, reads its config again when told to, and ends without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path

from evenhand.errors import EvenhandError
from evenhand.server.app import make_runner
from evenhand.server.config import ServeConfig, read_config
from evenhand.server.errors import RequestError
from evenhand.server.process.connection import connections
from evenhand.server.process.listening import Listener
from evenhand.server.server import Server
from evenhand.server.telemetry.logs import ServerLog

LOOK_SECONDS = 2.0
"""How often the config file is looked at."""
_log = logging.getLogger("evenhand.server")


@dataclass(frozen=True, slots=True)
class Order:
    """What to serve and where; `file` is where the config came from, if it can be read again."""

    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8790
    file: Path | None = None
    worker: int = 0
    """Counts from 1 where several processes serve one port."""


def check(order: Order) -> None:
    """Load everything once, as the server would; what is wrong is raised, and nothing is left behind."""
    audit = order.config.audit.model_copy(update={"file": None})

    async def load() -> None:
        await Server(order.config.model_copy(update={"audit": audit}), order.host).close()

    asyncio.run(load())


async def serve(order: Order, ready: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT; `ready` gets the address. Whether all requests in flight were finished."""
    server = Server(order.config, order.host, order.worker)
    life = _Life(server, order.file)
    runner = make_runner(server, life.reload)
    with ServerLog():
        await runner.setup()
        try:
            listener = Listener(order.host, order.port, shared=bool(order.worker))
            listener.start(connections(runner))
            life.listen()
            ready(address(order.host, listener.port))
            try:
                await life.until_told()
                finished = await life.until_drained()
            finally:
                listener.close()
        finally:
            if server.page is not None:
                server.page.close()
            await runner.cleanup()
            await server.close()
    return finished


class _Life:
    """What signals and the config file have to say."""

    def __init__(self, server: Server, file: Path | None) -> None:
        self._server = server
        self._file = file
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._look = asyncio.Event()
        self._seen = _stamp(file)

    def listen(self) -> None:
        """Hear signals, before anybody knows that there is somebody to send them to."""
        loop = asyncio.get_running_loop()
        if parent := parent_process():
            # A worker whose parent is gone would go on for ever; and the parent alone decides about Ctrl-C.
            loop.add_reader(parent.sentinel, self._stop.set)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            loop.add_signal_handler(signal.SIGINT, self._told)
        loop.add_signal_handler(signal.SIGTERM, self._told)
        loop.add_signal_handler(signal.SIGHUP, self._look.set)

    async def until_told(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        await self._stop.wait()
        watching.cancel()

    async def until_drained(self) -> bool:
        """Until all requests in flight have ended, their time is up, or the signal came a second time."""
        _log.info("Ending with %d requests in flight", self._server.in_flight)
        waits = {asyncio.ensure_future(each) for each in (self._server.drain(), self._at_once.wait())}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if self._server.in_flight:
            _log.warning("Ended, and %d requests got no answer", self._server.in_flight)
        return not self._server.in_flight

    async def reload(self) -> list[str]:
        """Read the file again and serve by it; a file that is wrong is refused, and nothing changes."""
        if self._file is None:
            raise RequestError(409, "This server was started without a config file; there is nothing to read again.")
        self._seen = _stamp(self._file)
        try:
            late = self._server.reload(read_config(self._file))
        except EvenhandError as error:
            _log.error("The config is not used, the old one stays: %s", error)
            raise RequestError(422, f"The old config stays: {error}", code="bad_config") from error
        _log.info("Reloaded%s", f"; a change of {', '.join(late)} needs a restart" if late else "")
        return late

    async def _watch(self) -> None:
        """Reload on SIGHUP, and when the file has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look.wait()
            if self._look.is_set() or _stamp(self._file) != self._seen:
                self._look.clear()
                with contextlib.suppress(RequestError):  # it is in the log
                    await self.reload()

    def _told(self) -> None:
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Differs when the file was changed or exchanged; None where there is none, or not just now."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_size, found.st_ino)


def address(host: str, port: int) -> str:
    """As people write it."""
    shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{port}"
