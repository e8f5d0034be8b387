"""A Panel: agents that speak in turns over rounds. It decides who speaks when and who hears what.

Who hears whom is computed in advance, by pure functions, so that turns that do not depend on each other run
concurrently, whatever the order and the topology are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from evenhand.core import aio

T = TypeVar("T")

Order = Literal["round_robin", "shuffled", "together"]
"""`round_robin`: as listed, each hears what was said before it. `shuffled`: the same in a new order every round.
`together`: all at once, each hears the rounds before."""
Topology = Literal["everyone", "chain", "star"]
"""`everyone`: all hear all. `chain`: each hears only its predecessor. `star`: all hear the first, who hears all."""
ORDERS: tuple[Order, ...] = ("round_robin", "shuffled", "together")
TOPOLOGIES: tuple[Topology, ...] = ("everyone", "chain", "star")
OPENING = 0
"""The optional round before the others: all speak at once and have heard nobody."""


class Place(NamedTuple):
    """A turn: who speaks in which round."""

    round: int
    speaker: str


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One statement of a speaker."""

    place: Place
    said: T


Speak = Callable[[str, int, Sequence[Statement[T]]], Coroutine[Any, Any, T]]
"""(speaker, round, what it has heard, in the order in which it was said) → what the speaker says."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Who takes part, how often, and who hears whom."""

    speakers: tuple[str, ...]
    rounds: int
    order: Order = "round_robin"
    topology: Topology = "everyone"
    opening: bool = False
    """Whether there is an opening round before the others."""
    seed: str = ""
    """Seeds the shuffled orders, together with the round."""
    hears: Mapping[str, Sequence[str]] | None = None
    """A graph in place of the topology: speaker → whom it hears; who is not named hears nobody."""

    async def hold(self, speak: Speak[T]) -> list[dict[str, T]]:
        """What was said: per round, by speaker in the order of the list."""
        heard = self.heard()
        said: dict[Place, T] = {}
        for wave in self.waves():
            statements = [[Statement(other, said[other]) for other in heard[place]] for place in wave]
            spoken = await aio.all_of(
                speak(place.speaker, place.round, each) for place, each in zip(wave, statements, strict=True)
            )
            said.update(zip(wave, spoken, strict=True))
        return [{speaker: said[Place(number, speaker)] for speaker in self.speakers} for number in self._numbers()]

    def sequence(self, number: int) -> tuple[str, ...]:
        """The order in which they speak in a round."""
        if self.order != "shuffled" or number == OPENING:
            return self.speakers
        order = list(self.speakers)
        random.Random(f"{self.seed}/{number}").shuffle(order)
        return tuple(order)

    def heard(self) -> dict[Place, tuple[Place, ...]]:
        """For each turn, in speaking order, the earlier turns that its speaker has heard."""
        heard: dict[Place, tuple[Place, ...]] = {}
        for number in self._numbers():
            before = tuple(heard)
            for speaker in self.sequence(number):
                so_far = before if self.order == "together" else tuple(heard)
                known = heard.get(Place(number - 1, speaker), ())
                new = () if number == OPENING else self._reaching(so_far, number, speaker)
                heard[Place(number, speaker)] = tuple(each for each in so_far if each in known or each in new)
        return heard

    def waves(self) -> list[list[Place]]:
        """The turns in groups; a turn depends on turns of earlier groups only."""
        depth: dict[Place, int] = {}
        for place, heard in self.heard().items():
            own = Place(place.round - 1, place.speaker)
            depth[place] = 1 + max((depth[each] for each in (*heard, own) if each in depth), default=-1)
        return [[place for place in depth if depth[place] == wave] for wave in sorted(set(depth.values()))]

    def _reaching(self, so_far: Sequence[Place], number: int, speaker: str) -> Sequence[Place]:
        """The turns so far that the topology lets the speaker hear."""
        others = [place for place in so_far if place.speaker != speaker]
        if self.hears is not None:
            return [place for place in others if place.speaker in self.hears.get(speaker, ())]
        if self.topology == "everyone":
            return others
        if self.topology == "star":
            return [place for place in others if self.speakers[0] in (speaker, place.speaker)]
        order = self.sequence(number)
        position = order.index(speaker)
        if position == 0:
            return [place for place in others if place.round == number - 1][-1:]
        return [place for place in others if place.speaker == order[position - 1]][-1:]

    def _numbers(self) -> range:
        return range(OPENING if self.opening else 1, self.rounds + 1)
