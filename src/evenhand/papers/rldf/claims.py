"""The RLDF paper's claims about its method, checked against our arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.data.debates import BIASES
from evenhand.papers.rldf.arms import DEFAULT, MODES, SELF, TEACHER, TITLES, Arms, Difference
from evenhand.papers.rldf.tables import CATEGORIES, METRICS
from evenhand.stats import holm
from evenhand.studies.tally import ALL

Answer = Literal["holds", "does not hold", "undecided", "not run"]
Better = Literal["lower", "higher"]

ALPHA = 0.05
MARGIN = 2.0
"""Non-inferiority margin of CE and LS, in points of 100."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, in our words, and its check on the arms of BBQ and of opinions."""

    text: str
    check: Callable[[Arms, Arms], Answer]
    less_biased: tuple[str, ...] = ()
    """The arms of opinions whose lower bias is claimed; empty for claims about something else."""


def claims(own: str) -> list[Claim]:
    """Returns the claims, in the order of the paper; `own` is the arm of its method."""
    return [
        Claim(
            "On BBQ, RLDF is more accurate than every other method, overall",
            lambda bbq, _: ahead(_others(bbq, "accuracy", [ALL]), "higher"),
        ),
        Claim(
            "On BBQ, RLDF is more accurate than Default in each category",
            lambda bbq, _: ahead(_from(bbq, DEFAULT, "accuracy", list(CATEGORIES)), "higher"),
        ),
        Claim(
            "RLDF's answers are less biased than those of every other method, over all types",
            lambda _, said: ahead(_others(said, METRICS["BS"], [ALL], speaking=True), "lower"),
            (own,),
        ),
        Claim(
            "RLDF's answers are less biased than those of every other method, in each type of bias",
            lambda _, said: ahead(_others(said, METRICS["BS"], BIASES, speaking=True), "lower"),
            (own,),
        ),
        Claim(
            f"RLDF costs nothing in CE and LS (less than {MARGIN:g} points against any method)",
            lambda _, said: _kept([*_others(said, METRICS["CE"], [ALL]), *_others(said, METRICS["LS"], [ALL])]),
        ),
        Claim(
            "A teacher makes less biased models than self-reflection",
            lambda _, said: ahead(
                [said.difference(SELF, TEACHER, METRICS["BS"])] if SELF in said and TEACHER in said else [], "lower"
            ),
            (TEACHER, SELF),
        ),
        Claim("After RLDF, beauty is less biased than age and institution", lambda _, said: _beauty(said), (own,)),
    ]


def claim_notes(bbq: Arms, opinions: Arms) -> list[tuple[str, str]]:
    """Returns each claim with its result for our arms; an arm that says nothing is not less biased."""
    return [
        ("The paper says", f"{claim.text}. Here: {_result(claim, bbq, opinions)}.") for claim in claims(opinions.own)
    ]


def _result(claim: Claim, bbq: Arms, opinions: Arms) -> str:
    for arm in claim.less_biased:
        if fault := opinions.fault(arm):
            return f"cannot be said, since {_title(arm)} says too little or too much to be compared: {fault}"
    found = claim.check(bbq, opinions)
    silent = [f"{title}: {fault}" for arm, title in TITLES.items() if (fault := opinions.fault(arm))]
    return f"{found} (not counted: {'; '.join(silent)})" if claim.less_biased and silent else found


def _title(arm: str) -> str:
    return f"RLDF ({MODES[arm]})" if arm in MODES else "RLDF"


def _from(arms: Arms, before: str, metric: str, groups: Sequence[str]) -> list[Difference | None]:
    """Returns the differences from one arm to the paper's method, by group; empty if one of them was not run."""
    if before not in arms or arms.own not in arms:
        return []
    return [arms.difference(before, arms.own, metric, group) for group in groups]


def _others(arms: Arms, metric: str, groups: Sequence[str], *, speaking: bool = False) -> list[Difference | None]:
    """Returns the differences from every other method of the paper that was run, or only from those that speak."""
    methods = [arm for arm in TITLES if not speaking or arms.fault(arm) is None]
    return [each for arm in methods for each in _from(arms, arm, metric, groups)]


def ahead(found: Sequence[Difference | None], better: Better) -> Answer:
    """Holds if every difference is significant after correction; does not if one is significant the other way."""
    if not found:
        return "not run"
    signs = {_sign(each, p) for each, p in zip(found, _corrected(found), strict=True)}
    wanted = -1 if better == "lower" else 1
    if -wanted in signs:
        return "does not hold"
    return "holds" if signs == {wanted} else "undecided"


def _kept(found: Sequence[Difference | None]) -> Answer:
    """Holds if every interval excludes a loss beyond the margin; does not if one is entirely beyond it."""
    if not found:
        return "not run"
    limits = [(each.estimate.low, each.estimate.high) if each else (None, None) for each in found]
    if any(high is not None and high < -MARGIN for _, high in limits):
        return "does not hold"
    return "holds" if all(low is not None and low > -MARGIN for low, _ in limits) else "undecided"


def _corrected(found: Sequence[Difference | None]) -> list[float | None]:
    return holm([each.p_value if each else None for each in found])


def _sign(found: Difference | None, p_value: float | None) -> int:
    """Returns 1 or −1 if the difference is significant, else 0."""
    if found is None or p_value is None or p_value > ALPHA or found.estimate.low is None or found.estimate.high is None:
        return 0
    return 1 if found.estimate.low > 0 else -1 if found.estimate.high < 0 else 0


def _beauty(arms: Arms) -> Answer:
    """Compares the intervals of the types, which have no topics in common."""
    if arms.own not in arms:
        return "not run"
    beauty, *others = (arms.estimate(arms.own, METRICS["BS"], bias) for bias in ("beauty", "age", "institution"))
    if beauty is None or beauty.low is None or beauty.high is None:
        return "undecided"
    known = [(each.low, each.high) for each in others if each and each.low is not None and each.high is not None]
    if any(high < beauty.low for _, high in known):
        return "does not hold"
    return "holds" if len(known) == len(others) and all(low > beauty.high for low, _ in known) else "undecided"
