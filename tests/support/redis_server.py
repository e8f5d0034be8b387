"""A real Redis server on a free port, without persistence, for tests of the shared state."""

import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def redis_server(folder: Path, port: int | None = None, password: str = "") -> Generator[str]:
    """The URL of a server that runs inside the context; skips the test where Redis is not installed."""
    command = shutil.which("redis-server")
    if command is None:
        pytest.skip("redis-server is not installed")
    pytest.importorskip("redis", reason="the package redis is not installed")
    port = port or free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder))
    if password:
        options += ("--requirepass", password)
    process = subprocess.Popen([command, *options], stdout=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    while True:
        assert process.poll() is None, "redis-server did not start"
        with closing(socket.socket()) as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
