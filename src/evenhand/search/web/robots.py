"""Checks a site's robots.txt with Protego (RFC 9309: the longest rule decides, with `*` and `$`).

Robot names are simplified before parsing. So only the product name counts ("Evenhand/1.0" is us, "even" is not), and a
file with thousands of names cannot fill the memory with a copy of the rules for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenhand.core.errors import MissingExtraError

if TYPE_CHECKING:
    from protego import Protego

US = "evenhand"
_AGENT = re.compile(r"\s*user(?:-|\s+)?agent(?:\s*:|\s)\s*([a-z_-]+|\*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one robots.txt; without rules, everything is allowed."""

    rules: Protego | None = None

    def allow(self, path: str) -> bool:
        """Whether the path, with its query, may be fetched; of rules of equal length, `Allow` wins."""
        # With a host, since a path that begins with two slashes would be parsed as one.
        return self.rules is None or self.rules.can_fetch(f"http://host{path}", US)


EVERYTHING = Robots()


def read_robots(text: str) -> Robots:
    """Parse the rules for our name, or else those for all robots."""
    try:
        from protego import Protego
    except ImportError as error:
        raise MissingExtraError("Reading web pages", "search") from error
    return Robots(Protego.parse("\n".join(map(_with_simple_name, text.removeprefix("\ufeff").splitlines()))))


def _with_simple_name(line: str) -> str:
    match = _AGENT.match(line)
    if match is None:
        return line
    name = (match[1] or "").lower()
    return f"User-agent: {name if name in (US, '*') else 'other'}"
