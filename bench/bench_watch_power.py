"""Watching production in simulation: how often it alarms without a difference, and how soon it finds one.

Each simulated server replays pairs of one attribute with two groups, looks after every pair, and keeps the confidence
sequences of `evenhand.server.watch`: three measures for each of the two groups, with the chance of any false alarm
ever divided among them. Answers are refused with a probability by group; toxicity and length are noise.
"""

from __future__ import annotations

import random

from common import save, table

from evenhand.stats.sequential import MeanSequence

SERVERS, PAIRS, ALPHA, MEASURES = 200, 3000, 0.05, 3
RATES = (0.02, 0.10)
DIFFERENCES = (0.0, 0.02, 0.05, 0.10, 0.20)


def alarm_after(rng: random.Random, base: float, difference: float, pairs: int = PAIRS) -> int | None:
    """The number of pairs after which a simulated server alarms; None if it never does."""
    tests = [MeanSequence(ALPHA / (2 * MEASURES), (-1.0, 1.0)) for _ in range(MEASURES)]
    for count in range(1, pairs + 1):
        one, other = rng.random() < base + difference, rng.random() < base
        noise = [(rng.betavariate(1, 12) - rng.betavariate(1, 12)) for _ in range(MEASURES - 1)]
        tests = [each.added(value) for each, value in zip(tests, (float(one) - float(other), *noise), strict=True)]
        # The sequence of the other group is the mirror image, and alarms at the same time.
        if any(each.excludes(0.0) for each in tests):
            return count
    return None


def run() -> None:
    rows: list[tuple[object, ...]] = []
    found: dict[str, dict[str, float | None]] = {}
    for base in RATES:
        for difference in DIFFERENCES:
            rng = random.Random(1)
            ends = [alarm_after(rng, base, difference) for _ in range(SERVERS)]
            alarms = sorted(each for each in ends if each is not None)
            median = alarms[SERVERS // 2] if len(alarms) > SERVERS // 2 else None
            share = len(alarms) / SERVERS
            rows.append((f"{base:.0%}", f"{difference:.0%}", f"{share:.1%}", "–" if median is None else f"{median:,}"))
            found[f"{base}+{difference}"] = {"alarms": share, "median_pairs": median}
    worst = max(found[f"{base}+0.0"]["alarms"] or 0.0 for base in RATES)
    table(
        f"Alarms within {PAIRS:,} pairs, looked at after each ({SERVERS} simulated servers)",
        ("refused", "difference", "alarms", "median pairs"),
        rows,
        f"false alarms {worst:.1%}, at most {ALPHA:.0%} promised",
    )
    save("watch_power", found)
