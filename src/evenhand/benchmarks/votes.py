"""What the members of a panel chose, round by round: methods note it, benchmarks with known answers read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VOTES = "votes"
"""The key in an outcome's notes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One member in one round."""

    choice: int | None
    """The index of the option; None if the reply could not be read."""
    heard: tuple[int, ...] = ()
    """The options that the others had named, as far as this member had heard them."""


@dataclass(frozen=True, slots=True)
class Votes:
    """All turns: per round, by member. The first round is without discussion."""

    rounds: tuple[Mapping[str, Turn], ...]

    def note(self) -> list[dict[str, Any]]:
        return [{name: [turn.choice, list(turn.heard)] for name, turn in each.items()} for each in self.rounds]

    def choices(self, number: int) -> list[int]:
        """Returns the options named in a round; −1 is the last one."""
        return [turn.choice for turn in self.rounds[number].values() if turn.choice is not None]

    def moves(self) -> list[tuple[int, Turn]]:
        """Returns (choice in the round before, turn) of every turn of the discussion, where both could be read."""
        return [
            (before, turn)
            for earlier, later in zip(self.rounds, self.rounds[1:], strict=False)
            for name, turn in later.items()
            if (before := earlier[name].choice) is not None and turn.choice is not None
        ]


def votes_in(notes: Mapping[str, Any]) -> Votes | None:
    """Returns the votes that a method noted, if it did."""
    noted: Sequence[Mapping[str, Any]] | None = notes.get(VOTES)
    if not noted:
        return None
    return Votes(tuple({name: Turn(choice, tuple(heard)) for name, (choice, heard) in each.items()} for each in noted))
