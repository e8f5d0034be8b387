"""The command line as a user meets it: arguments in, exit code and text out."""

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from evenhand.cli.main import entry
from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from support.judges import constant, seeing
from support.referees import contrasting, referee, shown, verdict
from support.server import ChatServer, Reply

T = TypeVar("T")
Judging = Callable[[Sequence[Message], Params], str]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs `evenhand ARGS` in a folder and with a cache of its own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVENHAND_DATA", "EVENHAND_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("evenhand.cli.progress._FIRST", 3600.0)  # how busy the machine is changes no output
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["evenhand", *arguments])
        with pytest.raises(SystemExit) as ended:
            entry()
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run


class Endpoint:
    """`endpoint(reply, …)` starts a server beside the command, which has an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[ChatServer] = []

    def __call__(self, *replies: Reply, **options: Any) -> ChatServer:
        self._servers.append(ChatServer(*replies, **options))
        return self._do(self._servers[-1].start())

    def restarted(self, server: ChatServer, *replies: Reply, **options: Any) -> ChatServer:
        """Stop a server and start another one at the same address."""
        self._do(server.stop())
        return self(*replies, port=int(server.url.rpartition(":")[2].partition("/")[0]), **options)

    def has_seen(self, server: ChatServer, count: int) -> None:
        self._do(server.has_seen(count))

    def close(self) -> None:
        for server in self._servers:
            self._do(server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    started = Endpoint()
    yield started
    started.close()


@pytest.fixture(scope="module")
def finished() -> dict[tuple[str, ...], tuple[Result, Path]]:
    """What `once` ran, with its result and a copy of its folder."""
    return {}


@pytest.fixture
def once(
    cli: Cli, finished: dict[tuple[str, ...], tuple[Result, Path]], tmp_path_factory: pytest.TempPathFactory
) -> Cli:
    """Runs `evenhand ARGS --out p` for the first test of a file that asks for it; the others get copies of p."""

    def run(*arguments: str) -> Result:
        if arguments in finished:
            result, made = finished[arguments]
            shutil.copytree(made, "p")
            return result
        result = cli(*arguments, "--out", "p")
        assert result.code == 0, result
        made = tmp_path_factory.mktemp("finished") / "p"
        finished[arguments] = result, Path(shutil.copytree("p", made))
        return result

    return run


def _with(refereeing: Judging) -> Judging:
    """Judges all that there is, and the statements of debates as the referee does."""

    def reply(messages: Sequence[Message], params: Params) -> str:
        debated = shown(messages, contrasting()) and "Reasoning:" not in messages[-1].content
        return (refereeing if debated else seeing)(messages, params)

    return reply


@pytest.fixture
def _judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models `judging/seeing`, `judging/odds`, which referees by odds alone, and `judging/constant`."""
    by_odds = referee(numbers=lambda found: verdict([3] * len(found)))
    functions = {"seeing": _with(referee()), "odds": _with(by_odds), "constant": constant}

    class JudgingModel(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(functions[name], spec=f"judging/{name}")

    monkeypatch.setitem(PROVIDERS._things, "judging", JudgingModel)
