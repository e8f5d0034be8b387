"""Failover: which endpoint gets a call, when it rests, and how many retries there are."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from evenhand.core.errors import EndpointError
from evenhand.models.pool import (
    LONGEST_PAUSE,
    LONGEST_REST,
    Breaker,
    Endpoint,
    Failover,
    NoEndpointError,
    RetryBudget,
)

DOWN = EndpointError("down")


class Clock:
    """Time that passes only while somebody sleeps, or as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Calls:
    """Calls that fail at some endpoints; all of them are listed."""

    def __init__(self, *failing: int) -> None:
        self.failing = set(failing)
        self.places: list[int] = []

    async def __call__(self, place: int) -> int:
        self.places.append(place)
        if place in self.failing:
            raise DOWN
        return place


def failover(*endpoints: Endpoint, retries: int = 0, patience: float = float("inf")) -> tuple[Failover, Clock]:
    clock = Clock()
    return Failover(endpoints, retries, patience=patience, sleep=clock.sleep, clock=clock), clock


def sensitive(failures: int = 1) -> Endpoint:
    return Endpoint(breaker=Breaker(failures))


def held_at(group: Failover) -> Callable[[], Awaitable[asyncio.Task[tuple[int, int]]]]:
    """Calls that last until they are cancelled."""

    async def begin() -> asyncio.Task[tuple[int, int]]:
        async def use(place: int) -> int:
            await asyncio.Event().wait()
            return place

        task = asyncio.create_task(group.call(use))
        await asyncio.sleep(0)
        return task

    return begin


async def test_the_preferred_endpoint_is_used_and_the_next_one_if_it_fails():
    group, _ = failover(Endpoint(priority=1, breaker=Breaker(5)), Endpoint(breaker=Breaker(5)))
    calls = Calls()

    assert await group.call(calls) == (1, 0)
    calls.failing = {1}
    assert await group.call(calls) == (0, 1)

    assert calls.places == [1, 1, 0]


async def test_a_breaker_opens_after_failures_in_a_row_and_one_trial_closes_it():
    group, clock = failover(Endpoint(breaker=Breaker(3)))
    calls = Calls(0)
    for _ in range(3):
        with pytest.raises(EndpointError, match="down"):
            await group.call(calls)

    with pytest.raises(NoEndpointError) as told:
        await group.call(calls)
    clock.now += told.value.wait
    trial = await held_at(group)()
    with pytest.raises(NoEndpointError):  # the trial is the only call
        await group.call(calls)

    assert len(calls.places) == 3
    trial.cancel()
    await asyncio.wait([trial])
    calls.failing = set()
    assert await group.call(calls) == (0, 0)
    assert not group.endpoints[0].breaker.is_open


async def test_a_few_failures_in_a_moment_do_not_open_a_breaker_that_wants_time():
    group, clock = failover(Endpoint(breaker=Breaker(2, seconds=1.0)))
    for seconds, is_open in ((0.0, False), (0.5, False), (0.5, True)):
        clock.now += seconds
        await asyncio.gather(group.call(Calls(0)), return_exceptions=True)
        assert group.endpoints[0].breaker.is_open is is_open


async def test_a_success_between_failures_keeps_the_breaker_closed():
    group, _ = failover(Endpoint(breaker=Breaker(2)))
    for failing in ({0}, set[int](), {0}):
        await asyncio.gather(group.call(Calls(*failing)), return_exceptions=True)

    assert not group.endpoints[0].breaker.is_open


async def test_the_rest_doubles_with_each_failed_trial():
    group, clock = failover(sensitive())
    rests: list[float] = []
    for _ in range(8):
        await asyncio.gather(group.call(Calls(0)), return_exceptions=True)
        rests.append(group.endpoints[0].breaker.until - clock.now)
        clock.now += rests[-1]

    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(("asked", "kept"), [(20.0, 20.0), (86_400.0, LONGEST_REST)])
