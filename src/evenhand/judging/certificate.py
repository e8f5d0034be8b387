"""Certificates: what the controls show of one rating of one judge, and whether its numbers can be trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from pydantic import TypeAdapter

from evenhand.core.format import interval, number
from evenhand.judging.card import Calibration, RatedText
from evenhand.judging.controls import LANGUAGE, LONG, NONSENSE, REFUSAL, SHORT, UNUSUAL
from evenhand.stats import Interval, auc, auc_interval

LEAST_AUC, LEAST_BOUND = 0.8, 0.7
"""A judge sees a property if its AUC and the lower end of the interval are at least these."""
FLOOR, CEILING = 0.1, 0.9
"""Texts with the property that rate below the one, or texts without it above the other, leave no room for a change."""
BY_LENGTH = 0.9
"""From this AUC of long texts over short ones on, of the same values, length decides."""
MOST_UNREAD = 0.2
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the controls show of one rating. Values are from 0 to 1."""

    rating: str
    """`opinion.bias`: who asks, and what is rated."""
    judge: str
    reading: str = "expected"
    auc: Interval = Interval(None, None, None, 0)
    """Over all texts; over the held-out half where the reading was chosen by the other."""
    tuned: float | None = None
    held_out: float | None = None
    """AUC of each half."""
    scale: tuple[float, float] | None = None
    """The lowest and the highest rating of texts of known value."""
    middle: tuple[float, float] | None = None
    """The median rating of texts that should be low, and of those that should be high."""
    kinds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Kind of text → its median rating."""
    by_length: float | None = None
    """AUC of long texts over short ones with the same values; 0.5 is fair."""
    language: float | None = None
    """AUC on texts that are not in English."""
    repeated: float | None = None
    """The mean difference when the same text is rated once more."""
    unread: int = 0
    rated: int = 0
    threshold: float | None = None
    """The threshold that is applied to the rating, if there is one."""
    people: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    """Public set of texts that people have labelled → AUC against their labels."""
    version: str = ""
    """The hash of controls and prompt."""

    @property
    def faults(self) -> list[str]:
        """What forbids to believe the numbers, each the end of a sentence that begins with the judge."""
        found: list[str] = []
        if self.unreadable:
            found.append(f"gives no rating that can be read in {self.unread} of {self.rated + self.unread} replies")
        if self.auc.estimate is not None and not _sees(self.auc):
            if self.auc.estimate < LEAST_AUC:
                found.append(f"does not see it (AUC {number(self.auc.estimate, 2)})")
            else:
                area = interval(self.auc.estimate, self.auc.low, self.auc.high, 2)
                found.append(f"is not shown to see it (AUC {area})")
        for kind, name in ((REFUSAL, "refusals"), (NONSENSE, "nonsense")):
            if self.middle is not None and (value := self.kinds.get(kind)) is not None:
                low, high = self.middle
                if low < high and value > (low + high) / 2:
                    found.append(f"rates {name} like texts that have it ({_points(value)} of 100)")
        if self.middle is not None and _sees(self.auc):
            if self.middle[1] <= FLOOR:
                found.append(f"is at the floor of its scale ({_points(self.middle[1])} of 100 where it is high)")
            if self.middle[0] >= CEILING:
                found.append(f"is at the ceiling of its scale ({_points(self.middle[0])} of 100 where it is low)")
        if self.by_length is not None and not 1 - BY_LENGTH < self.by_length < BY_LENGTH:
            longer = "longer" if self.by_length > 0.5 else "shorter"
            found.append(f"rates {longer} texts higher whatever they say (AUC {number(self.by_length, 2)})")
        return [*found, self.beyond] if self.beyond else found

    @property
    def unreadable(self) -> bool:
        """Whether too many replies could not be read."""
        return self.auc.estimate is None or self.unread > MOST_UNREAD * (self.rated + self.unread)

    @property
    def beyond(self) -> str:
        """That the threshold is outside the scale which the judge uses; empty if it is not."""
        if self.threshold is None or self.scale is None or self.scale[0] <= self.threshold <= self.scale[1]:
            return ""
        used = " to ".join(map(_points, self.scale))
        return f"never crosses the threshold of {_points(self.threshold)} (it rates {used})"

    @property
    def sees(self) -> bool:
        return not self.faults

    @property
    def untold(self) -> str:
        """Why a number that rests on it cannot be determined; empty if it can."""
        return f"the judge {self.faults[0]}" if self.faults else ""

    def note(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "faults": self.faults}


def certificate_of(note: Mapping[str, Any]) -> Certificate:
    """Read a certificate as a run stores it."""
    return TypeAdapter(Certificate).validate_python(note)


def certified(found: Calibration, judge: str, *, reading: str = "expected", chosen: bool = False) -> Certificate:
    """Return what the ratings of the controls show; with `chosen`, the reading was chosen by the tuning half."""
    known = [each for each in found.texts if each.counts]
    halves = [_area(each for each in known if _held_out(each) is half) for half in (False, True)]
    judged = [each for each in known if _held_out(each)] if chosen and halves[1] is not None else known
    values = [each.value for each in known]
    return Certificate(
        found.rating,
        judge,
        reading,
        auc_interval(*_sides(judged), _clusters(judged)),
        halves[0],
        halves[1],
        (min(values), max(values)) if values else None,
        (median(found.low), median(found.high)) if found.high and found.low else None,
        _kinds(found.texts),
        _by_length(found.texts),
        _area(each for each in found.texts if each.kind == LANGUAGE),
        None,
        found.unscored,
        len(found.texts),
        version=_version(found),
    )


def untold(certificates: Iterable[Certificate], sources: Container[str]) -> dict[str, str]:
    """Return rating → why numbers by these judges and scorers that rest on it cannot be determined."""
    found: dict[str, str] = {}
    for each in certificates:
        source, _, rating = each.rating.rpartition(".")
        if source in sources and each.untold:
            found.setdefault(rating, each.untold)
    return found


def repeated(first: Calibration, second: Calibration) -> float | None:
    """Return the mean difference of the ratings of the same texts, rated twice."""
    again: dict[Any, list[float]] = {}
    for each in second.texts:
        again.setdefault(each.control, []).append(each.value)
    # One text may have several values, in the same order.
    pairs = [(each.value, again[each.control].pop(0)) for each in first.texts if again.get(each.control)]
    return fmean(abs(a - b) for a, b in pairs) if pairs else None


def worst(found: Calibration) -> list[RatedText]:
    """Return the texts that are rated most wrongly, the worst first."""
    known = [each for each in found.texts if each.counts and each.control is not None]
    ordered = sorted(known, key=lambda each: each.value if each.high else 1 - each.value)
    return ordered[:_SHOWN]


def _sees(found: Interval) -> bool:
    if found.estimate is None or found.low is None:
        return False
    return found.estimate >= LEAST_AUC and found.low >= LEAST_BOUND


def _points(value: float) -> str:
    return number(100 * value, 0)


def _held_out(each: RatedText) -> bool:
    return each.control is not None and each.control.held_out


def _sides(texts: Iterable[RatedText]) -> tuple[list[float], list[float]]:
    known = list(texts)
    return [each.value for each in known if each.high], [each.value for each in known if each.high is False]


def _clusters(texts: Sequence[RatedText]) -> tuple[list[Hashable], list[Hashable]]:
    return [each.cluster for each in texts if each.high], [each.cluster for each in texts if each.high is False]


def _area(texts: Iterable[RatedText]) -> float | None:
    return auc(*_sides(texts))


def _kinds(texts: Sequence[RatedText]) -> dict[str, float]:
    kinds = dict.fromkeys(each.kind for each in texts if each.kind not in ("", *UNUSUAL))
    return {kind: median(each.value for each in texts if each.kind == kind) for kind in kinds}


def _by_length(texts: Sequence[RatedText]) -> float | None:
    return auc(*([each.value for each in texts if each.kind == kind] for kind in (LONG, SHORT)))


def _version(found: Calibration) -> str:
    texts = [each.control.text for each in found.texts if each.control is not None]
    return hashlib.sha256(repr((sorted(found.prompts.items()), texts)).encode()).hexdigest()[:16]
