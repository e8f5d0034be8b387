"""Panels: who speaks when, who hears whom, and who speaks at the same time."""

import asyncio
from collections.abc import Sequence
from typing import get_args

import pytest

from evenhand.asking.panel import ORDERS, TOPOLOGIES, Order, Panel, Place, Statement, Topology

ABC = ("a", "b", "c")


def told(panel: Panel) -> dict[str, str]:
    """Per turn ("b1": b in round 1) what is heard, in order: "a0 c0"."""
    return {_short(place): " ".join(map(_short, heard)) for place, heard in panel.heard().items()}


def waves(panel: Panel) -> list[str]:
    return [" ".join(map(_short, wave)) for wave in panel.waves()]


def _short(place: Place) -> str:
    return f"{place.speaker}{place.round}"


def test_the_choices_are_all_that_there_are():
    assert get_args(Order) == ORDERS
    assert get_args(Topology) == TOPOLOGIES


def test_in_turns_everyone_hears_what_was_said_before_also_in_this_round():
    panel = Panel(ABC, 1, opening=True)

    assert told(panel) == {"a0": "", "b0": "", "c0": "", "a1": "b0 c0", "b1": "a0 c0 a1", "c1": "a0 b0 a1 b1"}
    assert waves(panel) == ["a0 b0 c0", "a1", "b1", "c1"]


def test_without_an_opening_the_first_has_heard_nobody():
    panel = Panel(ABC, 2)

    assert told(panel) == {
        "a1": "",
        "b1": "a1",
        "c1": "a1 b1",
        "a2": "b1 c1",
        "b2": "a1 c1 a2",
        "c2": "a1 b1 a2 b2",
    }
    assert waves(panel) == ["a1", "b1", "c1", "a2", "b2", "c2"]


def test_together_all_hear_the_rounds_before_and_speak_at_once():
    panel = Panel(ABC, 2, "together", opening=True)

    heard = told(panel)

    assert [heard[turn] for turn in ("a1", "b1", "c1")] == ["b0 c0", "a0 c0", "a0 b0"]
    assert heard["b2"] == "a0 c0 a1 c1"
    assert waves(panel) == ["a0 b0 c0", "a1 b1 c1", "a2 b2 c2"]


