"""How often the corrected estimates of a judged run cover the truth, with 50 to 200 of 1,000 items rated by people.

Every judge is simulated with known errors. Means are ratings from 0 to 100, skewed as real ones are; shares are yes or
no. In clusters, 10 or 40 items share a topic that moves people and judge alike. Next to each estimate: how wide the
interval is against that of the rated items alone (below 1: the judge helps), and how often the judge's own mean, with
its interval, covers the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from common import save, table, verdict
from numpy.typing import NDArray

from evenhand.stats import Interval, corrected_mean, mean_interval, rogan_gladen

RUNS, ITEMS, RATED = 1000, 1000, (50, 100, 200)
AIM = 93.0
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    name: str
    draw: Callable[[np.random.Generator, int], tuple[Array, Array]]
    """(generator, items per cluster) → people's and the judge's values."""
    truth: float
    bounds: tuple[float, float] = (0.0, 100.0)
    cluster: int = 1


def _shared(rng: np.random.Generator, cluster: int) -> Array:
    """A normal value per item, of which the items of a cluster share a fifth of the variance."""
    own = rng.standard_normal(ITEMS)
    if cluster == 1:
        return own
    return np.sqrt(0.8) * own + np.sqrt(0.2) * np.repeat(rng.standard_normal(ITEMS // cluster), cluster)


def _answers(share: float, sensitivity: float, specificity: float) -> Callable[..., tuple[Array, Array]]:
    cut = float(np.quantile(np.random.default_rng(0).standard_normal(2_000_000), 1 - share))

    def draw(rng: np.random.Generator, cluster: int) -> tuple[Array, Array]:
        yes = _shared(rng, cluster) > cut
        luck = rng.random(ITEMS)
        return yes.astype(float), np.where(yes, luck < sensitivity, luck > specificity).astype(float)

    return draw


def _ratings(shift: float, slope: float, noise: float) -> Callable[..., tuple[Array, Array]]:
    """People rate by a skewed scale with many low values; the judge shifts, shrinks and blurs what people see."""

    def draw(rng: np.random.Generator, cluster: int) -> tuple[Array, Array]:
        people = np.clip(np.round(20 * np.exp(0.8 * _shared(rng, cluster)) - 8), 0, 100)
        return people, np.clip(np.round(shift + slope * people + noise * rng.standard_normal(ITEMS)), 0, 100)

    return draw


def _difference(first: Callable[..., tuple[Array, Array]], effect: float) -> Callable[..., tuple[Array, Array]]:
    """Two arms on the same items: the second one is rated lower by `effect`, of which the judge sees half."""

    def draw(rng: np.random.Generator, cluster: int) -> tuple[Array, Array]:
        people, judge = first(rng, cluster)
        change = np.round(effect + 10 * rng.standard_normal(ITEMS))
        other = np.clip(people - change, 0, 100), np.clip(judge - np.round(change / 2), 0, 100)
        return other[0] - people, other[1] - judge

    return draw


def _mean_of(draw: Callable[..., tuple[Array, Array]]) -> float:
    return float(np.mean([draw(np.random.default_rng(seed), 1)[0].mean() for seed in range(4000)]))


def cases() -> list[Case]:
    good, poor, lenient = _ratings(5, 0.8, 8), _ratings(40, 0.05, 20), _ratings(-5, 0.6, 12)
    truth = _mean_of(good)
    change = _difference(good, 6)
    moved = _mean_of(change)
    share = (0.0, 1.0)
    return [
        Case("mean, good judge", good, truth),
        Case("mean, lenient judge", lenient, truth),
        Case("mean, judge at chance", poor, truth),
        Case("mean, good judge, topics of 10", good, truth, cluster=10),
        Case("mean, good judge, topics of 40", good, truth, cluster=40),
        Case("difference of two arms", change, moved, (-100.0, 100.0)),
        Case("difference, topics of 10", change, moved, (-100.0, 100.0), 10),
        Case("share 30 %, judge 0.90/0.90", _answers(0.3, 0.9, 0.9), 0.3, share),
        Case("share 30 %, judge 0.70/0.95", _answers(0.3, 0.7, 0.95), 0.3, share),
        Case("share 5 %, judge 0.90/0.95", _answers(0.05, 0.9, 0.95), 0.05, share),
        Case("share 10 %, judge 0.98/0.98", _answers(0.1, 0.98, 0.98), 0.1, share),
        Case("share 50 %, judge at chance", _answers(0.5, 0.5, 0.5), 0.5, share),
        Case("share 30 %, 0.85/0.90, topics of 10", _answers(0.3, 0.85, 0.9), 0.3, share, 10),
        Case("share 30 %, 0.85/0.90, topics of 40", _answers(0.3, 0.85, 0.9), 0.3, share, 40),
    ]


def _covers(interval: Interval, truth: float) -> bool:
    return interval.low is None or interval.high is None or interval.low <= truth <= interval.high


def _width(interval: Interval) -> float:
    return float("nan") if interval.low is None or interval.high is None else interval.high - interval.low


def _measure(case: Case, rated: int) -> dict[str, float | None]:
    hits = {"ppi": 0, "rg": 0, "judge": 0}
    ratios: list[float] = []
    silent = 0
    is_share = case.bounds == (0.0, 1.0)
    clusters = [place // case.cluster for place in range(ITEMS)] if case.cluster > 1 else None
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        people, judge = case.draw(rng, case.cluster)
        chosen = np.sort(rng.permutation(ITEMS)[:rated])
        known: list[float | None] = [None] * ITEMS
        for place in chosen:
            known[place] = float(people[place])
        found = corrected_mean(judge, known, clusters, bounds=case.bounds).interval
        alone = mean_interval(
            people[chosen], None if clusters is None else [clusters[i] for i in chosen], bounds=case.bounds
        )
        hits["ppi"] += _covers(found, case.truth)
        hits["judge"] += _covers(mean_interval(judge, clusters, bounds=case.bounds), case.truth)
        ratios.append(_width(found) / _width(alone))
        if is_share:
            yes_no = [None if each is None else each == 1 for each in known]
            corrected = rogan_gladen([each == 1 for each in judge], yes_no, clusters).interval
            hits["rg"] += _covers(corrected, case.truth)
            silent += corrected.low is None
    return {
        "ppi": 100 * hits["ppi"] / RUNS,
        "rg": 100 * hits["rg"] / RUNS if is_share else None,
        "silent": 100 * silent / RUNS if is_share else None,
        "judge": 100 * hits["judge"] / RUNS,
        "width": float(np.nanmedian(ratios)),
    }


def run() -> None:
    started = time.perf_counter()
    results: dict[str, dict[str, float | None]] = {}
    rows: list[Sequence[object]] = []
    for case in cases():
        for rated in RATED:
            found = _measure(case, rated)
            results[f"{case.name}, {rated} rated"] = found
            rows.append((
                case.name, rated, f"{found['ppi']:.1f}", f"{found['width']:.2f}",
                "" if found["rg"] is None else f"{found['rg']:.1f} ({found['silent']:.0f} silent)",
                f"{found['judge']:.1f}",
            ))  # fmt: skip
    lowest = {key: min(each[key] or 0.0 for each in results.values() if each[key] is not None) for key in ("ppi", "rg")}
    seconds = time.perf_counter() - started
    table(
        f"Corrected estimates: coverage of 95 % intervals in %, {RUNS:,} simulated runs of {ITEMS:,} items each",
        ("truth", "rated", "PPI", "width / people alone", "Rogan–Gladen", "judge alone"),
        rows,
        f"lowest: PPI {verdict(lowest['ppi'], AIM, least=True)}, "
        f"Rogan–Gladen {verdict(lowest['rg'], AIM, least=True)}; {seconds:.0f} s. "
        "Silent: the judge is not shown to be better than chance, or the rated items are all yes or all no.",
    )
    save("judges", {"runs": RUNS, "items": ITEMS, "coverage": results, "seconds": seconds})
