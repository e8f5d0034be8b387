"""Concurrency limits: a gate that can be resized, and the adaptive limit, which resizes itself."""

import asyncio

import pytest

from evenhand.core.limiter import AdaptiveLimit, Gate


async def fill(limit: AdaptiveLimit) -> int:
    """Take all the room there is."""
    taken = 0
    while limit.in_flight < int(limit.size):
        await limit.__aenter__()
        taken += 1
    return taken


async def leave(limit: AdaptiveLimit) -> None:
    await limit.__aexit__(None, None, None)


async def settle() -> None:
    """Let everything that can go on, go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def wait_in_line(limit: AdaptiveLimit, line: list[int], number: int) -> None:
    async with limit:
        line.append(number)


async def test_no_more_calls_than_the_limit_are_in_flight():
    limit = AdaptiveLimit(100, start=3)
    most = 0

    async def call() -> None:
        nonlocal most
        async with limit:
            most = max(most, limit.in_flight)
            await asyncio.sleep(0)

    await asyncio.gather(*(call() for _ in range(20)))

    assert (most, limit.in_flight) == (3, 0)


async def test_success_makes_room_while_the_limit_is_used_to_the_full():
    limit = AdaptiveLimit(100, start=4)

    for _ in range(4):
        await fill(limit)
        limit.succeeded()

    # One more per success: after one round of calls there is room for twice as many.
    assert limit.size == 8


async def test_room_that_is_not_used_is_not_followed_by_more():
    limit = AdaptiveLimit(100, start=4)
    await fill(limit)

    for _ in range(50):
        limit.succeeded()

    assert limit.size == 6


async def test_success_makes_no_room_while_there_is_enough():
    limit = AdaptiveLimit(100, start=10)
    await limit.__aenter__()

    limit.succeeded()

    assert limit.size == 10


async def test_the_limit_never_exceeds_its_maximum():
    limit = AdaptiveLimit(5, start=20)
    await fill(limit)

    limit.succeeded()

    assert (limit.size, limit.in_flight) == (5, 5)


async def test_a_push_back_halves_the_limit_once_per_round_of_calls():
    limit = AdaptiveLimit(100, start=16)
    epochs = [await limit.__aenter__() for _ in range(16)]

    for epoch in epochs:
        limit.push_back(epoch)

    assert limit.size == 8


async def test_a_push_back_to_a_later_call_halves_again():
    limit = AdaptiveLimit(100, start=16)
    limit.push_back(await limit.__aenter__())
    await leave(limit)

    limit.push_back(await limit.__aenter__())

    assert limit.size == 4


async def test_after_a_push_back_the_limit_grows_by_one_per_round_trip():
    limit = AdaptiveLimit(100, start=16)
    limit.push_back(await limit.__aenter__())
    await fill(limit)

    for _ in range(8):
        limit.succeeded()

    assert limit.size == pytest.approx(9, abs=0.1)


async def test_the_limit_never_falls_below_one():
    limit = AdaptiveLimit(100, start=2)

    for _ in range(10):
        limit.push_back(await limit.__aenter__())
        await leave(limit)

    assert limit.size == 1
    async with limit:
        assert limit.in_flight == 1


@pytest.mark.parametrize("maximum", [0, -3, 1])
async def test_there_is_always_room_for_one(maximum: int):
    limit = AdaptiveLimit(maximum)

    async with limit:
        assert limit.in_flight == 1


async def test_those_who_wait_are_served_in_the_order_they_came():
    limit = AdaptiveLimit(1, start=1)
    line: list[int] = []
    await limit.__aenter__()
    waiting = [asyncio.create_task(wait_in_line(limit, line, number)) for number in range(5)]
    await settle()

    await leave(limit)
    await asyncio.gather(*waiting)

    assert line == [0, 1, 2, 3, 4]


async def test_a_newcomer_does_not_slip_in_before_those_who_wait():
    limit = AdaptiveLimit(1, start=1)
    line: list[int] = []
    await limit.__aenter__()
    waiting = asyncio.create_task(wait_in_line(limit, line, 1))
    await settle()

    # The room is free and the waiting task has not run yet: that is the moment in which one could slip in.
    await leave(limit)
    await wait_in_line(limit, line, 2)
    await waiting

    assert line == [1, 2]


async def test_one_who_gives_up_waiting_takes_no_room_along():
    limit = AdaptiveLimit(1, start=1)
    line: list[int] = []
    await limit.__aenter__()
    impatient = asyncio.create_task(wait_in_line(limit, line, 1))
    patient = asyncio.create_task(wait_in_line(limit, line, 2))
    await settle()

    impatient.cancel()
    await settle()
    await leave(limit)
    await patient

    assert (line, limit.in_flight) == ([2], 0)


async def test_room_that_was_handed_to_one_who_gives_up_goes_to_the_next():
    limit = AdaptiveLimit(1, start=1)
    line: list[int] = []
    await limit.__aenter__()
    impatient = asyncio.create_task(wait_in_line(limit, line, 1))
    patient = asyncio.create_task(wait_in_line(limit, line, 2))
    await settle()

    await leave(limit)
    impatient.cancel()
    await asyncio.gather(impatient, patient, return_exceptions=True)

    assert (line, limit.in_flight) == ([2], 0)


async def test_all_giving_up_leaves_the_limit_as_it_was():
    limit = AdaptiveLimit(2, start=2)
    await fill(limit)
    waiting = [asyncio.create_task(wait_in_line(limit, [], number)) for number in range(10)]
    await settle()

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await leave(limit)
    await leave(limit)

    assert limit.in_flight == 0
    assert await fill(limit) == 2


async def test_new_room_wakes_those_who_wait():
    limit = AdaptiveLimit(10, start=1)
    line: list[int] = []
    await limit.__aenter__()
    waiting = asyncio.create_task(wait_in_line(limit, line, 1))
    await settle()

    limit.succeeded()
    await waiting

    assert line == [1]


async def test_calls_that_take_several_places_are_not_overtaken():
    gate = Gate(3)
    await gate.acquire(2)
    large = asyncio.create_task(gate.acquire(3))
    small = asyncio.create_task(gate.acquire(1))
    await asyncio.sleep(0)
    assert not large.done()
    assert not small.done(), "a small request must not starve a large one"
    gate.release(2)
    await large
    gate.release(3)
    await small


async def test_a_cancelled_wait_gives_way():
    gate = Gate(3)
    await gate.acquire(2)
    large = asyncio.create_task(gate.acquire(3))
    small = asyncio.create_task(gate.acquire(1))
    await asyncio.sleep(0)
    large.cancel()
    await small
    gate.release(3)
    await gate.acquire(3)


async def test_a_larger_gate_admits_waiting_calls_in_order():
    gate = Gate(1)
    await gate.acquire()
    admitted: list[int] = []

    async def call(number: int) -> None:
        await gate.acquire()
        admitted.append(number)

    waiting = [asyncio.create_task(call(number)) for number in range(5)]
    await settle()
    assert (admitted, gate.waiting, gate.is_full) == ([], 5, True)

    gate.resize(4)
    await settle()
    assert (admitted, gate.in_flight, gate.waiting) == ([0, 1, 2], 4, 2)

    gate.resize(10)
    await asyncio.gather(*waiting)
    assert (admitted, gate.in_flight, gate.is_full) == ([0, 1, 2, 3, 4], 6, False)


async def test_a_smaller_gate_admits_nobody_until_enough_calls_have_ended():
    gate = Gate(3)
    await gate.acquire(3)
    waiting = asyncio.create_task(gate.acquire())
    await settle()

    gate.resize(1)
    for left in (2, 1):
        gate.release()
        await settle()
        assert (gate.in_flight, waiting.done()) == (left, False)
    gate.release()
    await waiting

    assert gate.in_flight == 1


async def test_a_gate_resized_while_calls_wait_loses_none_and_never_exceeds_its_size():
    gate = Gate(4)
    done = 0

    async def call() -> None:
        nonlocal done
        await gate.acquire()
        assert gate.in_flight <= largest
        for _ in range(3):
            await asyncio.sleep(0)
        gate.release()
        done += 1

    largest = 8
    calls = [asyncio.create_task(call()) for _ in range(200)]
    for size in (1, 8, 2, 5, 1, 3):
        gate.resize(size)
        for _ in range(10):
            await asyncio.sleep(0)
    await asyncio.gather(*calls)

    assert (done, gate.in_flight, gate.waiting) == (200, 0, 0)
