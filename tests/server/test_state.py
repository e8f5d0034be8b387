"""The state in memory, in a file and in Redis: all three must count alike."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from evenhand.core.errors import UsageError
from evenhand.server.config import StateConfig
from evenhand.server.limits import duration
from evenhand.server.state import state as state_module
from evenhand.server.state.state import Memory, State, load_state
from evenhand.server.state.stores import RedisStore, SqliteStore
from evenhand.server.state.types import (
    SILENT_SECONDS,
    Admission,
    Admit,
    Lease,
    Operation,
    Publish,
    Read,
    ReadSpent,
    Refused,
    Settle,
    SharedStore,
    SharedStoreError,
    Spent,
    WrongKey,
    renewal,
)
from evenhand.server.telemetry.events import KEPT
from evenhand.web.keys import FORGET_SECONDS, Quota
from support.guard_server import until
from support.redis_server import free_port, redis_server

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
PLACES = ["memory", "sqlite", "redis"]


class Applies(Protocol):
    async def apply(self, operations: Sequence[Operation]) -> list[Any]: ...


class InMemory:
    """Memory as if it were a store."""

    def __init__(self) -> None:
        self._memory = Memory()

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        return [self._result(each) for each in operations]

    def _result(self, operation: Operation) -> Any:
        match operation:
            case Admit():
                return self._memory.admit(operation)
            case Settle():
                return self._memory.settle(operation)
            case WrongKey():
                return self._memory.wrong_key(operation)
            case _:
                return self._memory.spent()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Any]]:
    """Two connections to one place, as two processes have them; in memory, twice the same."""
    match request.param:
        case "memory":
            only = InMemory()
            yield [only, only]
            return
        case "sqlite":
            opened: list[SharedStore] = [SqliteStore(tmp_path / "state.sqlite") for _ in range(2)]
        case _:
            url = request.getfixturevalue("redis_url")
            opened = [RedisStore(url) for _ in range(2)]
            await opened[0]._client.flushall()  # type: ignore[attr-defined]
    yield opened
    for each in opened:
        await each.aclose()


def ask(number: int, quota: Quota, at: float = NOON, tokens: float = 0.0, money: float = 0.0) -> Admit:
    return Admit("team", quota, Lease(f"r{number}", at + 60, tokens, money), at)


async def admitted(store: Applies, *asks: Admit) -> list[Refused]:
    return [verdict.refused for verdict in await store.apply(asks)]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_a_rate_gives_its_burst_and_then_its_rate(stores: list[Applies]):
    quota = Quota(per_minute=60)

    verdicts: list[Admission] = []
    for number in range(11):
        verdicts += await stores[number % 2].apply([ask(number, quota)])
    later = [ask(12, quota, NOON + 0.5), ask(13, quota, NOON + 1), ask(14, quota, NOON + 1)]

    assert [each.refused for each in verdicts] == [""] * 10 + ["rate"]
    assert [verdicts[0].requests, verdicts[10].wait] == [9, 1]
    assert await admitted(stores[0], *later) == ["rate", "", "rate"]
    assert await admitted(stores[1], *(ask(20 + each, quota, NOON + 600) for each in range(11))) == [""] * 10 + ["rate"]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_a_new_rate_counts_at_once_and_a_clock_set_back_gives_nothing(stores: list[Applies]):
    slow, fast = Quota(per_minute=6), Quota(per_minute=60)

    assert await admitted(stores[0], ask(1, slow), ask(2, slow), ask(3, slow, NOON - 3600)) == ["", "rate", "rate"]
    assert await admitted(stores[1], ask(4, fast)) == [""]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_a_key_has_so_many_places_and_those_of_a_killed_process_become_free(stores: list[Applies]):
    quota = Quota(at_once=2)

    assert await admitted(stores[0], ask(1, quota), ask(2, quota)) == ["", ""]
    assert await admitted(stores[1], ask(3, quota)) == ["at_once"]
    await stores[1].apply([Settle("team", Lease("r1", NOON + 60), 0, 0, NOON)])
    assert await admitted(stores[1], ask(4, quota), ask(5, quota)) == ["", "at_once"]
    assert await admitted(stores[0], ask(6, quota, NOON + 60), ask(7, quota, NOON + 60)) == ["", ""]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_requests_in_flight_reserve_what_they_may_spend(stores: list[Applies]):
    quota = Quota(tokens=1000, money=5, per="day")
    asks = [ask(number, quota, tokens=400, money=0.01) for number in range(100)]

    assert await admitted(stores[0], *asks) == [""] * 3 + ["reserved"] * 97
    ends = [Settle("team", each.lease, 300, 0.01, NOON) for each in asks[:3]]
    await stores[1].apply(ends)
    (verdict,) = await stores[0].apply([ask(101, quota, tokens=400)])
    assert (verdict.refused, verdict.tokens) == ("", 1300)
    await stores[0].apply([Settle("team", Lease("r101", NOON + 60, 400), 100, 0, NOON)])
    assert await admitted(stores[1], ask(102, quota)) == ["tokens"]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_money_is_a_budget_too(stores: list[Applies]):
    quota = Quota(money=0.5, per="month")

    assert await admitted(stores[0], ask(1, quota, money=0.3), ask(2, quota, money=0.3)) == ["", ""]
    assert await admitted(stores[0], ask(3, quota, money=0.3)) == ["reserved"]
    ends = [Settle("team", Lease(f"r{number}", NOON + 60, 0.0, 0.3), 10, 0.25, NOON) for number in (1, 2)]
    await stores[0].apply(ends)
    assert await admitted(stores[1], ask(4, quota)) == ["money"]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
@pytest.mark.parametrize(
    ("per", "same", "next_one"), [("day", 3600, DAY), ("month", 14 * DAY, 15 * DAY), ("total", DAY, None)]
)
async def test_a_budget_renews_with_its_period(stores: list[Applies], per: Any, same: float, next_one: float | None):
    quota = Quota(tokens=100, per=per)
    await stores[0].apply([Settle("team", None, 100, 0, NOON)])

    assert await admitted(stores[1], ask(1, quota, NOON + same)) == ["tokens"]
    if next_one is not None:
        assert await admitted(stores[1], ask(2, quota, NOON + next_one)) == [""]
        await stores[1].apply([Settle("team", None, 100, 0, NOON + next_one)])
        # A clock that is set back neither renews a budget nor forgets what was spent.
        assert await admitted(stores[0], ask(3, quota, NOON), ask(4, quota, NOON + next_one)) == ["tokens", "tokens"]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_what_was_spent_is_known_by_key_and_period(stores: list[Applies]):
    await stores[0].apply(
        [
            Settle("team", None, 100, 0.25, NOON),
            Settle("team", None, 10, 0.5, NOON + DAY),
            Settle("other", None, 0, 0, NOON),
        ]
    )

    (spent,) = await stores[1].apply([ReadSpent()])

    assert spent == {
        "team": {
            "day": Spent("2026-11-17", 10, 0.5),
            "month": Spent("2026-11", 110, 0.75),
            "total": Spent("", 110, 0.75),
        }
    }


@pytest.mark.parametrize("stores", ["memory", "sqlite"], indirect=True)
async def test_wrong_keys_are_forgotten_after_a_while(stores: list[Applies]):
    times = [NOON, NOON + 1, NOON + 1 + FORGET_SECONDS]

    assert await stores[0].apply([WrongKey("10.0.0.1", at) for at in times]) == [1, 2, 1]


@pytest.mark.parametrize("stores", PLACES, indirect=True)
async def test_wrong_keys_are_counted_by_address(stores: list[Applies]):
    assert await stores[0].apply([WrongKey("10.0.0.1", NOON), WrongKey("10.0.0.2", NOON)]) == [1, 1]
    assert await stores[1].apply([WrongKey("10.0.0.1", NOON)]) == [2]


@pytest.mark.parametrize("stores", ["sqlite", "redis"], indirect=True)
async def test_the_page_reads_what_all_processes_published_and_no_more_than_is_kept(stores: list[Applies]):
    await stores[0].apply([Publish("one", ["a", "b"], "board 1", NOON)])
    await stores[1].apply([Publish("two", ["c"], "board 2", NOON)])

    (all_of_it,) = await stores[0].apply([Read(0, NOON)])
    (rest,) = await stores[1].apply([Read(2, NOON)])
    await stores[0].apply([Publish("one", [str(number) for number in range(KEPT)], "board 3", NOON)])
    (latest,) = await stores[1].apply([Read(0, NOON)])

    assert (all_of_it.count, list(all_of_it.events)) == (3, ["a", "b", "c"])
    assert sorted(all_of_it.boards) == ["board 1", "board 2"]
    assert (rest.start, list(rest.events)) == (all_of_it.start, ["c"])
    assert (latest.count, len(latest.events), latest.events[0]) == (3 + KEPT, KEPT, "0")
    assert sorted(latest.boards) == ["board 2", "board 3"]


async def test_a_silent_process_is_no_longer_shown(tmp_path: Path):
    store = SqliteStore(tmp_path / "state.sqlite")
    await store.apply([Publish("one", [], "board", NOON)])

    (shown,) = await store.apply([Read(0, NOON + SILENT_SECONDS + 1)])

    assert shown.boards == []
    await store.aclose()


async def test_a_budget_survives_a_restart_with_a_file_that_others_cannot_read(tmp_path: Path):
    config = StateConfig(file=str(tmp_path / "state.sqlite"))
    state = load_state(config)
    state.settle(Settle("team", None, 100, 0, NOON))
    await state.aclose()

    again = load_state(config)
    verdict = await again.admit(ask(1, Quota(tokens=100, per="day")))
    await again.aclose()

    assert verdict.refused == "tokens"
    assert (tmp_path / "state.sqlite").stat().st_mode & 0o077 == 0


class Failing:
    """A store that works when it is told to, and keeps what it was given."""

    def __init__(self) -> None:
        self.works = False
        self.given: list[Operation] = []
        self.largest = 0

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        if not self.works:
            raise SharedStoreError("no connection")
        self.given += operations
        self.largest = max(self.largest, len(operations))
        return [Admission()] * len(operations)

    async def aclose(self) -> None: ...


async def test_while_the_store_is_down_this_process_counts_alone_and_catches_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(state_module, "REST_SECONDS", 0)
    store = Failing()
    state = State(store)
    quota = Quota(at_once=1)

    verdicts = [await state.admit(ask(number, quota)) for number in (1, 2)]
    state.settle(end := Settle("team", Lease("r1", NOON + 60), 7, 0, NOON))
    third = await state.admit(ask(3, quota))
    down = state.down
    store.works = True
    await until(lambda: not state.down)
    await state.aclose()

    assert [each.refused for each in (*verdicts, third)] == ["", "at_once", ""]
    assert down == "no connection"
    assert end in store.given
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_what_was_spent_meanwhile_is_counted_in_batches_and_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_module, "REST_SECONDS", 0)
    store = Failing()
    state = State(store)
    await state.spent()  # fails
    ends = [Settle("team", None, number, 0, NOON) for number in range(1200)]
    for each in ends:
        state.settle(each)
    store.works = True
    await state.aclose()

    assert store.given == ends
    assert store.largest <= state_module.LONGEST_BATCH


async def test_a_request_that_is_cancelled_while_it_is_admitted_holds_nothing(tmp_path: Path):
    state = load_state(StateConfig(file=str(tmp_path / "state.sqlite")))
    quota = Quota(at_once=1)
    waiting = asyncio.ensure_future(state.admit(ask(1, quota)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert (await state.admit(ask(2, quota))).refused == ""
    await state.aclose()


async def test_redis_may_be_missing_at_the_start_and_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(state_module, "REST_SECONDS", 0.01)
    port = free_port()
    monkeypatch.setenv("STATE", f"redis://:secret-word@127.0.0.1:{port}/0")
    with redis_server(tmp_path):  # skips where there is none
        pass
    state = load_state(StateConfig(redis_env="STATE"))

    await state.start()
    down = state.down
    state.settle(Settle("team", None, 100, 0, NOON))
    with redis_server(tmp_path, port, "secret-word"):
        await until(lambda: not state.down)
        spent = await state.spent()
        await state.aclose()

    assert f"127.0.0.1:{port}" in down
    assert spent["team"]["day"].tokens == 100
    assert "secret-word" not in caplog.text


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    with pytest.raises(UsageError, match=r"For a state in Redis.*\[redis\]"):
        load_state(StateConfig(redis="redis://127.0.0.1"))


@pytest.mark.parametrize(
    ("at", "per", "expected"),
    [
        ("2026-11-16T23:59", "day", "2026-11-17"),
        ("2026-12-31T10:00", "day", "2027-01-01"),
        ("2026-12-31T10:00", "month", "2027-01-01"),
        ("2028-01-31T10:00", "month", "2028-02-01"),
    ],
)
def test_budgets_renew_at_midnight_utc(at: str, per: Any, expected: str):
    renews = renewal(per, datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp())

    assert renews is not None
    assert renews.isoformat() == f"{expected}T00:00:00+00:00"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.12, "120ms"), (6, "6s"), (90, "1m30s"), (25_920, "7h12m0s")]
)
def test_times_are_written_as_openai_writes_them(seconds: float, text: str):
    assert duration(seconds) == text
