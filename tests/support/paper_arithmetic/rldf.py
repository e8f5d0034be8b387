"""What RLDF's tables and released files say about themselves: facts with their arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma, log
from statistics import fmean, stdev

from evenhand.core.format import signed
from evenhand.papers.base import published

_NAME = "rldf"
_REPEATS = 3


def itself() -> list[tuple[str, str]]:
    """Returns (place, statement)."""
    return [_constant(), _beyond_sft(), _twice(), _first_stage(), *_files()]


def _rows(method: str, table: str = "table3") -> list[float]:
    rows = published(_NAME).tables[table]
    return [value for name, row in rows.items() if name.endswith(f", {method}") for value in row.values()]


def differences(method: str, table: str = "table3") -> list[float]:
    """Returns RLDF less another method in every cell of a table."""
    return [own - other for own, other in zip(_rows("RLDF", table), _rows(method, table), strict=True)]


def chi_square(differences: Sequence[float]) -> float:
    """Returns the sum of squares of the differences from their mean, by the printed SDs of three repeats."""
    mean = fmean(differences)
    spreads = zip(_rows("RLDF", "table3_sd"), _rows("FairThinking", "table3_sd"), strict=True)
    errors = [(own**2 + other**2) / _REPEATS for own, other in spreads]
    return sum((each - mean) ** 2 / error for each, error in zip(differences, errors, strict=True))


def below(x: float, df: int) -> float:
    """Returns P(χ² ≤ x), also where it is tiny."""
    a, half = df / 2, x / 2
    term = total = 1 / a
    for k in range(1, 200):
        term *= half / (a + k)
        total += term
    return total * exp(a * log(half) - half - lgamma(a))


def _constant() -> tuple[str, str]:
    found = differences("FairThinking")
    statistic, df = chi_square(found), len(found) - 1
    return (
        "Table 3, RLDF and FairThinking",
        f"RLDF − FairThinking is {signed(fmean(found), 2)} on average over {len(found)} cells, with a standard "
        f"deviation of {stdev(found):.3f} ({signed(min(found), 2)} … {signed(max(found), 2)}). By the printed standard "
        f"deviations of three repeats, of which four are cut short here, χ² is at most {statistic:.2f} on {df} degrees "
        f"of freedom; if the repeats vary independently, a value as small has P < {below(statistic, df):.0e}.",
    )


def _beyond_sft() -> tuple[str, str]:
    found = differences("SFT")
    return (
        "Table 3, RLDF and SFT",
        f"RLDF − SFT is {signed(fmean(found), 2)} on average over {len(found)} cells, with a standard deviation of "
        f"{stdev(found):.2f}.",
    )


def _twice() -> tuple[str, str]:
    """Tables 3 and 12 have one caption: BS of the same models, methods and types."""
    said: list[str] = []
    for method in ("Default", "CoT", "SFT", "FairThinking", "RLAIF", "RLDF"):
        moved = [b - a for a, b in zip(_rows(method), _rows(method, "table12"), strict=True)]
        said.append(f"{method} {signed(fmean(moved), 2)}")
    gaps = [fmean(differences("FairThinking", table)) for table in ("table3", "table12")]
    return (
        "Tables 3 and 12",
        "Both are BS of the same models, methods and types. Table 12 less Table 3, means of 20 cells: "
        f"{', '.join(said)}. RLDF − FairThinking is {signed(gaps[0], 2)} in Table 3 and "
        f"{signed(gaps[1], 2)} in Table 12.",
    )


def _first_stage() -> tuple[str, str]:
    rows = published(_NAME).tables["table1"]
    models = dict.fromkeys(name.rpartition(", ")[0] for name in rows)
    gains = [rows[f"{each}, SFT"]["all"] - rows[f"{each}, Default"]["all"] for each in models]
    more = [rows[f"{each}, RLDF"]["all"] - rows[f"{each}, SFT"]["all"] for each in models]
    return (
        "Table 1, the first stage",
        f"SFT alone gains {min(gains):.1f} to {max(gains):.1f} points of accuracy over Default; RLDF gains "
        f"{min(more):.1f} to {max(more):.1f} over SFT.",
    )


def _files() -> list[tuple[str, str]]:
    counts = published(_NAME).tables["released"]
    return [
        ("Released files", f"{row['found']:g} of {row['of']:g} {name} ({100 * row['found'] / row['of']:.0f} %).")
        for name, row in counts.items()
    ]
