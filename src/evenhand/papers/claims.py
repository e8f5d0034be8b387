"""A paper's claims with their verdicts on our models, and the rules that decide them.

A claim holds if every comparison behind it is significant after Holm's correction, and fails if one is significant the
other way. Otherwise, if the intervals exclude the published sizes, that is the result; else it cannot be told. A method
that says far less or more than the one it is compared with, or refuses far more often, is not better for that: such a
claim cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.papers.reading import PairedDifference
from evenhand.stats import holm
from evenhand.studies.results import Effect

Verdict = Literal["holds", "fails", "published size excluded", "cannot be told"]
VERDICTS: tuple[Verdict, ...] = ("holds", "fails", "published size excluded", "cannot be told")
NOT_RUN = "not run"
ALPHA = 0.05
MARGIN = 2.0
"""A loss of less than this counts as none, in points of 100."""


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """What a paper says, in our words, and whether it is so for one of our models."""

    text: str
    place: str
    """Where the paper says it."""
    model: str
    verdict: Verdict
    why: str
    preset: str = ""
    """The preset of the method that was checked; empty where there is no choice."""


Finding = tuple[Verdict, str]
"""A verdict and its reason."""


def untold(why: str) -> Finding:
    return "cannot be told", why


def counted(claims: Iterable[PaperClaim]) -> dict[Verdict, int]:
    """Returns how many claims have each verdict."""
    found = [claim.verdict for claim in claims]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def moves(differences: Sequence[PairedDifference | None], wanted: Literal["lower", "higher"]) -> Finding:
    """Decides that all differences go the `wanted` way; so may distances from zero."""
    known = [each for each in differences if each is not None]
    if not known or len(known) < len(differences):
        return untold(NOT_RUN)
    signs = _signs(known)
    sign = -1 if wanted == "lower" else 1
    why = "; ".join(map(str, known))
    if -sign in signs:
        return "fails", why
    return (
        ("holds", why) if set(signs) == {sign} else undecided(why, [each.effect.excludes_published for each in known])
    )


def undecided(why: str, excluded: Iterable[bool | None]) -> Finding:
    """Returns that the published sizes are excluded, if all that are known are; else that nothing can be told."""
    known = [each for each in excluded if each is not None]
    return ("published size excluded", why) if known and all(known) else untold(why)


def kept(differences: Sequence[PairedDifference | None], margin: float = MARGIN) -> Finding:
    """Decides that no score that should be high has lost more than the margin."""
    known = [each for each in differences if each is not None]
    if not known or len(known) < len(differences):
        return untold(NOT_RUN)
    why = f"{'; '.join(map(str, known))}. A loss of up to {margin:g} counts as none"
    lost = [(each.effect.difference or 0.0) < -margin for each in known]
    if any(sign < 0 and loss for sign, loss in zip(_signs(known), lost, strict=True)):
        return "fails", why
    lows = [each.effect.low for each in known]
    return ("holds", why) if all(low is not None and low > -margin for low in lows) else untold(why)


def all_of(*findings: Finding) -> Finding:
    """Decides that all parts of a claim hold."""
    why = ". ".join(dict.fromkeys(reason for _, reason in findings))
    verdicts = {verdict for verdict, _ in findings}
    if "fails" in verdicts:
        return "fails", why
    return ("holds", why) if verdicts == {"holds"} else untold(why)


def unless(fault: str, finding: Finding) -> Finding:
    """Returns the finding, or none if the fault explains the result."""
    decided = finding[0] in ("holds", "published size excluded")
    return untold(f"{fault}. {finding[1]}") if fault and decided else finding


def _signs(differences: Sequence[PairedDifference]) -> list[int]:
    """Returns 1 or −1 for each difference that is significant after correction, else 0."""
    adjusted = holm([each.effect.p_value for each in differences])
    return [_sign(each.effect, p) for each, p in zip(differences, adjusted, strict=True)]


def _sign(effect: Effect, p_value: float | None) -> int:
    if p_value is None or p_value > ALPHA or effect.low is None or effect.high is None:
        return 0
    return 1 if effect.low > 0 else -1 if effect.high < 0 else 0
