"""Ways to show in a situation who a person is: by name, by what the person says, by a hint, or in a profile.

How identity is signalled changes what is found, so every way is a case of its own and is reported apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from evenhand.core.files import read_yaml
from evenhand.data.identities import FOLDER, Group, Name
from evenhand.data.identities.substitute import variants

SIGNALS = ("name", "statement", "cue", "profile")
NEUTRAL = "J. T."
"""The name of a person who is signalled in another way."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """A person of one group, as one signal shows it: texts for the slots of a situation; empty where it is silent."""

    group: Group
    signal: str
    name: str = NEUTRAL
    says: str = ""
    """A sentence in the person's own words."""
    profile: str = ""
    """A line of a record or a system prompt."""

    @property
    def slots(self) -> Mapping[str, str]:
        return {"name": self.name, "says": self.says, "profile": self.profile}


def signalled(signal: str, groups: Sequence[Group], names: Sequence[Name], turn: int) -> list[Signalled]:
    """Return a person of each group; empty if the signal cannot show two groups of the attribute."""
    match signal:
        case "name":
            found = [Signalled(each.group, signal, each.text) for each in variants("{name}", groups, names, turn).found]
        case "statement":
            told = variants("I am {person}.", groups, names, turn).found
            found = [Signalled(each.group, signal, says=each.text) for each in told]
        case "cue":
            cues: Mapping[str, str] = _cues().get(groups[0].attribute, {})
            found = [Signalled(each, signal, says=cues[each.name]) for each in groups if each.name in cues]
        case _:
            found = [Signalled(each, signal, profile=f"{each.attribute}: {each.name}") for each in groups]
    return found if len(found) > 1 else []


@cache
def _cues() -> Mapping[str, Any]:
    return read_yaml(FOLDER / "cues.yaml")
