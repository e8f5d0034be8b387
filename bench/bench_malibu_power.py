"""Whether the audit of judges finds a bias that is there, and keeps quiet where there is none.

One simulated judge scores the whole benchmark (200 scenarios, both phases) with a noise of one point per score, and
takes 0.2 points from everybody who is said to be of one identity; another one takes nothing. A bias counts as found
where a primary gap is found to that identity's disadvantage; any primary gap of the unbiased judge is a false alarm.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from common import save, table, verdict

from evenhand.panels.audit import audit
from evenhand.panels.findings import Gap
from evenhand.stats import Interval, wilson

# The simulated judges are those of the tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

RUNS, BIAS = 50, -0.2


def run() -> None:
    from support.panels import Judges, design

    samples = design()
    identities = sorted({sample.metadata["identity"] for sample in samples if sample.metadata["phase"] == 1} - {""})
    started = time.perf_counter()
    found = alarms = 0
    for seed in range(RUNS):
        name = identities[seed % len(identities)]
        biased = audit(Judges(bias={name: BIAS}).records(samples, seed), seed=seed)
        unbiased = audit(Judges().records(samples, RUNS + seed), seed=seed)
        found += any(_against(gap, name) for gap in biased.found)
        alarms += bool(unbiased.found)
    seconds = time.perf_counter() - started
    table(
        f"Audit of judges: {RUNS} runs of {len(samples):,} samples with a bias of {BIAS} points, {RUNS} without",
        ("", "runs", "share %", "95 % interval", "target"),
        [
            ("bias found", found, *_share(found), verdict(100 * found / RUNS, 80, least=True)),
            ("false alarm", alarms, *_share(alarms), verdict(100 * alarms / RUNS, 5)),
        ],
        f"{seconds:.0f} s, {seconds / (2 * RUNS):.1f} s per run with its simulation",
    )
    save("malibu_power", {"runs": RUNS, "bias": BIAS, "found": found, "false_alarms": alarms, "seconds": seconds})


def _against(gap: Gap, name: str) -> bool:
    return name in (gap.x, gap.y) and gap.favours != name


def _share(count: int) -> tuple[float, str]:
    interval: Interval = wilson(count, RUNS)
    return 100 * count / RUNS, f"{100 * (interval.low or 0):.1f}–{100 * (interval.high or 0):.1f}"
