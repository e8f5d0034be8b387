"""What changes the reading of a study's headline, in words: it is shown beside the headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evenhand.runs.summary import UNGRADED
from evenhand.studies.results import ArmResult, StudyResult

MANY_UNGRADED = 0.01
"""Share of samples without a grade from which on it is a caveat."""
_SHOWN_REASONS = 3


def caveats_of(study: StudyResult) -> list[str]:
    """Return the caveats of models and searches, of runs that were stopped, and of samples without a grade."""
    caveats = [f"{caveat}." for run in study.provenance.values() for caveat in run.get("caveats") or ()]
    arms = [arm for arm in study.arms if arm.iteration is None]
    caveats += [
        f"{arm.label}: {arm.pending:,} samples were not run. Resume the run to complete it."
        for arm in arms
        if arm.pending
    ]
    for arm in arms:
        total, ungraded = sum(arm.statuses.values()), _ungraded(arm)
        if ungraded == total > 0:
            caveats.append(f"{arm.label}: none of the {total:,} samples has a grade. Reasons: {_reasons([arm])}.")
        elif ungraded and ungraded >= MANY_UNGRADED * total:
            caveats.append(
                f"{arm.label}: {ungraded:,} of {total:,} samples have no grade. The graded ones may not represent "
                f"all. Reasons: {_reasons([arm])}."
            )
    return caveats


def nothing_measured(study: StudyResult) -> str:
    """Say that no sample has a result, and why."""
    arms = [arm for arm in study.arms if arm.iteration is None]
    total = sum(map(_ungraded, arms))
    return f"Nothing was measured: none of the {total:,} samples has a grade. Reasons: {_reasons(arms)}."


def _ungraded(arm: ArmResult) -> int:
    return sum(arm.statuses.get(status, 0) for status in UNGRADED)


def _reasons(arms: Sequence[ArmResult]) -> str:
    """List the commonest reasons with their counts, in the words of the server or the method."""
    found: Counter[str] = Counter()
    for arm in arms:
        for status, reason, count in arm.reasons:
            if status in UNGRADED:
                found[f"{status}, {reason.rstrip('. ')}"] += count
    return "; ".join(f"{count:,} × {reason}" for reason, count in found.most_common(_SHOWN_REASONS)) or "not recorded"