def test_in_a_chain_each_hears_its_predecessor_and_the_first_the_last_one_of_the_round_before():
    panel = Panel(ABC, 2, topology="chain", opening=True)

    heard = told(panel)

    assert [heard[turn] for turn in ("a1", "b1", "c1")] == ["c0", "a1", "b1"]
    assert [heard[turn] for turn in ("a2", "b2", "c2")] == ["c0 c1", "a1 a2", "b1 b2"]
    assert waves(panel) == ["a0 b0 c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_in_a_chain_that_speaks_together_the_predecessor_is_heard_a_round_later():
    panel = Panel(ABC, 1, "together", "chain", opening=True)

    heard = told(panel)

    assert [heard[turn] for turn in ("a1", "b1", "c1")] == ["c0", "a0", "b0"]
    assert waves(panel) == ["a0 b0 c0", "a1 b1 c1"]


def test_in_a_star_the_hub_hears_all_and_the_others_hear_the_hub():
    panel = Panel(ABC, 2, topology="star", opening=True)

    heard = told(panel)

    assert [heard[turn] for turn in ("a1", "b1", "c1")] == ["b0 c0", "a0 a1", "a0 a1"]
    assert heard["a2"] == "b0 c0 b1 c1"
    assert heard["c2"] == "a0 a1 a2"


def test_in_a_star_those_around_the_hub_speak_at_the_same_time():
    panel = Panel(ABC, 2, topology="star", opening=True)

    assert waves(panel) == ["a0 b0 c0", "a1", "b1 c1", "a2", "b2 c2"]


def test_a_shuffled_order_differs_by_round_and_seed_and_is_the_same_again():
    speakers = tuple("abcdefgh")
    panel, other = (Panel(speakers, 3, "shuffled", opening=True, seed=seed) for seed in ("one", "two"))

    orders = [panel.sequence(number) for number in range(4)]

    assert orders == [Panel(speakers, 3, "shuffled", seed="one").sequence(number) for number in range(4)]
    assert orders[0] == speakers
    assert len(set(orders)) == 4
    assert orders[1] != other.sequence(1)
    assert all(sorted(order) == list(speakers) for order in orders)


def test_in_a_shuffled_order_each_hears_those_who_came_before():
    panel = Panel(tuple("abcd"), 1, "shuffled", opening=True, seed="x")
    heard = panel.heard()

    for position, speaker in enumerate(panel.sequence(1)):
        this_round = {place.speaker for place in heard[Place(1, speaker)] if place.round == 1}
        assert this_round == set(panel.sequence(1)[:position])


def test_in_a_shuffled_chain_nobody_hears_only_itself():
    for seed in range(20):
        panel = Panel(ABC, 3, "shuffled", "chain", opening=True, seed=str(seed))
        heard = panel.heard()
        for number in (1, 2, 3):
            first, second, _ = panel.sequence(number)
            assert heard[Place(number, second)][-1] == Place(number, first)
            assert heard[Place(number, first)][-1].round == number - 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("opening", [True, False])
def test_nobody_hears_itself_or_the_future(order: Order, topology: Topology, opening: bool):
    panel = Panel(tuple("abcde"), 3, order, topology, opening, "x")
    heard, spoken = panel.heard(), set[Place]()

    for wave in panel.waves():
        for place in wave:
            assert set(heard[place]) <= spoken
            assert all(other.speaker != place.speaker for other in heard[place])
            assert len(set(heard[place])) == len(heard[place])
        spoken.update(wave)

    assert len(spoken) == 5 * (3 + opening)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_one_alone_hears_nobody(order: Order, topology: Topology):
    assert set(told(Panel(("a",), 2, order, topology, opening=True)).values()) == {""}


def test_without_rounds_there_is_the_opening_alone():
    assert told(Panel(ABC, 0, opening=True)) == {"a0": "", "b0": "", "c0": ""}
    assert told(Panel(ABC, 0)) == {}


async def test_what_is_said_reaches_those_who_hear_it():
    async def speak(speaker: str, number: int, heard: Sequence[Statement[str]]) -> str:
        return f"{speaker}{number}({' '.join(_short(each.place) for each in heard)}: {len(heard)})"

    said = await Panel(("a", "b"), 1, opening=True).hold(speak)

    assert said == [{"a": "a0(: 0)", "b": "b0(: 0)"}, {"a": "a1(b0: 1)", "b": "b1(a0 a1: 2)"}]


async def test_a_statement_is_what_its_speaker_said_in_that_round():
    seen: list[str] = []

    async def speak(speaker: str, number: int, heard: Sequence[Statement[str]]) -> str:
        seen.extend(each.said for each in heard)
        return f"{speaker}{number}"

    await Panel(ABC, 1, "together", opening=True).hold(speak)

    assert seen == ["b0", "c0", "a0", "c0", "a0", "b0"]


async def test_those_who_do_not_wait_for_each_other_speak_at_the_same_time():
    arrived: list[str] = []
    complete = asyncio.Event()

    async def speak(speaker: str, _number: int, _heard: Sequence[Statement[None]]) -> None:
        arrived.append(speaker)
        if len(arrived) == len(ABC):
            complete.set()
        # Would wait for ever if they spoke one after the other.
        await complete.wait()

    await Panel(ABC, 0, opening=True).hold(speak)

    assert sorted(arrived) == list(ABC)


async def test_the_order_of_the_list_is_kept_whoever_ends_first():
    slow = asyncio.Event()

    async def speak(speaker: str, _number: int, _heard: Sequence[Statement[str]]) -> str:
        if speaker == "a":
            await slow.wait()
        else:
            slow.set()
        return speaker

    (said,) = await Panel(("a", "b"), 0, opening=True).hold(speak)

    assert list(said) == ["a", "b"]


async def test_an_error_of_one_ends_the_panel():
    async def speak(speaker: str, _number: int, _heard: Sequence[Statement[None]]) -> None:
        if speaker == "b":
            raise RuntimeError("lost for words")
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="lost for words"):
        await Panel(ABC, 1, opening=True).hold(speak)
