"""The RLDF paper's claims about its method, checked against our arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.data.debates import BIASES
from evenhand.papers.base import ALPHA, MARGIN, NOT_RUN, Finding, PaperClaim, untold
from evenhand.papers.rldf.arms import CATEGORIES, DEFAULT, MODES, SELF, STOPPED, TEACHER, TITLES, Arms, Contrast
from evenhand.papers.rldf.tables import METRICS
from evenhand.stats import holm
from evenhand.studies.results import estimate_text
from evenhand.studies.tally import ALL

Better = Literal["lower", "higher"]
Found = Sequence[tuple[str, Contrast | None]]
"""(what is compared, the difference)."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A claim of the paper, in our words, and its check on the arms of BBQ and of opinions."""

    text: str
    place: str
    check: Callable[[Arms, Arms], Finding]
    less_biased: tuple[str, ...] = ()
    """The arms of opinions whose lower bias is claimed; empty for claims about something else."""


def claim_checks(own: str) -> list[ClaimCheck]:
    """Returns the claims, in the order of the paper; `own` is the arm of its method."""
    return [
        ClaimCheck(
            "On BBQ, RLDF is more accurate than every other method, overall",
            "Table 1",
            lambda bbq, _: ahead(_others(bbq, "accuracy", [ALL]), "higher"),
        ),
        ClaimCheck(
            "On BBQ, RLDF is more accurate than Default in each category",
            "Table 1",
            lambda bbq, _: ahead(_from(bbq, DEFAULT, "accuracy", list(CATEGORIES)), "higher"),
        ),
        ClaimCheck(
            "RLDF's answers are less biased than those of every other method, over all types",
            "Table 3",
            lambda _, said: ahead(_others(said, METRICS["BS"], [ALL], speaking=True), "lower"),
            (own,),
        ),
        ClaimCheck(
            "RLDF's answers are less biased than those of every other method, in each type of bias",
            "Table 3",
            lambda _, said: ahead(_others(said, METRICS["BS"], BIASES, speaking=True), "lower"),
            (own,),
        ),
        ClaimCheck(
            f"RLDF costs nothing in CE and LS (less than {MARGIN:g} points against any method)",
            "Figures 5 and 6",
            lambda _, said: _kept([*_others(said, METRICS["CE"], [ALL]), *_others(said, METRICS["LS"], [ALL])]),
        ),
        ClaimCheck(
            "A teacher makes less biased models than self-reflection",
            "Tables 2 and 4",
            lambda _, said: ahead(
                [("T-S less S-R", said.difference(SELF, TEACHER, METRICS["BS"]))]
                if SELF in said and TEACHER in said
                else [],
                "lower",
            ),
            (TEACHER, SELF),
        ),
        ClaimCheck(
            "After RLDF, beauty is less biased than age and institution",
            "Section 4.2",
            lambda _, said: _beauty(said),
            (own,),
        ),
    ]


def claims_of(bbq: Arms, opinions: Arms) -> list[PaperClaim]:
    """Returns each claim with its verdict on our arms; an arm that says nothing is not less biased."""
    model = opinions.model or bbq.model
    found = [(each, _result(each, bbq, opinions)) for each in claim_checks(opinions.own)]
    return [PaperClaim(each.text, each.place, model, *finding) for each, finding in found]


def _result(claim: ClaimCheck, bbq: Arms, opinions: Arms) -> Finding:
    if opinions.own in opinions.stopped:
        return untold(f"RLDF: {STOPPED}")
    for arm in claim.less_biased:
        if fault := opinions.fault(arm):
            return untold(f"{_title(arm)} cannot be compared: {fault}")
    verdict, why = claim.check(bbq, opinions)
    if opinions.own in opinions and opinions.own not in opinions.by_seed:
        why = f"{why}. One training: how much trainings differ is not in the interval"
    silent = [f"{title}: {fault}" for arm, title in TITLES.items() if (fault := opinions.fault(arm))]
    return verdict, f"{why} (not counted: {'; '.join(silent)})" if claim.less_biased and silent else why


def _title(arm: str) -> str:
    return f"RLDF ({MODES[arm]})" if arm in MODES else "RLDF"


def _from(arms: Arms, before: str, metric: str, groups: Sequence[str]) -> Found:
    """Returns the differences from one arm to the paper's method, by group; empty if one of them was not run."""
    if before not in arms or arms.own not in arms:
        return []
    name = f"RLDF less {TITLES[before]}"
    return [
        (name if group == ALL else f"{name}, {group}", arms.difference(before, arms.own, metric, group))
        for group in groups
    ]


def _others(arms: Arms, metric: str, groups: Sequence[str], *, speaking: bool = False) -> Found:
    """Returns the differences from every other method of the paper that was run, or only from those that speak."""
    methods = [arm for arm in TITLES if arm not in arms.stopped and (not speaking or arms.fault(arm) is None)]
    return [each for arm in methods for each in _from(arms, arm, metric, groups)]


def ahead(found: Found, better: Better) -> Finding:
    """Holds if every difference is significant after correction; fails if one is significant the other way."""
    if not found:
        return untold(NOT_RUN)
    why, corrected = _why(found), holm([each.p_value if each else None for _, each in found])
    signs = {_sign(each, p) for (_, each), p in zip(found, corrected, strict=True)}
    wanted = -1 if better == "lower" else 1
    if -wanted in signs:
        return "fails", why
    return ("holds", why) if signs == {wanted} else untold(why)


def _kept(found: Found) -> Finding:
    """Holds if every interval excludes a loss beyond the margin; fails if one is entirely beyond it."""
    if not found:
        return untold(NOT_RUN)
    limits = [(each.estimate.low, each.estimate.high) if each else (None, None) for _, each in found]
    why = _why(found)
    if any(high is not None and high < -MARGIN for _, high in limits):
        return "fails", why
    return ("holds", why) if all(low is not None and low > -MARGIN for low, _ in limits) else untold(why)


def _why(found: Found) -> str:
    return "; ".join(f"{name}: {estimate_text(each.estimate if each else None)}" for name, each in found)


def _sign(found: Contrast | None, p_value: float | None) -> int:
    """Returns 1 or −1 if the difference is significant, else 0."""
    if found is None or p_value is None or p_value > ALPHA or found.estimate.low is None or found.estimate.high is None:
        return 0
    return 1 if found.estimate.low > 0 else -1 if found.estimate.high < 0 else 0


def _beauty(arms: Arms) -> Finding:
    """Compares the intervals of the types, which have no topics in common."""
    if arms.own not in arms:
        return untold(NOT_RUN)
    names = ("beauty", "age", "institution")
    beauty, *others = (arms.estimate(arms.own, METRICS["BS"], bias) for bias in names)
    why = "; ".join(
        f"{name} {estimate_text(each)}" for name, each in zip(names, (beauty, *others), strict=True) if each is not None
    )
    if beauty is None or beauty.low is None or beauty.high is None:
        return untold(why or NOT_RUN)
    known = [(each.low, each.high) for each in others if each and each.low is not None and each.high is not None]
    if any(high < beauty.low for _, high in known):
        return "fails", why
    holds = len(known) == len(others) and all(low > beauty.high for low, _ in known)
    return ("holds", why) if holds else untold(why)