async def test_a_retry_after_is_kept_within_bounds(asked: float, kept: float):
    group, _ = failover(Endpoint(breaker=Breaker(5)))

    async def use(_place: int) -> None:
        error = EndpointError("busy")
        error.retry_after = asked  # pyright: ignore[reportAttributeAccessIssue]
        raise error

    with pytest.raises(EndpointError, match="busy"):
        await group.call(use)
    with pytest.raises(NoEndpointError) as told:
        await group.call(use)

    assert told.value.wait == kept


async def test_a_full_endpoint_leaves_the_call_to_the_next_and_then_calls_wait():
    group, _ = failover(Endpoint(concurrency=1, breaker=Breaker(5)), Endpoint(priority=1, concurrency=1))
    begin = held_at(group)
    first, second = await begin(), await begin()
    busy = [endpoint.in_flight for endpoint in group.endpoints]
    calls = Calls()
    waiting = [asyncio.create_task(group.call(calls)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (busy, calls.places) == ([1, 1], [])

    second.cancel()

    assert await asyncio.gather(*waiting) == [(1, 0), (1, 0)]
    first.cancel()
    await asyncio.wait([first, second])
    assert [endpoint.in_flight for endpoint in group.endpoints] == [0, 0]


async def test_a_waiting_call_fails_when_all_endpoints_have_opened():
    group, _ = failover(Endpoint(concurrency=1, breaker=Breaker(1)))
    fail = asyncio.Event()

    async def use(_place: int) -> None:
        await fail.wait()
        raise DOWN

    first = asyncio.create_task(group.call(use))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(group.call(Calls()))
    await asyncio.sleep(0)
    fail.set()

    results = await asyncio.gather(first, waiting, return_exceptions=True)
    assert [type(each) for each in results] == [EndpointError, NoEndpointError]


async def test_a_cancelled_call_gives_its_place_in_the_queue_away():
    group, _ = failover(Endpoint(concurrency=1))
    begin = held_at(group)
    first, second = await begin(), await begin()
    calls = Calls()
    third = asyncio.create_task(group.call(calls))
    await asyncio.sleep(0)

    second.cancel()
    first.cancel()

    assert await third == (0, 0)
    await asyncio.wait([first, second])
    assert group.endpoints[0].in_flight == 0


async def test_a_call_that_is_cancelled_after_its_patience_counts_as_failed():
    group, clock = failover(sensitive(), patience=4)
    begin = held_at(group)
    for seconds, is_open in ((3, False), (4, True)):
        call = await begin()
        clock.now += seconds
        call.cancel()
        await asyncio.wait([call])
        assert group.endpoints[0].breaker.is_open is is_open


async def test_a_stream_that_is_left_after_its_patience_does_not_count():
    group, clock = failover(sensitive(), patience=4)
    _, stream = await group.begin(Calls())
    clock.now += 60

    stream.end(asyncio.CancelledError())

    assert not group.endpoints[0].breaker.is_open and not group.endpoints[0].in_flight


async def test_retries_are_a_share_of_the_calls_and_a_few_more():
    group, clock = failover(Endpoint(breaker=Breaker(10**9)), retries=5)
    calls = Calls(0)
    for _ in range(100):
        clock.now = 100.0  # all at once
        await asyncio.gather(group.call(calls), return_exceptions=True)

    # A few more still: what was spent before a pause is partly forgotten after it.
    assert 100 < len(calls.places) <= 100 + 1.2 * (RetryBudget.least + 0.2 * 100)


async def test_the_budget_comes_back():
    budget = RetryBudget()
    spent = [budget.spend(0.0) for _ in range(20)]

    assert spent == [True] * 10 + [False] * 10
    assert budget.spend(5 * RetryBudget.seconds)


async def test_a_retry_waits_a_little_and_a_long_rest_is_not_waited_for():
    group, clock = failover(sensitive(), retries=9)
    calls = Calls(0)

    with pytest.raises(EndpointError, match="down"):
        await group.call(calls)

    assert len(calls.places) == 4  # after rests of 1, 2 and 4 s; the next one has 8
    assert clock.now - 100 < 7 + 3 * LONGEST_PAUSE
