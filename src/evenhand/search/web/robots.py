"""What a site's robots.txt allows, as RFC 9309 says: the longest rule decides, with `*` and `$`.

The parser of the standard library (Python 3.11) knows neither wildcards nor the longest rule, so it would visit pages
that sites shut out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

US = "evenhand"
_PRODUCT = re.compile(r"[a-z_-]+|\*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one robots.txt that hold for us: whether a path that fits the pattern may be visited."""

    rules: tuple[tuple[str, bool], ...]

    def allow(self, path: str) -> bool:
        """Whether the path, with its query, may be visited; between rules of equal length, the milder one counts."""
        path = unquote(path)
        fitting = [(len(pattern), allowed) for pattern, allowed in self.rules if _fits(pattern, path)]
        return max(fitting, default=(0, True))[1]


EVERYTHING = Robots(())


def read_robots(text: str) -> Robots:
    """The rules under our name, or else those for everybody."""
    ours: list[tuple[str, bool]] = []
    everybodys: list[tuple[str, bool]] = []
    named = False
    agents = set[str]()
    in_rules = False
    for key, value in _lines(text):
        if key == "user-agent":
            if in_rules:
                agents, in_rules = set[str](), False
            match = _PRODUCT.match(value)
            agents.add(match[0].lower() if match else "")
            named = named or US in agents
        elif key in ("allow", "disallow"):
            in_rules = True
            if value:
                # Compared without percent signs, so that one way of writing cannot hide behind another.
                rule = (unquote(value), key == "allow")
                if US in agents:
                    ours.append(rule)
                if "*" in agents:
                    everybodys.append(rule)
    return Robots(tuple(ours if named else everybodys))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _fits(pattern: str, path: str) -> bool:
    """Whether the path begins as the pattern says. Without regular expressions, which such patterns could stall."""
    to_the_end = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    if not others:
        return not to_the_end or path == first
    place = len(first)
    for part in others[:-1]:
        found = path.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    last = others[-1]
    if to_the_end:
        return path.endswith(last) and len(path) - len(last) >= place
    return path.find(last, place) >= 0
