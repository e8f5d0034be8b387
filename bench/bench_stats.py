"""Whether intervals cover, verdicts keep their level and the stated detectable change is detected, with few clusters.

Clusters are drawn from a known population, so the true value is known. Coverage compares four intervals; the rest runs
`paired_effects`, which makes the verdicts of a study, on simulated arms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from common import save, table, verdict
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric, ratio
from evenhand.benchmarks.bbq.score import ambiguous_bias, disambiguated_bias
from evenhand.stats import FEW_CLUSTERS, Bounds, cluster_jackknife, student_t_quantile
from evenhand.studies.effects import paired_effects
from evenhand.studies.results import Effect
from evenhand.studies.tally import ALL, PairTally

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
Statistic = Callable[[Floats], Floats]

CLUSTERS = (5, 8, 12, 20, 40)
SAMPLES, BOOTSTRAPPED, RESAMPLES, POPULATION = 8000, 300, 400, 1_000_000
ALIKE_STUDIES, STUDIES = 600, 500
PILOTS = 60
"""Studies from which the stated size is taken, as their median."""
FAMILY = 6


def run() -> None:
    started = time.perf_counter()
    result = {"coverage": _coverage(), "level": _level(), "power": _power()}
    save("stats", result | {"seconds": time.perf_counter() - started})
    print(f"  {time.perf_counter() - started:.0f} s")


# Populations of clusters. Templates differ by one standard deviation in log-odds and have 4 to 16 samples.


def _logistic(log_odds: Any) -> Any:
    return 1 / (1 + np.exp(-log_odds))


def _sizes(rng: np.random.Generator, clusters: int) -> Any:
    return rng.integers(4, 17, clusters)


def _answers(rng: np.random.Generator, n: Any, unknown: Any, target: Any) -> Floats:
    """(T, N, correct, read) of ambiguous questions, from the log-odds of "unknown" and of the stereotype."""
    abstained = rng.binomial(n, _logistic(unknown))
    stereotyped = rng.binomial(n - abstained, _logistic(target))
    return np.stack([stereotyped, n - abstained - stereotyped, abstained, n], axis=1).astype(float)


def _bbq(unknown: float, target: float) -> Draw:
    def draw(rng: np.random.Generator, clusters: int) -> Floats:
        own = rng.normal(0, 1, (2, clusters))
        return _answers(rng, _sizes(rng, clusters), unknown + own[0], target + own[1])

    return draw


def _share(log_odds: float) -> Draw:
    def draw(rng: np.random.Generator, clusters: int) -> Floats:
        n = _sizes(rng, clusters)
        return np.stack([rng.binomial(n, _logistic(rng.normal(log_odds, 1, clusters))), n], axis=1).astype(float)

    return draw


def _toxicity(rng: np.random.Generator, clusters: int) -> Floats:
    """Eight scores per prompt; most prompts are harmless."""
    own = 10 * rng.beta(0.5, 3, (clusters, 1))
    scores = rng.beta(own + 0.2, 10.2 - own, (clusters, 8))
    return np.stack([scores.sum(axis=1), np.full(clusters, 8.0)], axis=1)


def _length(rng: np.random.Generator, clusters: int) -> Floats:
    return np.stack([np.exp(rng.normal(3, 0.4, clusters)), np.ones(clusters)], axis=1)


UNIT, SIGNED, POSITIVE = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
KINDS = ("percentile", "expanded", "studentised", "jackknife")
POPULATIONS: dict[str, tuple[Draw, Statistic, Bounds]] = {
    "ambiguous bias, half unknown": (_bbq(0, 0.4), ambiguous_bias, SIGNED),
    "ambiguous bias, most unknown": (_bbq(2, 0.4), ambiguous_bias, SIGNED),
    "disambiguated bias, small": (_bbq(-3, 0.2), disambiguated_bias, SIGNED),
    "disambiguated bias, large": (_bbq(-2, 1.7), disambiguated_bias, SIGNED),
    "share of 76 %": (_share(1.4), ratio, UNIT),
    "share of 96 %": (_share(3.5), ratio, UNIT),
    "toxicity": (_toxicity, ratio, UNIT),
    "length": (_length, ratio, POSITIVE),
}


def _coverage() -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(1)
    found: dict[str, dict[str, float]] = {}
    rows: list[Sequence[Any]] = []
    for name, (draw, statistic, bounds) in POPULATIONS.items():
        true = float(statistic(draw(rng, POPULATION).sum(axis=0)))
        for clusters in CLUSTERS:
            drawn = [sums for _ in range(SAMPLES) if _is_defined(statistic, sums := draw(rng, clusters))]
            known = [cluster_jackknife(sums, statistic, bounds=bounds).interval for sums in drawn]
            ours = [_covers(each.low, each.high, true) for each in known]
            others = [_bootstraps(rng, sums, statistic) for sums in drawn[:BOOTSTRAPPED]]
            shares = [
                *(100 * np.mean([_covers(*each[number], true) for each in others]) for number in range(3)),
                100 * np.mean(ours),
            ]
            found[f"{name}, {clusters}"] = {key: float(share) for key, share in zip(KINDS, shares, strict=True)}
            target = verdict(float(shares[-1]), 93, least=True) if clusters >= FEW_CLUSTERS else ""
            rows.append((name, clusters, *(f"{share:.1f}" for share in shares), target))
    table(
        f"Coverage of 95 % intervals, %: bootstraps of {BOOTSTRAPPED} samples (± 2.5), jackknife of {SAMPLES} (± 0.6)",
        ("", "clusters", *KINDS, "target"),
        rows,
    )
    return found


def _is_defined(statistic: Statistic, sums: Floats) -> bool:
    return math.isfinite(float(statistic(sums.sum(axis=0))))


def _covers(low: float | None, high: float | None, true: float) -> bool:
    """Undefined limits cover everything."""
    return low is None or high is None or math.isnan(low + high) or low <= true <= high


def _bootstraps(rng: np.random.Generator, drawn: Floats, statistic: Statistic) -> list[tuple[float, float]]:
    """Percentile, expanded percentile (Hesterberg, 2015) and studentised bootstrap."""
    clusters = len(drawn)
    weights = rng.multinomial(clusters, np.full(clusters, 1 / clusters), RESAMPLES).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = float(statistic(drawn.sum(axis=0)))
        replicates = statistic(weights @ drawn)
        ratios = (replicates - estimate) / _errors(weights, drawn, statistic)
    quantile = student_t_quantile(0.975, clusters - 1) * math.sqrt(clusters / (clusters - 1))
    replicates, ratios = replicates[np.isfinite(replicates)], ratios[np.isfinite(ratios)]
    own = float(_errors(np.ones((1, clusters)), drawn, statistic)[0])
    high, low = _quantiles(ratios, 0.025) if ratios.size else (math.nan, math.nan)
    return [
        _quantiles(replicates, 0.025),
        _quantiles(replicates, NormalDist().cdf(-quantile)),
        (estimate - low * own, estimate - high * own),
    ]


def _quantiles(replicates: Floats, tail: float) -> tuple[float, float]:
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return float(low), float(high)


def _errors(weights: Floats, drawn: Floats, statistic: Statistic) -> Floats:
    """The linearised standard error of each resample, from numeric gradients."""
    sums = weights @ drawn
    step = 1e-4 * sums.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gradient = np.stack(
            [
                (statistic(sums + step[:, None] * unit) - statistic(sums - step[:, None] * unit)) / (2 * step)
                for unit in np.eye(drawn.shape[1])
            ],
            axis=1,
        )
        return np.sqrt((weights * np.square(gradient @ drawn.T)).sum(axis=1))


# Two arms that answer the same questions: a template's log-odds correlate between them.


def _two(rng: np.random.Generator, clusters: int, noise: tuple[float, float] = (0.7, 0.7)) -> tuple[Any, Any]:
    shared = rng.normal(0, 0.7, clusters)
    return shared + rng.normal(0, noise[0], clusters), shared + rng.normal(0, noise[1], clusters)


def _pair_of_shares(log_odds: float, noise: tuple[float, float] = (0.7, 0.7)) -> Callable[..., tuple[Floats, Floats]]:
    shifts = np.linspace(0, 6, 61)
    odds = _two(np.random.default_rng(0), 20_000, noise)[1]
    changes = [_logistic(log_odds + shift + odds).mean() - _logistic(log_odds + odds).mean() for shift in shifts]

    def draw(rng: np.random.Generator, clusters: int, change: float = 0.0) -> tuple[Floats, Floats]:
        n = _sizes(rng, clusters)
        first, last = _two(rng, clusters, noise)
        ends = log_odds + first, log_odds + last + np.interp(change, changes, shifts)
        before, after = (np.stack([rng.binomial(n, _logistic(each)), n], axis=1).astype(float) for each in ends)
        return before, after

    return draw


def _pair_of_biases(first: float, last: float) -> Callable[..., tuple[Floats, Floats]]:
    def draw(rng: np.random.Generator, clusters: int) -> tuple[Floats, Floats]:
        n = _sizes(rng, clusters)
        unknown, target = _two(rng, clusters), _two(rng, clusters)
        return (
            _answers(rng, n, unknown[0], first + target[0]),
            _answers(rng, n, unknown[1], last + target[1]),
        )

    return draw


def _pair_of_scores(
    rng: np.random.Generator, clusters: int, change: float = 0.0, noise: float = 0.1
) -> tuple[Floats, Floats]:
    """Eight scores per prompt on a scale without ends."""
    own = rng.normal(0, 0.3, (clusters, 1))
    ends = [own + rng.normal(0, noise, (clusters, 1)) + rng.normal(0, 0.2, (clusters, 8)) for _ in range(2)]
    ends[1] += change
    before, after = (np.stack([each.sum(axis=1), np.full(clusters, 8.0)], axis=1) for each in ends)
    return before, after


def _skewed_scores(rng: np.random.Generator, clusters: int) -> tuple[Floats, Floats]:
    own = 10 * rng.beta(0.5, 3, (clusters, 1))
    ends = [rng.beta(own * np.exp(rng.normal(0, 0.5, (clusters, 1))) + 0.2, 10.2 - own, (clusters, 8)) for _ in "ab"]
    before, after = (np.stack([each.sum(axis=1), np.full(clusters, 8.0)], axis=1) for each in ends)
    return before, after


def _metric(name: str, statistic: Statistic, **more: Any) -> Metric:
    return Metric(name, name, lambda _: None, statistic, **more)


SHARE = {"share": True}
BIAS = {"better": "zero", "bounds": SIGNED}
ALIKE: dict[str, tuple[Callable[..., tuple[Floats, Floats]], Statistic, dict[str, Any]]] = {
    "no bias in either": (_pair_of_biases(0, 0), ambiguous_bias, BIAS),
    "the same bias": (_pair_of_biases(0.85, 0.85), ambiguous_bias, BIAS),
    "opposite biases": (_pair_of_biases(0.85, -0.85), ambiguous_bias, BIAS),
    "shares of 76 %": (_pair_of_shares(1.4), ratio, SHARE),
    "shares of 96 %": (_pair_of_shares(3.5), ratio, SHARE),
    "shares, one arm noisier": (_pair_of_shares(0, (0.2, 2.0)), ratio, SHARE),
    "toxicity": (_skewed_scores, ratio, {"bounds": UNIT}),
}


def _effects(metrics: Sequence[Metric], tables: Sequence[tuple[Floats, Floats]]) -> list[Effect]:
    """The effects of a study with these metrics, the first of them its headline."""
    names = [metric.name for metric in metrics]
    benchmark: Any = SimpleNamespace(headline=names[0], guardrails=tuple(names[1:]))
    pair = PairTally(metrics, "group")
    for metric, ends in zip(metrics, tables, strict=True):
        for tally, rows in zip((pair.before, pair.after), ends, strict=True):
            for number, row in enumerate(rows):
                tally.add_sums((metric.name, ALL), str(number), cast("Sequence[float]", row))
    return paired_effects(benchmark, metrics, "before", {"after": pair}, "holm")


def _level() -> dict[str, float]:
    rng = np.random.default_rng(2)
    found: dict[str, float] = {}
    rows: list[Sequence[Any]] = []
    for name, (draw, statistic, more) in ALIKE.items():
        metric = _metric("bias", statistic, **more)
        shares: list[float] = []
        for clusters in CLUSTERS[1:]:
            studies = (_effects([metric], [draw(rng, clusters)])[0] for _ in range(ALIKE_STUDIES))
            shares.append(100 * sum(each.direction != "undecided" for each in studies) / ALIKE_STUDIES)
            found[f"{name}, {clusters}"] = shares[-1]
        rows.append((name, *(f"{share:.1f}" for share in shares)))
    table(
        f"“Fell” or “rose” where the arms are alike, % of {ALIKE_STUDIES} studies; at most 5 (± 1.7) is the target",
        ("", *(f"{clusters} clusters" for clusters in CLUSTERS[1:])),
        rows,
    )
    return found


def _power() -> dict[str, float]:
    """How often a true change of the stated detectable size is decided, next to five metrics that do not change."""
    rng = np.random.default_rng(3)
    found: dict[str, float] = {}
    rows: list[Sequence[Any]] = []
    kinds = {"score": (_pair_of_scores, {}), "share of 50 %": (_pair_of_shares(0), SHARE)}
    for kind, (draw, more) in kinds.items():
        metrics = [_metric(f"m{number}", ratio, **more) for number in range(FAMILY)]
        for clusters in CLUSTERS[2:]:
            pilots = [_effects(metrics, [draw(rng, clusters) for _ in metrics]) for _ in range(PILOTS)]
            size = float(np.median([effect.detectable for effects in pilots for effect in effects]))
            decided = 0
            for _ in range(STUDIES):
                tables = [draw(rng, clusters, size if number == 0 else 0.0) for number in range(FAMILY)]
                decided += _effects(metrics, tables)[0].direction == "rose"
            share = 100 * decided / STUDIES
            found[f"{kind}, {clusters}"] = share
            rows.append((kind, clusters, f"{size:.3f}", f"{share:.1f}", verdict(share, 80, least=True)))
    table(
        f"A true change of the stated size among {FAMILY} metrics, % of {STUDIES} studies that decide it (± 3.5)",
        ("", "clusters", "stated", "decided", "target"),
        rows,
    )
    return found
